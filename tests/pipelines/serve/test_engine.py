"""An index that an engine has is served as one in a folder, but for what changes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.pipelines.index import Index
from ragidx.pipelines.serve import served_index as serve_served
from ragidx.pipelines.serve.settings import named

from ..conftest import Done
from .conftest import make_index, running, until

pytest.importorskip("lancedb", reason="the extra `lancedb` is not installed")


def test_an_engine_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_served, "REMOTE_S", 0.1)
    index, to = Index(make_index(tmp_path / "index")), f"lancedb:{tmp_path / 'lance'}#docs"
    index.export(to)
    with running({"docs": to}) as served:
        hits = served.search("where do bees fly?", mode="dense").body["hits"]
        expected = index.search("where do bees fly?", mode="dense")
        assert [hit["chunk_id"] for hit in hits] == [hit.chunk_id for hit in expected]
        assert served.search("bees", where="year > 1900").body["hits"][0]["doc_id"] == "bees"
        assert served.ask("GET", "/v1/documents/mill").body["text"] == index.get(["mill"])[0].text
        assert served.search("bees", dim=8).error == "an engine cannot do that"
        about = served.ask("GET", "/v1/info").body["indexes"][0]
        assert (about["n_documents"], about["generation"]) == (4, index.generation)
        assert 'ragidx_dead_rows{index="docs"} 0.0' in served.ask("GET", "/metrics").body
        page = served.ask("GET", "/?q=bees")
        assert (page.status, " dance to tell" in page.body) == (200, True)
        index.delete(["bees"])
        index.export(to)
        until(lambda: served.ask("GET", "/v1/info").body["indexes"][0]["generation"] == index.generation)
        assert "bees" not in {hit["doc_id"] for hit in served.search("bees").body["hits"]}


def test_names_of_targets(run: Callable[..., Done]) -> None:
    assert named(["docs=lancedb:x#y", "p=plain"]) == {"docs": "lancedb:x#y", "p": Path("plain")}
    missing = run("serve", "--index", "docs=lancedb:nothing")
    assert (missing.status, "there is no such table" in missing.err) == (2, True)
    refused = run("serve", "--index", "docs=lancedb:nothing", "--writable")
    assert refused.status == 2
