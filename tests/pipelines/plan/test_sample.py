"""Of a large corpus some files are read, and the beginning of a large file; what is counted stands for the rest."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.readers.records import field_rule
from ragidx.pipelines.plan import plan as planning
from ragidx.pipelines.plan.plan import plan

from .conftest import text_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of more than 30 KB is too large to read whole, and so is a file of more than 15 KB."""
    monkeypatch.setattr(planning, "WHOLE_BYTES", 30_000)
    monkeypatch.setattr(planning, "SAMPLE_BYTES", 30_000)
    monkeypatch.setattr(planning, "_FILE_BYTES", 15_000)
    monkeypatch.setattr(field_rule, "SAMPLE_RECORDS", 20)  # that a reader looks at before it gives the first


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_large_file_is_estimated_by_its_beginning(
    is_packed: bool, records: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_packed:
        monkeypatch.setattr(planning, "WHOLE_BYTES", 3_000)
        packed = tmp_path / "packed.jsonl.gz"
        packed.write_bytes(gzip.compress(records.read_bytes()))
        records = packed

    found = plan(records, tmp_path / "index", **tiny)
    report = ragidx.build(records, tmp_path / "index", **tiny).report

    if not is_packed:  # its bytes are read in one block
        assert found.share_read < 0.9
        assert found.n_removed is None
    assert found.n_documents == pytest.approx(report.n_documents, rel=0.1)
    assert found.n_chunks == pytest.approx(report.n_chunks, rel=0.1)
    assert found.n_tokens == pytest.approx(report.n_tokens, rel=0.1)
    assert found.skipped == {}
    assert found.footprint.index_bytes == pytest.approx(report.index_bytes, rel=0.25)


def test_files_that_are_drawn_stand_for_the_others_and_are_the_same_every_time(
    tmp_path: Path, tiny: dict[str, Any]
) -> None:
    corpus = tmp_path / "many"
    corpus.mkdir()
    for number in range(160):
        (corpus / f"{number}.txt").write_text(text_of(number, 60 + number % 40))
    (corpus / "empty.txt").write_text("")

    found, again = (plan(corpus, tmp_path / "index", **tiny) for _ in range(2))
    report = ragidx.build(corpus, tmp_path / "index", **tiny).report

    assert 0.3 < found.share_read < 0.7
    assert found.n_files == 161
    assert found.n_documents == pytest.approx(160, rel=0.1)
    assert found.n_tokens == pytest.approx(report.n_tokens, rel=0.05)
    assert (found.n_documents, found.n_chunks, found.n_tokens) == (again.n_documents, again.n_chunks, again.n_tokens)


def test_long_texts_that_are_not_cut_are_one_chunk_each(tmp_path: Path, tiny: dict[str, Any]) -> None:
    corpus = tmp_path / "many"
    corpus.mkdir()
    for number in range(12):
        (corpus / f"{number}.txt").write_text("".join(f"{text_of(number + n, 9)}\n" for n in range(200)))
    options = tiny | {"chunks": ragidx.ChunkSpec(size=None)}

    found = plan(corpus, tmp_path / "index", **options)
    report = ragidx.build(corpus, tmp_path / "index", **options).report

    assert found.share_read < 0.9
    assert found.n_chunks == pytest.approx(report.n_chunks, abs=1)
    assert found.n_truncated == pytest.approx(report.n_truncated, abs=1)
    assert found.n_tokens == pytest.approx(report.n_tokens, rel=0.1)
