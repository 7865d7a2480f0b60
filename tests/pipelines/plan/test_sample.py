"""Samples: parts are whole records from all over the corpus, and estimates have a range that holds the truth."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.corpora.readers.registry import read
from ragidx.corpora.records import Document, Skip
from ragidx.indexer.encoders.load import load_encoder
from ragidx.pipelines.ingest.corpus import Reading
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.plan import sample
from ragidx.pipelines.plan.plan import forecast
from ragidx.pipelines.plan.sample import Estimate, Estimates, Part, parts

from .conftest import text_of


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.usefixtures("sampled")
def test_the_same_sample_is_drawn_every_time(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    one, other = (forecast(records, tmp_path / "index", **tiny) for _ in range(2))

    assert (one.documents, one.chunks, one.tokens) == (other.documents, other.chunks, other.tokens)


@pytest.mark.slow
@pytest.mark.usefixtures("sampled")
def test_files_of_a_kind_stand_for_their_kind(tmp_path: Path, tiny: dict[str, Any]) -> None:
    corpus = tmp_path / "many"
    corpus.mkdir()
    for number in range(80):
        (corpus / f"{number}.txt").write_text(text_of(number, 100))
    (corpus / "rows.csv").write_text("id,text\n" + "".join(f'{n},"{text_of(n, 8)}"\n' for n in range(500)))
    (corpus / "README").write_text(text_of(1, 30))

    found = forecast(corpus, tmp_path / "index", **tiny)

    assert found.documents.value == pytest.approx(581, rel=0.2)
    assert found.n_files == 82


@pytest.mark.slow
@pytest.mark.usefixtures("sampled")
def test_long_texts_that_are_not_cut_are_one_chunk_each(tmp_path: Path, tiny: dict[str, Any]) -> None:
    corpus = tmp_path / "many"
    corpus.mkdir()
    for number in range(12):
        (corpus / f"{number}.txt").write_text("".join(f"{text_of(number + n, 9)}\n" for n in range(200)))
    options = tiny | {"chunk_size": "none"}

    found = forecast(corpus, tmp_path / "index", **options)
    report = ragidx.build(corpus, tmp_path / "index", **options)

    assert found.share_read < 0.9
    assert found.chunks.value == pytest.approx(report.n_chunks, abs=1)
    assert found.truncated.value == pytest.approx(report.n_truncated, abs=1)
    assert found.tokens.value == pytest.approx(report.n_tokens, rel=0.1)


# what is read


def _sample(path: Path) -> list[tuple[Part, list[Document], list[Skip]]]:
    """The parts of a corpus, with the documents and skips of each."""
    found = []
    reading = Reading(path, path.parent / "index", build_options())
    for part in parts(list(reading.sources(lambda _: None))):
        assert part.source is not None
        skips: list[Skip] = []
        found.append((part, list(read(part.source, reading.read_options, on_skip=skips.append)), skips))
    return found


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv"])
def test_blocks_of_a_file_are_whole_records(ending: str, tmp_path: Path) -> None:
    mark = "\t" if ending == ".tsv" else ","
    texts = [f"record {n}:\n{text_of(n, 5 + n % 20)}" for n in range(600)]
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
    if "jsonl" not in ending:
        lines = [f"id{mark}text", *(f'{n}{mark}"{text}"' for n, text in enumerate(texts))]
    data = ("\n".join(lines) + "\n").encode()
    path = tmp_path / f"file{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)

    found = _sample(path)

    assert len(found) > 3
    assert {document.text for _, block, _ in found for document in block} <= set(texts)
    assert [skip for _, _, skips in found for skip in skips] == []
    assert sum(part.n_bytes for part, _, _ in found) < path.stat().st_size == found[0][0].total_bytes


@pytest.mark.usefixtures("small_blocks")
def test_each_line_is_in_one_of_all_blocks_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "SAMPLE_BYTES", 1 << 20)
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "text": text_of(n, n % 90)}) + "\n" for n in range(200)))

    found = _sample(path)

    assert len(found) > 50
    assert [document.id for _, block, _ in found for document in block] == [f"records.jsonl#{n}" for n in range(200)]
    assert sum(part.n_bytes for part, _, _ in found) == path.stat().st_size


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_a_long_text_are_shares_of_one_document(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{text_of(n, 9)}\n" for n in range(500)))

    found = [part for part, _, _ in _sample(path)]

    assert len(found) > 1
    assert all(part.share == part.n_bytes / path.stat().st_size < 1 for part in found)


@pytest.mark.usefixtures("small_blocks")
def test_of_a_text_in_utf_16_the_beginning_is_read_for_its_share(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_text("".join(f"{text_of(n, 9)} \N{HONEYBEE}\n" for n in range(500)), "utf-16")

    ((part, (document,), skips),) = _sample(path)

    assert (path.read_text("utf-16").startswith(document.text), skips) == (True, [])
    assert part.share == part.n_bytes / path.stat().st_size
    assert len(document.text) / len(path.read_text("utf-16")) == pytest.approx(part.share, abs=0.02)
    assert part.n_bytes <= 10_000


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_a_beir_folder_have_its_ids_and_titles(tmp_path: Path) -> None:
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{n}", "title": "Mills", "text": text_of(n, 20)}) for n in range(200)]
    (tmp_path / "set" / "corpus.jsonl").write_text("\n".join(lines))

    found = [document for _, block, _ in _sample(tmp_path / "set") for document in block]

    assert 0 < len(found) < 200
    assert all(d.id.startswith("d") and d.text.startswith("Mills ") for d in found)


@pytest.mark.usefixtures("small_blocks")
def test_a_damaged_packed_file_is_left_to_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(b"no gzip at all " * 1000)

    ((_, texts, skips),) = _sample(path)

    assert texts == []
    assert skips[0].reason.startswith("damaged gzip data: ")


@pytest.mark.usefixtures("small_blocks")
def test_a_temporary_folder_that_is_full_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{text_of(n, 9)}\n" for n in range(500)))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RagidxError) as fault:
        _sample(path)

    assert (fault.value.message, fault.value.hint) == (
        "cannot be written: No space left on device",
        "set TMPDIR to a folder with room: a plan reads a large corpus by parts of it",
    )


# what it says of the corpus


def _estimate(counts: Sequence[float], size: float, total: int) -> Estimate:
    drawn = [Part(".md", total, size) for _ in counts]
    for part, count in zip(drawn, counts, strict=True):
        part.counts["chunks"] = count
    return Estimates(drawn)["chunks"]


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    times=st.integers(1, 40),
    size=st.integers(1, 1000),
)
def test_equal_bytes_weigh_equally_and_the_range_holds_the_estimate(counts: list[int], times: int, size: int) -> None:
    estimate = _estimate(counts, size, size * len(counts) * times)

    assert estimate.value == pytest.approx(sum(counts) * times, abs=1)
    assert estimate.low <= estimate.value <= estimate.high
    if times == 1:
        assert estimate.exact


def test_the_share_is_of_all_bytes_whatever_their_ending() -> None:
    assert Estimates([Part(".md", 400, 100), Part(".md", 400, 100), Part(".txt", 600, 50)]).share == 0.25


def test_parts_that_differ_widen_the_range() -> None:
    alike, different = _estimate([10, 10, 10, 10], 100, 4000), _estimate([1, 19, 2, 18], 100, 4000)

    assert (alike.low, alike.value, alike.high) == (400, 400, 400)
    assert different.value == 400
    assert different.low < 300
    assert different.high > 500


def test_a_single_part_of_many_may_be_half_off() -> None:
    assert _estimate([10], 100, 1000) == Estimate(100, 50, 150)


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [8, 64])
def test_the_range_holds_the_truth_nine_times_of_ten(n_parts: int) -> None:
    drawn = np.random.default_rng(0)
    held = []
    for _ in range(400):
        sizes = drawn.lognormal(9, 0.5, 500)
        chunks = np.round(sizes / drawn.lognormal(5, 0.3, 500))
        sampled = [Part(".md", round(sizes.sum()), sizes[n]) for n in drawn.choice(500, n_parts, replace=False)]
        for part in sampled:
            part.counts["chunks"] = chunks[np.flatnonzero(sizes == part.n_bytes)[0]]
        found = Estimates(sampled)["chunks"]
        held.append(found.low <= chunks.sum() <= found.high)

    assert np.mean(held) == pytest.approx(0.9, abs=0.04)


@pytest.mark.slow
@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("limit", [1_000_000, 3_000, 128])
def test_the_tokens_of_a_long_text_that_is_not_cut_are_all_that_the_model_reads(
    limit: int, tmp_path: Path, tiny: dict[str, Any], tiny_model: Callable[..., Path]
) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{text_of(n, 9)}\n" for n in range(2_000)))
    model = tiny_model("llama", max_position_embeddings=limit)
    options = tiny | {"model": str(model), "chunk_size": "none", "tau": None, "filter": "none"}

    found = forecast(path, tmp_path / "index", **options)

    encoder = load_encoder(str(model), method="classical", device="cpu", dtype="float32")
    (row,) = encoder.rendered([path.read_text()], None)
    assert found.share_read < 1
    assert found.tokens.value == pytest.approx(row.n_tokens, rel=0.1)
    assert found.truncated.value == row.truncated
