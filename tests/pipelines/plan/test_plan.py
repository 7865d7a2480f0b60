"""Plan: what was counted is what the build finds, nothing is touched, and what a build refuses is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.pipelines.plan.footprint import peak_bytes
from ragidx.pipelines.plan.plan import plan

from ...raising import message_of
from .conftest import text_of

pytestmark = pytest.mark.slow


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*") if p.is_file()}


# what is read whole is counted


def test_a_small_corpus_is_counted_as_the_build_counts_it(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    (small_corpus / "blank.txt").write_text(" \n")
    (small_corpus / "twin.txt").write_text((small_corpus / "lease.txt").read_text())
    (small_corpus / "broken.jsonl").write_text('{"id": "a", "text": "one"}\n{"id": \n')
    (small_corpus / "picture.bin").write_bytes(bytes(range(256)) * 8)

    found = plan(small_corpus, tmp_path / "index", **tiny)
    report = ragidx.build(small_corpus, tmp_path / "index", **tiny).report

    assert found.share_read == 1.0
    assert (found.n_documents, found.n_added) == (report.n_documents, report.n_added)
    assert found.n_chunks == report.n_chunks
    assert (found.n_to_encode, found.n_tokens) == (report.n_encoded, report.n_tokens)
    assert (found.n_empty, found.skipped) == (report.n_empty, report.skipped)
    assert (found.model, found.encoder, found.filter, found.dim) == (
        report.model,
        report.encoder,
        report.filter,
        report.dim,
    )


@pytest.mark.parametrize("method", ["classical", "echo"])
def test_documents_longer_than_the_model_reads_are_counted(
    method: str, small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    for number in range(3):
        (small_corpus / f"long{number}.txt").write_text(text_of(number, 200))
    options = tiny | {"method": method, "chunks": ragidx.ChunkSpec(size=None)}

    found = plan(small_corpus, tmp_path / "index", **options)
    report = ragidx.build(small_corpus, tmp_path / "index", **options).report

    assert report.n_truncated >= 3
    assert (found.n_truncated, found.n_tokens) == (report.n_truncated, report.n_tokens)


@pytest.mark.parametrize(
    "changed",
    [{}, {"filter": ragidx.FilterSpec(tau=1)}, {"filter": "none"}, {"filter": ragidx.FilterSpec("pca", dim=8)}],
)
def test_the_bytes_are_within_a_tenth_of_the_index(
    changed: dict[str, Any], records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    options = {name: value for name, value in (tiny | changed).items() if value is not None}
    if "dim" in options:
        del options["tau"]

    found = plan(records, tmp_path / "index", **options)
    report = ragidx.build(records, tmp_path / "index", **options).report

    assert found.footprint.index_bytes == pytest.approx(report.index_bytes, rel=0.1)
    assert found.footprint.n_chunks == report.n_chunks
    assert found.dim == report.dim


def test_a_plan_of_a_model_with_its_own_modules(
    small_corpus: Path, tmp_path: Path, tiny_sentence_transformer: Path
) -> None:
    found = plan(small_corpus, tmp_path / "index", model=str(tiny_sentence_transformer))
    report = ragidx.build(small_corpus, tmp_path / "index", model=str(tiny_sentence_transformer)).report

    assert (found.n_chunks, found.n_tokens) == (report.n_chunks, report.n_tokens)


def test_the_speed_is_of_real_chunks_and_says_how_many(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    speed = plan(records, tmp_path / "index", **tiny).speed

    assert speed is not None
    assert speed.tokens_per_s > 0
    assert 1 <= speed.n_chunks <= 2048
    assert (speed.device, speed.dtype) == ("cpu", "float32")


def test_the_times_add_up(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    found = plan(records, tmp_path / "index", **tiny)

    assert found.speed is not None
    assert found.encode_seconds == pytest.approx(found.n_tokens / found.speed.tokens_per_s)
    assert found.encode_seconds < found.seconds


# memory


def test_memory_is_what_was_used_and_what_a_build_holds(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    before = peak_bytes()

    size = plan(records, tmp_path / "index", **tiny).footprint

    assert before < size.build_bytes < peak_bytes() + (64 << 20)


def test_a_process_that_builds_needs_about_the_memory_that_was_foreseen(records: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom ragidx.pipelines.{0} import {1}\nmade = {1}(sys.argv[1], sys.argv[2])\n"
        "print(made.footprint.build_bytes if '{1}' == 'plan' else "
        "1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    sizes = [
        int(
            subprocess.run(
                [sys.executable, "-c", code.format(room, name), str(records), str(tmp_path / "index")],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for room, name in (("plan.plan", "plan"), ("ingest.build", "build"))
    ]

    assert sizes[0] == pytest.approx(sizes[1], rel=0.25)


# an index that exists


def test_nothing_is_written_where_there_is_no_index(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    plan(small_corpus, tmp_path / "index", **tiny)

    assert not (tmp_path / "index").exists()


def test_an_index_that_is_up_to_date_leaves_nothing_to_encode(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    report = ragidx.build(small_corpus, tmp_path / "index", **tiny).report
    before = _files(tmp_path / "index")

    found = plan(small_corpus, tmp_path / "index")

    assert (found.n_unchanged, found.n_added, found.n_changed, found.n_removed) == (6, 0, 0, 0)
    assert (found.n_chunks, found.n_to_encode, found.n_tokens, found.speed) == (0, 0, 0, None)
    assert found.encode_seconds == 0
    assert found.footprint.index_bytes == report.index_bytes
    assert _files(tmp_path / "index") == before


def test_what_came_changed_and_went_is_told_as_the_build_tells_it(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    ragidx.build(small_corpus, tmp_path / "index", **tiny)
    (small_corpus / "lease.txt").write_text("The lease was torn up.\n")
    (small_corpus / "mill.md").rename(small_corpus / "windmill.md")
    (small_corpus / "tower.md").unlink()

    found = plan(small_corpus, tmp_path / "index")
    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert (found.n_added, found.n_changed, found.n_unchanged, found.n_removed) == (
        report.n_added,
        report.n_changed,
        report.n_unchanged,
        report.n_removed,
    )
    assert (found.n_to_encode, found.n_tokens) == (report.n_encoded, report.n_tokens)
    assert found.n_chunks - found.n_to_encode == report.n_chunks_reused > 0


def test_a_rebuild_counts_everything_as_new(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(small_corpus, tmp_path / "index", **tiny)

    found = plan(small_corpus, tmp_path / "index", rebuild=True, **(tiny | {"filter": ragidx.FilterSpec(tau=4)}))

    assert (found.n_added, found.n_unchanged) == (6, 0)
    assert found.n_to_encode == found.n_chunks > 0


# refused as the build refuses it


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: (folder / "empty", {}),
        lambda folder: (folder / "none", {}),
        lambda folder: (folder / "unreadable", {}),
        lambda folder: (folder / "corpus", {"include": ["*.nothing"]}),
        lambda folder: (folder / "corpus", {"colour": "red"}),
        lambda folder: (folder / "corpus", {"model": "no/such/folder/"}),
        lambda folder: (folder / "corpus", {"filter": ragidx.FilterSpec(tau=1000)}),
        lambda folder: (folder / "corpus", {"index_type": "hnws"}),
        lambda folder: (folder / "corpus", {"device": "gpu"}),
        lambda folder: (folder / "corpus", {"index": folder / "corpus"}),
        lambda folder: (folder / "corpus", {"filter": ragidx.FilterSpec("pca", dim=1000)}),
    ],
    ids=[
        "empty",
        "missing",
        "unreadable",
        "nothing included",
        "unknown option",
        "model",
        "tau",
        "index type",
        "device",
        "another folder",
        "width",
    ],
)
def test_what_a_build_refuses_a_plan_refuses_in_the_same_words(
    make: Callable[[Path], tuple[Path, dict[str, Any]]], small_corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unreadable").mkdir()
    (tmp_path / "unreadable" / "a.bin").write_bytes(bytes(range(256)))
    corpus, options = make(tmp_path)
    index = options.pop("index", tmp_path / "index")

    with pytest.raises(RagidxError) as expected:
        ragidx.build(corpus, index, **options)
    shutil.rmtree(tmp_path / "index", ignore_errors=True)
    with pytest.raises(RagidxError) as fault:
        plan(corpus, index, **options)

    assert (type(fault.value), str(fault.value)) == (type(expected.value), str(expected.value))
    assert not (tmp_path / "index").exists()


def test_standard_input_is_refused(tmp_path: Path) -> None:
    assert message_of(RagidxError, lambda: plan("-", tmp_path / "index")) == (
        "standard input: it can be read once, and a plan would leave nothing of it for the build\n"
        "  hint: write it to a file, and plan with that"
    )
