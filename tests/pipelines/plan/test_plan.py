"""Forecast: what was counted is what the build finds, what was estimated has a range, and nothing is touched."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.corpora.records import Skip
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.ann.index_types import INDEX_TYPES, candidates, footprint_of
from ragidx.indexer.store.manifest import JOURNAL
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.build.corpus import Reading
from ragidx.pipelines.build.options import build_options
from ragidx.pipelines.plan import footprint as room_module
from ragidx.pipelines.plan import plan as module
from ragidx.pipelines.plan import sample as pieces_module
from ragidx.pipelines.plan.footprint import peak_bytes
from ragidx.pipelines.plan.plan import forecast
from ragidx.pipelines.plan.sample import corpus_of, pieces
from ragidx.pipelines.plan.sampling import Extrapolation, Tally

pytestmark = pytest.mark.slow

WORDS = re.findall(
    r"\w+", "the river rises in hills and flows past an old mill before it reaches a sea where ships wait"
)


def _text(seed: int, n: int) -> str:
    random_ = random.Random(seed)
    return " ".join(random_.choice(WORDS) for _ in range(n)) + "."


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def tiny(tiny_model: Callable[..., Path]) -> dict[str, Any]:
    """Options for a random model of two layers that reads 128 tokens."""
    options = {"model": str(tiny_model("llama")), "method": "classical", "tau": 2, "chunk_size": 24}
    return options | {"device": "cpu", "dtype": "float32"}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """400 records of different lengths in one file of 80 KB."""
    path = tmp_path / "records.jsonl"
    lines = [json.dumps({"id": f"r{n}", "text": _text(n, 10 + n % 50)}) for n in range(400)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of more than 30 KB is too large to read whole."""
    monkeypatch.setattr(module, "WHOLE_BYTES", 30_000)
    monkeypatch.setattr(module, "SAMPLE_BYTES", 30_000)
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 2_000)


# what is read whole is counted


def test_a_small_corpus_is_counted_as_the_build_counts_it(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    (small_corpus / "blank.txt").write_text(" \n")
    (small_corpus / "twin.txt").write_text((small_corpus / "lease.txt").read_text())
    (small_corpus / "broken.jsonl").write_text('{"id": "a", "text": "one"}\n{"id": \n')
    (small_corpus / "picture.bin").write_bytes(bytes(range(256)) * 8)

    found = forecast(small_corpus, tmp_path / "index", **tiny)
    report = ragidx.build(small_corpus, tmp_path / "index", **tiny)

    assert found.share_read == 1.0
    assert found.documents.exact
    assert (found.documents.value, found.added.value) == (report.n_documents, report.n_added)
    assert found.chunks.value == report.n_chunks
    assert (found.to_encode.value, found.tokens.value) == (report.n_encoded, report.n_tokens)
    assert (found.empty.value, found.skipped) == (report.n_empty, report.skipped)
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
        (small_corpus / f"long{number}.txt").write_text(_text(number, 200))
    options = tiny | {"method": method, "chunk_size": "none"}

    found = forecast(small_corpus, tmp_path / "index", **options)
    report = ragidx.build(small_corpus, tmp_path / "index", **options)

    assert report.n_truncated >= 3
    assert (found.truncated.value, found.tokens.value) == (report.n_truncated, report.n_tokens)


@pytest.mark.parametrize("changed", [{}, {"tau": 1}, {"filter": "none", "tau": None}, {"filter": "pca", "dim": 8}])
def test_the_bytes_are_within_a_tenth_of_the_index(
    changed: dict[str, Any], records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    options = {name: value for name, value in (tiny | changed).items() if value is not None}
    if "dim" in options:
        del options["tau"]

    found = forecast(records, tmp_path / "index", **options)
    report = ragidx.build(records, tmp_path / "index", **options)

    assert found.room.index_bytes == pytest.approx(report.index_bytes, rel=0.1)
    assert found.room.n_chunks == report.n_chunks
    assert found.dim == report.dim


def test_a_forecast_of_a_model_with_its_own_modules(
    small_corpus: Path, tmp_path: Path, tiny_sentence_transformer: Path
) -> None:
    found = forecast(small_corpus, tmp_path / "index", model=str(tiny_sentence_transformer))
    report = ragidx.build(small_corpus, tmp_path / "index", model=str(tiny_sentence_transformer))

    assert (found.chunks.value, found.tokens.value) == (report.n_chunks, report.n_tokens)
    assert found.room.widths == ()


def test_the_speed_is_of_real_chunks_and_says_how_many(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    speed = forecast(records, tmp_path / "index", **tiny).speed

    assert speed is not None
    assert 0 < speed.low <= speed.tokens_per_s <= speed.high
    assert speed.n_groups >= 1
    assert 1 <= speed.n_chunks <= 2048
    assert (speed.device, speed.dtype) == ("cpu", "float32")


def test_the_times_add_up(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    found = forecast(records, tmp_path / "index", **tiny)

    assert found.speed is not None
    assert found.encode_seconds == pytest.approx(found.tokens.value / found.speed.tokens_per_s)
    assert found.encode_seconds < found.seconds
    assert found.seconds_low <= found.seconds <= found.seconds_high


# memory


def test_memory_is_what_was_used_and_what_a_build_holds(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    before = peak_bytes()

    room = forecast(records, tmp_path / "index", **tiny).room

    assert before < room.build_bytes < peak_bytes() + (64 << 20)


def test_a_process_that_builds_needs_about_the_memory_that_was_foreseen(records: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom ragidx.pipelines.{0} import {1}\nmade = {1}(sys.argv[1], sys.argv[2])\n"
        "print(made.room.build_bytes if '{1}' == 'forecast' else "
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
        for room, name in (("forecast", "forecast"), ("build", "build"))
    ]

    assert sizes[0] == pytest.approx(sizes[1], rel=0.25)


# an index that exists


def test_nothing_is_written_where_there_is_no_index(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    forecast(small_corpus, tmp_path / "index", **tiny)

    assert not (tmp_path / "index").exists()


def test_an_index_that_is_up_to_date_leaves_nothing_to_encode(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    report = ragidx.build(small_corpus, tmp_path / "index", **tiny)
    before = _files(tmp_path / "index")

    found = forecast(small_corpus, tmp_path / "index")

    assert (found.unchanged.value, found.added.value, found.changed.value, found.removed) == (6, 0, 0, 0)
    assert (found.chunks.value, found.to_encode.value, found.tokens.value, found.speed) == (0, 0, 0, None)
    assert found.encode_seconds == 0
    assert found.room.index_bytes == report.index_bytes
    assert _files(tmp_path / "index") == before


def test_what_came_changed_and_went_is_told_as_the_build_tells_it(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    ragidx.build(small_corpus, tmp_path / "index", **tiny)
    (small_corpus / "lease.txt").write_text("The lease was torn up.\n")
    (small_corpus / "mill.md").rename(small_corpus / "windmill.md")
    (small_corpus / "tower.md").unlink()

    found = forecast(small_corpus, tmp_path / "index")
    report = ragidx.build(small_corpus, tmp_path / "index")

    assert (found.added.value, found.changed.value, found.unchanged.value, found.removed) == (
        report.n_added,
        report.n_changed,
        report.n_unchanged,
        report.n_removed,
    )
    assert (found.to_encode.value, found.tokens.value) == (report.n_encoded, report.n_tokens)
    assert found.chunks.value - found.to_encode.value == report.n_reused > 0


def test_what_an_interrupted_build_encoded_is_known_and_its_journal_left_alone(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ragidx.build(small_corpus, tmp_path / "index", **tiny)
    (journal,) = (tmp_path / "index" / JOURNAL).iterdir()
    journal.write_bytes(journal.read_bytes() + b"torn")
    before = _files(tmp_path / "index")

    found = forecast(small_corpus, tmp_path / "index", **tiny)

    assert (found.chunks.value > 0, found.to_encode.value) == (True, 0)
    assert _files(tmp_path / "index") == before


def test_a_journal_that_cannot_be_copied_is_told(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ragidx.build(small_corpus, tmp_path / "index", **tiny)
    plan_key = Store.open(tmp_path / "index").manifest.fingerprint
    journal = tmp_path / "index" / JOURNAL / f"{plan_key[:16]}.bin"
    journal.parent.mkdir(exist_ok=True)
    journal.write_bytes(b"anything")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(RagidxError) as fault:
        forecast(small_corpus, tmp_path / "index")

    assert str(fault.value) == (
        f"{journal}: the journal cannot be copied: No space left on device\n"
        "  hint: set TMPDIR to a folder with room for it"
    )


def test_a_rebuild_counts_everything_as_new(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(small_corpus, tmp_path / "index", **tiny)

    found = forecast(small_corpus, tmp_path / "index", rebuild=True, **(tiny | {"tau": 4}))

    assert (found.added.value, found.unchanged.value) == (6, 0)
    assert found.to_encode.value == found.chunks.value > 0


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
        lambda folder: (folder / "corpus", {"tau": 0.5}),
        lambda folder: (folder / "corpus", {"index_type": "hnws"}),
        lambda folder: (folder / "corpus", {"device": "gpu"}),
        lambda folder: (folder / "corpus", {"index": folder / "corpus"}),
        lambda folder: (folder / "corpus", {"filter": "pca", "dim": 1000}),
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
def test_what_a_build_refuses_a_forecast_refuses_in_the_same_words(
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
        forecast(corpus, index, **options)

    assert (type(fault.value), str(fault.value)) == (type(expected.value), str(expected.value))
    assert not (tmp_path / "index").exists()


def test_standard_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RagidxError) as fault:
        forecast("-", tmp_path / "index")

    assert str(fault.value) == (
        "--plan: standard input can be read once, and a plan would leave nothing of it for the build\n"
        "  hint: write it to a file, and plan with that"
    )


# samples


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("packed", [False, True])
def test_a_large_file_is_estimated_with_a_range_that_holds_the_truth(
    packed: bool, records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    if packed:
        records = Path(shutil.move(records, tmp_path / "plain"))
        with gzip.open(tmp_path / "records.jsonl.gz", "wb") as stream:
            stream.write(records.read_bytes())
        records = tmp_path / "records.jsonl.gz"

    found = forecast(records, tmp_path / "index", **tiny)
    report = ragidx.build(records, tmp_path / "index", **tiny)

    assert found.share_read < 0.9
    assert not found.chunks.exact
    for estimate, truth in (
        (found.documents, report.n_documents),
        (found.chunks, report.n_chunks),
        (found.tokens, report.n_tokens),
    ):
        assert estimate.low * 0.9 <= truth <= estimate.high * 1.1
        assert estimate.value == pytest.approx(truth, rel=0.25)
    assert found.skipped == {}
    assert found.removed is None
    assert found.room.index_bytes == pytest.approx(report.index_bytes, rel=0.25)


@pytest.mark.usefixtures("sampled")
def test_the_same_sample_is_drawn_every_time(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    one, other = (forecast(records, tmp_path / "index", **tiny) for _ in range(2))

    assert (one.documents, one.chunks, one.tokens) == (other.documents, other.chunks, other.tokens)


@pytest.mark.usefixtures("sampled")
def test_files_of_a_kind_stand_for_their_kind(tmp_path: Path, tiny: dict[str, Any]) -> None:
    corpus = tmp_path / "many"
    corpus.mkdir()
    for number in range(80):
        (corpus / f"{number}.txt").write_text(_text(number, 100))
    (corpus / "rows.csv").write_text("id,text\n" + "".join(f'{n},"{_text(n, 8)}"\n' for n in range(500)))
    (corpus / "README").write_text(_text(1, 30))

    found = forecast(corpus, tmp_path / "index", **tiny)

    assert found.documents.value == pytest.approx(581, rel=0.2)
    assert found.n_files == 82


def _reading(path: Path) -> Reading:
    return Reading(path, path.parent / "index", build_options())


def _pieces(path: Path, budget: int) -> list[tuple[float, list[str], list[Skip]]]:
    found = []
    reading = _reading(path)
    for piece in pieces(corpus_of(reading, lambda _: None), budget, budget):
        skips: list[Skip] = []
        texts = [document.text for document in piece.documents(reading, skips.append)]
        found.append((piece.n_bytes, texts, skips))
    return found


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv"])
def test_blocks_of_a_file_are_whole_records(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 500)
    mark = "\t" if ending == ".tsv" else ","
    texts = [f"record {n}:\n{_text(n, 5 + n % 20)}" for n in range(300)]
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
    if "jsonl" not in ending:
        lines = [f"id{mark}text", *(f'{n}{mark}"{text}"' for n, text in enumerate(texts))]
    data = ("\n".join(lines) + "\n").encode()
    path = tmp_path / f"file{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)

    found = _pieces(path, 8_000)

    assert len(found) > 3
    assert {text for _, block, _ in found for text in block} <= set(texts)
    assert [skip for _, _, skips in found for skip in skips] == []
    assert sum(n_bytes for n_bytes, _, _ in found) < path.stat().st_size


def test_blocks_of_a_long_text_are_shares_of_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 500)
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{_text(n, 9)}\n" for n in range(500)))

    corpus = corpus_of(_reading(path), lambda _: None)
    found = list(pieces(corpus, 5_000, 5_000))

    assert len(found) > 1
    assert all(piece.share == piece.n_bytes / path.stat().st_size < 1 for piece in found)


def test_a_text_in_utf_16_is_read_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 500)
    path = tmp_path / "wide.txt"
    path.write_text("".join(f"{_text(n, 9)}\n" for n in range(500)), "utf-16")

    ((_, texts, skips),) = _pieces(path, 5_000)

    assert (texts[0][:40], skips) == (path.read_text("utf-16")[:40], [])


def test_blocks_of_a_beir_folder_have_its_ids_and_titles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 500)
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{n}", "title": "Mills", "text": _text(n, 20)}) for n in range(200)]
    (tmp_path / "set" / "corpus.jsonl").write_text("\n".join(lines))
    reading = _reading(tmp_path / "set")

    corpus = corpus_of(reading, lambda _: None)
    found = [d for piece in pieces(corpus, 5_000, 5_000) for d in piece.documents(reading, lambda _: None)]

    assert [source.beir for source in corpus.files] == [True]
    assert 0 < len(found) < 200
    assert all(d.id.startswith("d") and d.text.startswith("Mills ") for d in found)


def test_a_damaged_packed_file_is_left_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 500)
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(b"no gzip at all " * 1000)

    ((_, texts, skips),) = _pieces(path, 5_000)

    assert texts == []
    assert skips[0].reason.startswith("damaged gzip data: ")


def test_a_temporary_folder_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_BLOCK_BYTES", 500)
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{_text(n, 9)}\n" for n in range(500)))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RagidxError) as fault:
        list(pieces(corpus_of(_reading(path), lambda _: None), 5_000, 5_000))

    assert (fault.value.message, fault.value.hint) == (
        "cannot be written: No space left on device",
        "set TMPDIR to a folder with room: a plan reads a large corpus by parts of it",
    )


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    times=st.integers(1, 40),
    size=st.integers(1, 1000),
)
def test_equal_bytes_weigh_equally_and_the_range_holds_the_estimate(counts: list[int], times: int, size: int) -> None:
    tallies = [Tally(".md", size) for _ in counts]
    for tally, count in zip(tallies, counts, strict=True):
        tally.counts["chunks"] = count

    found = Extrapolation(tallies, {".md": size * len(counts) * times})

    estimate = found["chunks"]
    assert estimate.value == pytest.approx(sum(counts) * times, abs=1)
    assert estimate.low <= estimate.value <= estimate.high
    assert found.share == pytest.approx(1 / times)
    if times == 1 and len(counts) > 1:
        assert estimate.exact


def test_pieces_that_differ_widen_the_range() -> None:
    def estimate(*counts: int) -> Any:
        tallies = [Tally(".md", 100) for _ in counts]
        for tally, count in zip(tallies, counts, strict=True):
            tally.counts["chunks"] = count
        return Extrapolation(tallies, {".md": 4000})["chunks"]

    alike, different = estimate(10, 10, 10, 10), estimate(1, 19, 2, 18)

    assert (alike.low, alike.value, alike.high) == (400, 400, 400)
    assert different.value == 400
    assert different.low < 300
    assert different.high > 500


# index types and widths


def test_every_index_type_stands_beside_the_chosen_one(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    room = forecast(records, tmp_path / "index", index_type="hnsw", **tiny).room

    assert room.index_types[0].index_type == "hnsw"
    assert {one.index_type for one in room.index_types} == set(INDEX_TYPES)
    assert all(one.search_bytes <= one.disk_bytes <= one.build_bytes for one in room.index_types)
    assert room.index_types[0].disk_bytes == room.index_bytes


def test_narrower_vectors_take_less(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    room = forecast(records, tmp_path / "index", **tiny).room

    assert [(one.dim, one.tau, one.vector_bytes) for one in room.widths] == [
        (16, None, 32),
        (8, 4, 16),
        (4, 8, 16),  # what is narrower than 8 numbers is stored as 8
        (2, 16, 16),
    ]
    assert room.widths[0].disk_bytes - room.widths[1].disk_bytes == 16 * room.n_chunks


# the making of an approximate index


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is made of however few rows."""
    for owner in (index_types, tuning):
        monkeypatch.setattr(owner, "MIN_ROWS", 1)


def test_what_is_compared_whole_is_not_timed(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    found = forecast(records, tmp_path / "index", index_type="hnsw", **tiny)

    assert (found.index_recipe, found.index_seconds) == ("flat", 0.0)
    assert {one.index_seconds for one in found.room.index_types} == {None}


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(("index_type", "recipe"), [("hnsw", "HNSW16"), ("rabitq", "RR,IVF32,RaBitQ"), ("SQ8", "SQ8")])
def test_making_an_index_is_part_of_the_time(
    index_type: str, recipe: str, records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    found = forecast(records, tmp_path / "index", index_type=index_type, **tiny)

    assert (found.index_recipe, found.target_recall) == (recipe, 0.95)
    assert 0 < found.index_seconds < found.seconds - found.encode_seconds
    assert found.seconds_high - found.seconds_low >= (2 - 1 / 2) * found.index_seconds * 0.99
    chosen = found.room.index_types[0]
    assert (chosen.index_type, chosen.recipe, chosen.exact) == (index_type, recipe, False)
    assert chosen.index_seconds == pytest.approx(found.index_seconds)


@pytest.mark.usefixtures("any_size")
def test_other_index_types_are_timed_while_that_is_quick(
    records: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_module, "_TIMING_S", 1000.0)
    every = forecast(records, tmp_path / "index", index_type="hnsw", **tiny).room.index_types
    monkeypatch.setattr(room_module, "_TIMING_S", -1.0)
    none = forecast(records, tmp_path / "index", index_type="hnsw", **tiny).room.index_types

    assert all(one.index_seconds is not None and (one.index_seconds > 0) != one.exact for one in every)
    assert {one.index_seconds for one in none} == {None}


@pytest.mark.usefixtures("any_size")
def test_an_index_of_known_vectors_alone_is_timed_as_well(
    records: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ragidx.build(records, tmp_path / "index", index_type="sq8", target_recall=0.5, **tiny)
    records.write_text(records.read_text().replace('"id": "r', '"id": "other'))

    found = forecast(records, tmp_path / "index")

    assert (found.to_encode.value, found.speed, found.index_recipe) == (0, None, "SQ8")
    assert found.target_recall == 0.5
    assert found.index_seconds > 0


# --max-memory


def _memory_of(name: str, rows: int, dim: int) -> int:
    return footprint_of(candidates(name, rows, dim)[0], rows, dim).memory_bytes


@pytest.mark.usefixtures("any_size")
def test_what_does_not_fit_into_the_memory_is_marked_and_the_next_is_planned(
    records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    rows = forecast(records, tmp_path / "index", **tiny).room.n_chunks
    limit = _memory_of("sq8", rows, 16)

    room = forecast(records, tmp_path / "index", max_memory=limit, index_type="sq8", **tiny).room

    assert room.max_memory == limit
    assert {one.index_type: one.fits for one in room.index_types} == {
        name: min(footprint_of(one, rows, 16).memory_bytes for one in candidates(name, rows, 16)) <= limit
        for name in INDEX_TYPES
    }
    assert not next(one.fits for one in room.index_types if one.index_type == "flat")
    assert all(one.search_bytes <= limit for one in room.index_types if one.fits)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("index_type", ["flat", "hnsw", "auto"])
def test_memory_that_nothing_fits_into_is_refused_as_the_build_refuses_it(
    index_type: str, records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    options = tiny | {"index_type": index_type, "max_memory": 500}

    with pytest.raises(SpecError) as fault:
        forecast(records, tmp_path / "index", **options)
    with pytest.raises(SpecError) as expected:
        ragidx.build(records, tmp_path / "index", **options)

    assert str(fault.value) == str(expected.value)
    assert "more than --max-memory leaves" in str(fault.value)


@pytest.mark.usefixtures("any_size")
def test_segments_that_stay_leave_less_memory(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(records, tmp_path / "index", index_type="sq8", target_recall=0.5, **tiny)
    held = _memory_of("sq8", report.n_chunks, 16)
    more = records.with_name("more")
    more.mkdir()
    shutil.copy(records, more / "records.jsonl")
    (more / "new.jsonl").write_text("".join(json.dumps({"id": f"n{n}", "text": _text(n, 9)}) + "\n" for n in range(90)))

    forecast(more, tmp_path / "index", max_memory=held + _memory_of("sq8", 1000, 16))
    with pytest.raises(SpecError, match="more than --max-memory leaves"):
        forecast(more, tmp_path / "index", max_memory=held + 100)
