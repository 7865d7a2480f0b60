"""Build: incremental by content, one spec an index, nothing lost when it is killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.corpora.records import FILE_FIELDS
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import FILE_CACHE
from ragidx.pipelines.ingest.report import BuildReport

from ...indexer.states import live_vectors


def _same(one: Path, other: Path) -> None:
    ours, theirs = live_vectors(one), live_vectors(other)
    assert ours.keys() == theirs.keys()
    for key, vector in ours.items():
        np.testing.assert_allclose(vector, theirs[key], atol=2e-3)


def _times(index: Path) -> dict[str, int]:
    """Of all files that belong to a state; the cache of files that were read is noted when they have settled."""
    files = [path for path in index.rglob("*") if path.is_file() and path.name not in ("LOCK", FILE_CACHE)]
    return {str(path): path.stat().st_mtime_ns for path in files}


def _counts(report: BuildReport) -> tuple[int, int, int, int, int, int]:
    r = report
    return r.n_added, r.n_changed, r.n_unchanged, r.n_removed, r.n_encoded, r.n_chunks_reused


@pytest.fixture(scope="module")
def echo_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of one text by echo at 32 dimensions, for tests that end before they write."""
    folder = tmp_path_factory.mktemp("echo")
    (folder / "one.txt").write_text("One text.")
    ragidx.build(
        folder / "one.txt", folder / "index", model="mini-decoder", method="echo", filter=ragidx.FilterSpec(dim=32)
    )
    return folder / "index"


@pytest.mark.slow
def test_a_corpus_becomes_an_index_with_one_chunk_for_each_short_document(small_corpus: Path, tmp_path: Path) -> None:
    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert _counts(report) == (6, 0, 0, 0, 6, 0)
    assert report.committed
    store = Store.open(tmp_path / "index")
    assert (store.manifest.n_documents, store.manifest.n_chunks) == (6, 6)
    files = dict.fromkeys(FILE_FIELDS, "string") | {"file.size": "int", "file.modified": "timestamp"}
    assert dict(store.manifest.schema) == {"subject": "string", "title": "string", "year": "int", **files}
    rows = store.rows(range(6))
    assert [row.doc_id for row in rows] == [
        "facts.jsonl#bees",
        "facts.jsonl#neptune",
        "facts.jsonl#printing",
        "lease.txt",
        "mill.md",
        "tower.md",
    ]
    assert rows[4].heading == "The mill"
    assert dict(rows[4].metadata)["year"] == 1790


@pytest.mark.slow
def test_the_same_corpus_again_encodes_nothing_and_commits_nothing(small_corpus: Path, tmp_path: Path) -> None:
    first = ragidx.build(small_corpus, tmp_path / "index").report
    before = _times(tmp_path / "index")

    second = ragidx.build(small_corpus, tmp_path / "index").report

    assert _counts(second) == (0, 0, 6, 0, 0, 0)
    assert (second.committed, second.generation) == (False, first.generation)
    assert _times(tmp_path / "index") == before


@pytest.mark.slow
def test_an_index_in_the_corpus_is_no_part_of_it_also_while_it_is_begun(small_corpus: Path, echo_index: Path) -> None:
    shutil.copytree(echo_index, small_corpus / "old" / "echo")

    first = ragidx.build(small_corpus, small_corpus / "in[d]ex", strict=True).report
    second = ragidx.build(small_corpus, small_corpus / "in[d]ex", strict=True).report

    assert (_counts(first), _counts(second)) == ((6, 0, 0, 0, 6, 0), (0, 0, 6, 0, 0, 0))
    assert first.skipped == second.skipped == {"a ragidx index": 2}
    assert first.skipped_places == {"a ragidx index": ["in[d]ex/", "old/echo/"]}


@pytest.mark.slow
def test_an_idle_build_loads_no_model(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")
    code = (
        "import sys, ragidx; "
        f"r = ragidx.build({str(small_corpus)!r}, {str(tmp_path / 'index')!r}).report; "
        "print(r.n_unchanged, sorted({'torch', 'transformers'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "6 []\n"


@pytest.mark.slow
def test_a_changed_document_alone_is_encoded_again(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")
    (small_corpus / "lease.txt").write_text("The lease was torn up.\n")

    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert _counts(report) == (0, 1, 5, 0, 1, 0)
    ragidx.build(small_corpus, tmp_path / "fresh")
    _same(tmp_path / "index", tmp_path / "fresh")


@pytest.mark.slow
def test_of_a_changed_document_the_changed_chunks_alone_are_encoded(small_corpus: Path, tmp_path: Path) -> None:
    paragraphs = [f"Paragraph {n} tells of {'many ' * 30}things numbered {n}." for n in range(6)]
    (small_corpus / "long.txt").write_text("\n\n".join(paragraphs))
    first = ragidx.build(small_corpus, tmp_path / "index", chunks=ragidx.ChunkSpec(size=40)).report
    paragraphs[2] = f"Another paragraph with {'other ' * 25}words."
    (small_corpus / "long.txt").write_text("\n\n".join(paragraphs))

    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert first.n_encoded == 12
    assert _counts(report) == (0, 1, 6, 0, 1, 5)


@pytest.mark.slow
def test_new_metadata_alone_change_a_document_without_encoding(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")
    text = (small_corpus / "mill.md").read_text().replace("1790", "1791")
    (small_corpus / "mill.md").write_text(text)

    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert _counts(report) == (0, 1, 5, 0, 0, 1)
    hit = ragidx.Index(tmp_path / "index").search("old mill", k=1)[0]
    assert hit.metadata["year"] == 1791


@pytest.mark.slow
def test_equal_texts_are_encoded_once(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for name in "abc":
        (tmp_path / "corpus" / f"{name}.txt").write_text("The same words.")

    report = ragidx.build(tmp_path / "corpus", tmp_path / "index").report

    assert (report.n_chunks, report.n_encoded, report.n_chunks_reused) == (3, 1, 2)


@pytest.mark.slow
def test_options_that_are_left_out_are_the_indexs_own(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(
        small_corpus,
        tmp_path / "index",
        model="mini-decoder",
        method="echo",
        filter=ragidx.FilterSpec(dim=32),
        chunks=ragidx.ChunkSpec(size=64),
    )
    (small_corpus / "new.txt").write_text("Something new.")

    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert (report.method, report.dim, report.n_encoded) == ("echo", 32, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"method": "prompteol"}, "`method` is 'echo' in the index, 'prompteol' now"),
        ({"pooling": "last"}, "`pooling` is 'mean' in the index, 'last' now"),
        ({"filter": ragidx.FilterSpec(dim=16)}, "`filter.dim` is 32 in the index, 16 now"),
        ({"filter": "none"}, "`filter` is 'embedfilter' in the index, 'none' now"),
        ({"chunks": ragidx.ChunkSpec(size=32)}, "`chunks.size` is 256 in the index, 32 now"),
        ({"index_type": "hnsw"}, "`index_type` is 'auto' in the index, 'hnsw' now"),
    ],
)
def test_another_spec_for_an_index_is_an_error_that_says_what_differs(
    options: dict[str, Any], what: str, small_corpus: Path, echo_index: Path
) -> None:
    with pytest.raises(SpecError) as fault:
        ragidx.build(small_corpus, echo_index, **options)

    assert str(fault.value).startswith(f"{echo_index}: the index was built with other options: ")
    assert what in fault.value.message
    hint = "remove the option to update the index, name another `index`, or replace this one with `rebuild=True`"
    assert fault.value.hint.partition("; ")[0] == hint
    assert ("ragidx reindex DIR" in fault.value.hint) == ("index_type" in what)  # nothing is encoded for that


def test_another_model_for_an_index_is_an_error(
    small_corpus: Path, echo_index: Path, tiny_model: Callable[..., Path]
) -> None:
    with pytest.raises(SpecError, match=r"`model` is 'mini-decoder' in the index"):
        ragidx.build(small_corpus, echo_index, model=str(tiny_model("llama")))


@pytest.mark.slow
def test_rebuild_replaces_the_index(small_corpus: Path, echo_index: Path, tmp_path: Path) -> None:
    shutil.copytree(echo_index, tmp_path / "index")

    report = ragidx.build(small_corpus, tmp_path / "index", rebuild=True, filter=ragidx.FilterSpec(dim=16)).report

    assert (report.method, report.dim, report.n_chunks, report.generation) == ("classical", 16, 6, 2)
    assert len(live_vectors(tmp_path / "index")) == 6


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"method": "classical"}, {"method": "echo"}, {"method": "prompteol"}])
def test_a_wide_build_cut_to_a_prefix_equals_the_narrow_build(
    options: dict[str, Any], small_corpus: Path, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    model = str(tiny_model("llama"))
    ragidx.build(
        small_corpus, tmp_path / "wide", model=model, dtype="float32", **options, filter=ragidx.FilterSpec(dim=24)
    )
    ragidx.build(
        small_corpus, tmp_path / "narrow", model=model, dtype="float32", **options, filter=ragidx.FilterSpec(dim=9)
    )

    ours, theirs = live_vectors(tmp_path / "wide"), live_vectors(tmp_path / "narrow")

    for key, vector in ours.items():
        prefix = vector[:9] / np.linalg.norm(vector[:9])
        np.testing.assert_allclose(prefix, theirs[key], atol=1e-3)


@pytest.mark.slow
def test_titles_change_vectors_of_chunks_that_lack_them_and_no_chunk(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "plain", chunks=ragidx.ChunkSpec(size=8, titles=False))
    ragidx.build(small_corpus, tmp_path / "titled", chunks=ragidx.ChunkSpec(size=8))

    one, other = live_vectors(tmp_path / "plain"), live_vectors(tmp_path / "titled")

    assert one.keys() == other.keys()
    changed = {name.partition(":")[0] for name in one if not np.array_equal(one[name], other[name])}
    assert changed == {"mill.md", "tower.md"}


@pytest.mark.slow
def test_a_model_that_moved_goes_on_with_its_index(
    small_corpus: Path, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    shutil.copytree(tiny_model("llama"), first)
    ragidx.build(small_corpus, tmp_path / "index", model=str(first), filter=ragidx.FilterSpec(dim=8))
    first.rename(second)

    report = ragidx.build(small_corpus, tmp_path / "index", model=str(second)).report
    hits = ragidx.Index(tmp_path / "index", model=str(second)).search("mill", k=1)

    assert report.n_unchanged == 6
    assert len(hits) == 1


@pytest.mark.slow
def test_an_index_goes_on_whichever_way_its_tau_was_written(tmp_path: Path) -> None:
    corpus, index = tmp_path / "one.txt", tmp_path / "index"
    corpus.write_text("One text.")
    ragidx.build(corpus, index, filter=ragidx.FilterSpec(tau=2))
    for kept in (None, ragidx.FilterSpec(), ragidx.FilterSpec(tau=2), ragidx.FilterSpec(tau=2.0)):
        assert not ragidx.build(corpus, index, filter=kept).report.committed
