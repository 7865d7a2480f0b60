"""Indexes by every method: a stored row is the vector that the encoder gives its text, and a second build is idle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.corpora.headings import SEPARATOR, begins_with
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import _with_checksum

from ...raising import message_of
from ...tiny_weights import write_adapter, write_pooler

pytestmark = pytest.mark.slow

METHODS: dict[str, dict[str, Any]] = {
    "reba": {"method": "reba"},
    "reba, 3 copies, last": {"method": "reba", "copies": 3, "pooling": "last"},
    "echo, 3 copies": {"method": "echo", "copies": 3},
    "echo, matched": {
        "method": "echo",
        "max_length": 9,
        "compute_matched": True,
        "chunks": ragidx.ChunkSpec(size=None),
    },
    "aligned values": {"method": "aligned-values"},
    "metaeol": {"method": "metaeol"},
    "echo, other queries": {"method": "echo", "template_query": "Query: {text}"},
    "metaeol, fewer prompts for queries": {"method": "metaeol", "template_query": 'A "{text}":"\nB "{text}":"'},
    "metaeol, two prompts": {"method": "metaeol", "template": 'One "{text}":"\nTwo "{text}":"'},
    "prompteol, middle": {
        "method": "prompteol",
        "max_length": 9,
        "truncate": "middle",
        "chunks": ragidx.ChunkSpec(size=None),
    },
    "llm2vec with an adapter": {"method": "llm2vec", "adapters": ("mntp",)},
    "llm2vec with two": {"method": "llm2vec", "adapters": ("mntp", "task"), "pooling": "eos"},
    "trainable over tokens": {"method": "llm2vec", "pooling": "trainable", "pooler": "rows.safetensors"},
    "trainable over layers": {"method": "classical", "pooling": "trainable", "pooler": "layers.safetensors"},
    "an earlier layer": {"method": "classical", "layer": 1, "layer_norm": True},
}
QUERIES = ["Who signed the lease?", "bees"]


@pytest.fixture
def model(tiny_model: Callable[..., Path], small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A llama that reads 256 tokens; adapters and poolers have short names."""
    folder = small_corpus.parent
    monkeypatch.chdir(folder)
    write_adapter(folder / "mntp", None)
    write_adapter(folder / "task", None, seed=1)
    write_pooler(folder / "rows.safetensors")
    write_pooler(folder / "layers.safetensors", layers=2)
    return str(tiny_model("llama", max_position_embeddings=256))


def titled(heading: str, text: str) -> str:
    """A chunk as it is encoded."""
    title = heading.partition(SEPARATOR)[0]
    return f"{title}\n\n{text}" if title and not begins_with(text, title) else text


@pytest.mark.parametrize("case", METHODS)
def test_a_stored_row_is_its_texts_vector_and_a_second_build_is_idle(case: str, model: str) -> None:
    options = METHODS[case]
    encoder_options = {name: value for name, value in options.items() if name != "chunks"}

    first = ragidx.build("corpus", "index", model=model, filter="none", device="cpu", dtype="float32", **options).report
    second, again = (
        ragidx.build("corpus", "index").report,
        ragidx.build("corpus", "index", model=model, **options).report,
    )

    assert (first.n_documents, first.committed) == (6, True)
    for idle in (second, again):
        assert (idle.n_encoded, idle.committed) == (0, False)
    store = Store.open(Path("index"))
    rows = store.rows(range(store.manifest.n_chunks))
    stored = store.vectors(range(store.n_rows))
    encoder = ragidx.load_encoder(model, device="cpu", dtype="float32", **encoder_options)
    for kind in (encoder.encode_document, encoder.encode_query):
        raw = kind([titled(row.heading, row.text) for row in rows] if kind == encoder.encode_document else QUERIES)
        unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
        if kind == encoder.encode_document:
            np.testing.assert_allclose(stored, unit, atol=1e-3)  # rows are kept in float16
            assert np.abs(stored - stored.mean(axis=0)).max() > 1e-2  # and are not all one
        else:
            retriever = ragidx.Index("index", device="cpu", dtype="float32")
            np.testing.assert_allclose(retriever.searcher.encode(QUERIES), unit, atol=1e-5)
            for hits, query in zip(retriever.search_batch(QUERIES, 6, mode="dense"), unit, strict=True):
                exact = sorted((stored @ query).tolist(), reverse=True)[:6]
                assert [hit.score for hit in hits] == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("asked", [{}, {"compute_matched": False}])
def test_an_index_of_before_whose_copies_share_no_length_opens_and_is_updated(
    asked: dict[str, bool], small_corpus: Path, tmp_path: Path
) -> None:
    made, before = (
        tmp_path / "index",
        ragidx.build(small_corpus, tmp_path / "index", model="mini-decoder", method="echo"),
    )
    for path in (made / "manifest.json", made / "manifest.1.json"):
        manifest = json.loads(path.read_text())
        manifest["spec"]["encoder"]["compute_matched"] = True
        del manifest["spec"]["encoder"]["template_query"]
        del manifest["checksum"]
        path.write_bytes(_with_checksum(manifest))

    index = ragidx.Index(made)

    assert index.search("who signed the lease?") == before.search("who signed the lease?")
    assert index.build(**asked).n_unchanged == 6
    assert message_of(SpecError, lambda: index.build(compute_matched=True)) == (
        "`compute_matched`: the copies of a text share the tokens of `max_length`, which is not set\n"
        "  hint: give `max_length`, or remove `compute_matched`"
    )


def test_an_adapters_folder_is_a_model(model: str, tmp_path: Path) -> None:
    write_adapter(tmp_path / "mntp", model)
    (tmp_path / Path(model).name).symlink_to(model)

    alone = ragidx.build("corpus", "alone", model="mntp", method="llm2vec", filter="none").report

    assert alone.n_encoded == 6
    # The same weights under other names are the same index.
    assert ragidx.build("corpus", "alone", model=model, adapters=("mntp",)).report.n_encoded == 0
    hits = ragidx.Index("alone").search("bees", 1)
    assert len(hits) == 1


def test_an_index_is_opened_where_its_adapters_and_pooler_are_now(model: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"adapters": ("mntp",), "pooling": "trainable", "pooler": "rows.safetensors"}
    ragidx.build("corpus", "index", model=model, method="llm2vec", filter="none", **options)
    before = ragidx.Index("index").searcher.encode(QUERIES)
    (tmp_path / "moved").mkdir()
    for name in ("mntp", "rows.safetensors"):
        (tmp_path / name).rename(tmp_path / "moved" / name)

    after = ragidx.Index("index", adapters=["moved/mntp"], pooler="moved/rows.safetensors").searcher.encode(QUERIES)

    np.testing.assert_allclose(after, before, atol=1e-6)
    with pytest.raises(ragidx.RagidxError, match="no adapter 'mntp'"):
        ragidx.Index("index").searcher.encode(QUERIES)
