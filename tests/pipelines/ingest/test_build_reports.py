"""What a build leaves out, cuts or refuses, and what its report and its progress say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, RagidxError
from ragidx.indexer.store import Store
from ragidx.pipelines.ingest.report import Progress

from ...raising import message_of


def test_an_empty_file_is_no_loss(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "__init__.py").touch()
    (tmp_path / "corpus" / "a.txt").write_text("Bees.")

    assert ragidx.build(tmp_path / "corpus", tmp_path / "index", strict=True).report.skipped == {"empty file": 1}


@pytest.mark.slow
def test_strict_ends_at_the_first_thing_left_out_and_commits_nothing(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")
    (small_corpus / "broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')

    with pytest.raises(RagidxError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", strict=True)

    assert fault.value.exit_code == 1
    assert fault.value.where == "broken.jsonl:2"
    assert Store.open(tmp_path / "index").manifest.generation == 1


@pytest.mark.slow
def test_whole_documents_longer_than_the_model_are_cut_and_counted(tmp_path: Path, small_corpus: Path) -> None:
    (small_corpus / "long.txt").write_text("word " * 3000)

    report = ragidx.build(
        small_corpus, tmp_path / "index", model="mini-decoder", method="echo", chunks=ragidx.ChunkSpec(size=None)
    ).report

    assert report.n_truncated == 1
    assert report.n_chunks == 7


@pytest.mark.slow
def test_an_emptied_corpus_does_not_empty_the_index(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")
    for path in small_corpus.iterdir():
        path.unlink()

    assert message_of(CorpusError, lambda: ragidx.build(small_corpus, tmp_path / "index")) == (
        f"{small_corpus}: the corpus is empty: there is no file in it\n"
        "  hint: name a folder with documents; the index is unchanged, to empty it use `ragidx delete`"
    )
    assert Store.open(tmp_path / "index").manifest.n_chunks == 6


def test_the_log_names_models_segments_and_commits(
    small_corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = tmp_path / "index"
    with caplog.at_level("DEBUG", "ragidx"):
        ragidx.build(small_corpus, index)

    model, segment, commit = (record.getMessage() for record in caplog.records)
    assert model == "loading the model mini, method classical, device auto, dtype auto"
    assert segment.startswith(f"{index}/")
    assert segment.endswith(": a segment of 6 rows is written")
    assert commit == f"{index}: generation 1 committed, 6 chunks in 1 segments"


@pytest.mark.slow
def test_progress_grows_and_ends_with_everything(small_corpus: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, bool]] = []

    def note(progress: Progress) -> None:
        seen.append((progress.n_bytes, progress.n_encoded, progress.last))

    ragidx.build(small_corpus, tmp_path / "index", on_progress=note)

    total = sum(path.stat().st_size for path in small_corpus.iterdir())
    assert seen[-1] == (total, 6, True)
    assert seen == sorted(seen)


@pytest.mark.slow
def test_a_text_that_the_model_makes_nothing_of_is_in_no_count_of_chunks(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("The mill by the river grinds flour.", "utf-8")
    for name in ("b.txt", "d.txt"):
        (docs / name).write_text("\u200b\u200b", "utf-8")

    first = ragidx.build(docs, tmp_path / "index").report
    (docs / "c.txt").write_text("Cats sleep all day.", "utf-8")
    second = ragidx.build(docs, tmp_path / "index").report

    assert (first.n_chunks, first.n_encoded, first.n_chunks_reused, first.n_chunks_unchanged) == (1, 2, 0, 0)
    assert first.skipped_places == {
        "the model gives no vector for the text": [f"{name}.txt:0-2: it is zero" for name in "bd"]
    }
    assert (second.n_chunks, second.n_chunks_reused, second.n_chunks_unchanged) == (2, 0, 1)


@pytest.mark.slow
def test_the_share_of_one_large_file_grows_with_what_of_it_is_encoded(tmp_path: Path) -> None:
    lines = (json.dumps({"text": " ".join(f"w{n * 31 % 997 + m}" for m in range(40))}) for n in range(12_000))
    (tmp_path / "one.jsonl").write_text("\n".join(lines))
    shares: list[tuple[float, float]] = []

    def seen(progress: Progress) -> None:
        if progress.share is not None and not progress.deriving:
            shares.append((progress.share, progress.n_chunks / 12_000))

    report = ragidx.build(tmp_path / "one.jsonl", tmp_path / "index", on_progress=seen).report

    assert report.n_chunks == 12_000
    assert shares[0] == (pytest.approx(0, abs=1e-3), 0)
    assert shares[-1] == (1, 1)
    assert max(abs(share - done) for share, done in shares) < 0.1  # it was 1 at the end of each window
