"""Builds with every filter; those that are fitted on the corpus are fitted once, stored, and used ever after."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, ModelError, RagidxError, SpecError
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.specs import FILTERS, FilterSpec, IndexSpec
from ragidx.indexer.store.store import Store
from ragidx.pipelines.cli import describe as words
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.build.resolve import FILTER_FILE
from ragidx.pipelines.build.report import Progress

Run = Callable[..., tuple[int, str, str]]
FITTED = [name for name, kind in FILTERS.items() if kind.calibrated]
WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "type", "bread", "music", "bridge", "cure", "market"]

pytestmark = pytest.mark.slow


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sixty short records, each of them a chunk."""
    rows = [
        {"id": f"r{n}", "text": f"The {WORDS[n % 12]} number {n} stands by the {WORDS[n * 7 % 11]}, {n * n}."}
        for n in range(60)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def tiny(tiny_model: Callable[..., Path]) -> dict[str, Any]:
    """Options: a random model, 32 wide, that encodes in float32."""
    return {"model": str(tiny_model("llama")), "method": "classical", "dtype": "float32", "device": "cpu"}


def _vectors(index: Path) -> dict[str, np.ndarray]:
    store, found = Store.open(index), {}
    for segment in store.segments:
        ids = segment.columns(["chunk_id"]).column(0).to_pylist()
        found |= dict(zip(ids, segment.vectors(np.arange(len(ids))), strict=True))
    return found


def _filter(index: Path) -> Filter:
    return Filter.from_bytes(Store.open(index).blob(FILTER_FILE))


def _journals(index: Path) -> list[Path]:
    return sorted((index / "journal").glob("*"))


# every filter


@pytest.mark.parametrize("name", [name for name in FILTERS if name != "none"])
def test_an_index_of_any_filter_answers(name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter=name, dim=12)

    text = json.loads(corpus.read_text().splitlines()[7])["text"]
    hit = ragidx.Retriever.open(tmp_path / "index").search(text, k=1)[0]
    assert (report.n_chunks, report.n_encoded, report.n_reused, report.dim) == (60, 60, 0, 12)
    assert report.n_fitted == (60 if name in FITTED else 0)
    assert Store.open(tmp_path / "index").manifest.dim == 12
    assert (hit.doc_id, hit.text) == ("corpus.jsonl#r7", text)
    assert hit.score == pytest.approx(1, abs=1e-3)
    assert FilterSpec.parse(report.filter) == FilterSpec(name=name, dim=12)


def test_no_filter_stores_no_matrix(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter="none")

    assert (report.dim, report.n_fitted) == (32, 0)
    assert FILTER_FILE not in Store.open(tmp_path / "index").manifest.files


@pytest.mark.parametrize("name", ["truncation", "bulk", "optimal", "whitening", "pca"])
def test_what_is_stored_is_the_embedding_through_the_stored_filter(
    name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=name, dim=12)

    stored, retriever = _vectors(tmp_path / "index"), ragidx.Retriever.open(tmp_path / "index")
    texts = {row["id"]: row["text"] for row in map(json.loads, corpus.read_text().splitlines())}
    raw = retriever.encoder.encode_document([texts[key.partition("#")[2].partition(":")[0]] for key in stored])
    vectors = _filter(tmp_path / "index")(raw)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(list(stored.values())), vectors, atol=2e-3)


def test_the_fit_is_that_of_the_embeddings_of_the_corpus(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter="whitening", dim=20)

    encoder = ragidx.Retriever.open(tmp_path / "index").encoder
    raw = encoder.encode_document([json.loads(line)["text"] for line in corpus.read_text().splitlines()])
    whitened = _filter(tmp_path / "index")(raw)
    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(whitened.T, bias=True), np.eye(20), atol=1e-2)


# the sample


def test_the_fit_does_not_depend_on_the_order_of_the_corpus(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    options = {**tiny, "filter": "pca", "dim": 8, "filter_sample": 25}
    first = ragidx.build(corpus, tmp_path / "one", **options)
    corpus.write_text("".join(sorted(corpus.read_text().splitlines(keepends=True), key=lambda line: line[::-1])))

    second = ragidx.build(corpus, tmp_path / "other", **options)

    assert (first.n_fitted, second.n_fitted) == (25, 25)
    assert _filter(tmp_path / "one").to_bytes() == _filter(tmp_path / "other").to_bytes()


@pytest.mark.parametrize("change", [{"filter_seed": 1}, {"filter_sample": 26}])
def test_another_sample_is_another_fit(
    change: dict[str, Any], corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    options = {**tiny, "filter": "pca", "dim": 8, "filter_sample": 25}
    ragidx.build(corpus, tmp_path / "one", **options)

    ragidx.build(corpus, tmp_path / "other", **options | change)

    assert _filter(tmp_path / "one").to_bytes() != _filter(tmp_path / "other").to_bytes()


def test_the_sample_holds_chunks_as_the_build_cuts_them(tmp_path: Path, tiny: dict[str, Any]) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for word in WORDS[:4]:
        (folder / f"{word}.txt").write_text("\n\n".join(f"Paragraph {n} of the {word}, {'so ' * n}." for n in range(8)))

    cut = ragidx.build(folder, tmp_path / "cut", **tiny, filter="pca", dim=3, chunk_size=16)
    whole = ragidx.build(folder, tmp_path / "whole", **tiny, filter="pca", dim=3, chunk_size="none")

    assert cut.n_fitted == cut.n_chunks > 20
    assert (whole.n_fitted, whole.n_chunks) == (4, 4)


def test_equal_texts_count_in_the_sample_and_are_encoded_once(tmp_path: Path, tiny: dict[str, Any]) -> None:
    rows = [{"id": n, "text": f"Said {n % 5} times."} for n in range(20)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    report = ragidx.build(tmp_path / "corpus.jsonl", tmp_path / "index", **tiny, filter="pca", dim=3)

    assert (report.n_fitted, report.n_chunks, report.n_encoded, report.n_reused) == (20, 20, 5, 15)


# later builds


@pytest.mark.parametrize("name", FITTED)
def test_later_builds_go_on_with_the_first_fit(name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=name, dim=9)
    before, old = _filter(tmp_path / "index").to_bytes(), _vectors(tmp_path / "index")
    with corpus.open("a") as stream:
        stream.writelines(json.dumps({"id": f"new{n}", "text": f"Quite another text {n}"}) + "\n" for n in range(30))

    report = ragidx.build(corpus, tmp_path / "index", device="cpu", dtype="float32")

    assert (report.n_added, report.n_encoded, report.n_fitted, report.dim) == (30, 30, 0, 9)
    assert _filter(tmp_path / "index").to_bytes() == before
    assert all(np.array_equal(vector, old[key]) for key, vector in _vectors(tmp_path / "index").items() if key in old)


def test_the_same_corpus_again_commits_nothing(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter="whitening", dim=9)

    again = ragidx.build(corpus, tmp_path / "index", filter="whitening", dim=9)

    assert (again.committed, again.n_fitted, again.n_unchanged) == (False, 0, 60)


def test_a_rebuild_fits_anew(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter="pca", dim=9)
    before = _filter(tmp_path / "index").to_bytes()
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:40]))

    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter="pca", dim=9, rebuild=True)

    assert (report.n_fitted, report.n_chunks) == (40, 40)
    assert _filter(tmp_path / "index").to_bytes() != before


def test_another_sample_for_an_index_is_an_error(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter="pca", dim=9)

    with pytest.raises(SpecError, match=r"filter\.seed is 0 in the index, 5 now"):
        ragidx.build(corpus, tmp_path / "index", filter="pca", dim=9, filter_seed=5)


# a build that is killed


class KilledError(Exception):
    """Ends a build in the middle."""


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`kill(corpus, index, options, at=45)`: a build that ends when so many chunks are done; batches are small."""
    monkeypatch.setattr("ragidx.pipelines.build.report._TELL_EVERY_S", 0.0)
    monkeypatch.setattr("ragidx.indexer.encoders.batching.CPU_BUDGET", 256)

    def run(corpus: Path, index: Path, options: dict[str, Any], at: int) -> None:
        def end(progress: Progress) -> None:
            if progress.n_chunks >= at:
                raise KilledError

        with pytest.raises(KilledError):
            ragidx.build(corpus, index, **options, on_progress=end)

    return run


def test_a_build_that_was_killed_fits_the_same_filter_and_goes_on(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], kill: Callable[..., None]
) -> None:
    options = {**tiny, "filter": "whitening", "dim": 9, "filter_sample": 20}
    kill(corpus, tmp_path / "index", options, at=45)
    assert len(_journals(tmp_path / "index")) == 1

    report = ragidx.build(corpus, tmp_path / "index", **options)

    assert report.n_reused >= 25  # of those that are not in the sample
    ragidx.build(corpus, tmp_path / "whole", **options)
    ours, theirs = _vectors(tmp_path / "index"), _vectors(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    for key, vector in ours.items():
        np.testing.assert_allclose(vector, theirs[key], atol=2e-3)


def test_vectors_of_another_fit_are_never_taken_from_the_journal(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], kill: Callable[..., None]
) -> None:
    options = {**tiny, "filter": "whitening", "dim": 9}
    kill(corpus, tmp_path / "index", options, at=45)
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:50]))

    report = ragidx.build(corpus, tmp_path / "index", **options)

    assert (report.n_reused, report.n_encoded) == (0, 50)
    ragidx.build(corpus, tmp_path / "whole", **options)
    for key, vector in _vectors(tmp_path / "index").items():
        np.testing.assert_allclose(vector, _vectors(tmp_path / "whole")[key], atol=2e-3)


def test_the_fingerprint_holds_the_fit_of_fitted_filters_alone(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    for name in ("pca", "bulk"):
        ragidx.build(corpus, tmp_path / name, **tiny, filter=name, dim=9)

    for name in ("pca", "bulk"):
        manifest = Store.open(tmp_path / name).manifest
        of_the_spec = IndexSpec.from_json(dict(manifest.spec)).fingerprint()
        content = hashlib.sha256(Store.open(tmp_path / name).blob(FILTER_FILE)).hexdigest()
        with_fit = hashlib.sha256(f"{of_the_spec}\0{content}".encode()).hexdigest()
        assert manifest.fingerprint == (with_fit if name == "pca" else of_the_spec)


def test_the_fields_that_came_later_change_no_fingerprint_of_an_older_index() -> None:
    older = {"name": "embedfilter", "tau": 2, "dim": None, "offset": None}
    canonical = json.dumps(older, sort_keys=True, separators=(",", ":"))

    assert FilterSpec.from_json(older) == FilterSpec(tau=2)
    assert FilterSpec(tau=2).fingerprint() == hashlib.sha256(canonical.encode()).hexdigest()


# what cannot be


@pytest.mark.parametrize("name", FITTED)
def test_standard_input_cannot_be_read_twice(
    name: str, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))

    with pytest.raises(SpecError) as fault:
        ragidx.build("-", tmp_path / "index", **tiny, filter=name)

    assert str(fault.value) == (
        f"--filter: filter '{name}' is fitted on the corpus first, and standard input cannot be read twice\n"
        "  hint: write it to a file and build that, or take another filter"
    )
    assert not (tmp_path / "index").exists()


def test_standard_input_goes_into_an_index_whose_filter_is_fitted(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter="pca", dim=9)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))

    assert ragidx.build("-", tmp_path / "index").n_added == 1


@pytest.mark.parametrize("name", ["whitening", "pca"])
def test_a_corpus_that_is_too_small_for_the_width_is_refused(
    name: str, small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    with pytest.raises(SpecError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", **tiny, filter=name)

    assert str(fault.value) == (
        f"--filter: filter '{name}' is to keep 16 directions, and the 6 chunks that it is fitted on vary in 5\n"
        "  hint: give a smaller --dim, a larger --filter-sample or a larger corpus, or take another filter"
    )
    assert not (tmp_path / "index").exists()
    assert ragidx.build(small_corpus, tmp_path / "index", **tiny, filter=name, dim=5).dim == 5


@pytest.mark.parametrize("name", FITTED)
def test_a_width_out_of_range_is_told_before_the_corpus_is_read(
    name: str, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    (tmp_path / "corpus").mkdir()

    with pytest.raises(SpecError, match="dim=33 is wider than the model, which has 32"):
        ragidx.build(tmp_path / "corpus", tmp_path / "index", **tiny, filter=name, dim=33)


def test_an_empty_corpus_is_told_as_ever(tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "corpus").mkdir()
    with pytest.raises(CorpusError, match="the corpus is empty: there is no file in it"):
        ragidx.build(tmp_path / "corpus", tmp_path / "index", **tiny, filter="pca")

    (tmp_path / "corpus" / "blob.bin").write_bytes(b"\0\1\2")
    with pytest.raises(CorpusError, match=r"the corpus has no readable document \(1 x binary file"):
        ragidx.build(tmp_path / "corpus", tmp_path / "index", **tiny, filter="pca")


def test_what_is_left_out_is_counted_once(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (small_corpus / "blob.bin").write_bytes(b"\0\1\2" * 100)

    report = ragidx.build(small_corpus, tmp_path / "index", **tiny, filter="pca", dim=4)

    assert report.skipped == {"binary file of unknown format '.bin'": 1}


def test_strict_ends_a_fit_as_it_ends_a_build(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (small_corpus / "broken.jsonl").write_text('{"text": \n')

    with pytest.raises(RagidxError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", **tiny, filter="pca", dim=4, strict=True)

    assert (fault.value.exit_code, fault.value.where) == (1, "broken.jsonl:1")
    assert not (tmp_path / "index").exists()


def test_a_folder_that_is_no_index_is_refused_before_anything_is_fitted(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "notes.txt").write_text("mine")
    seen: list[str] = []

    with pytest.raises(RagidxError):
        ragidx.build(
            small_corpus,
            tmp_path / "papers",
            **tiny,
            filter="pca",
            dim=4,
            on_progress=lambda progress: seen.append(progress.stage),
        )

    assert "fitting filter pca" not in seen


# models without a head


@pytest.mark.parametrize("name", ["truncation", "random", "whitening", "pca"])
def test_a_sentence_transformers_model_takes_filters_that_read_no_head(
    name: str, corpus: Path, tmp_path: Path, tiny_sentence_transformer: Path
) -> None:
    model = str(tiny_sentence_transformer)

    report = ragidx.build(corpus, tmp_path / "index", model=model, filter=name, dim=8)

    assert (report.method, report.dim) == ("sentence-transformers", 8)
    assert len(ragidx.Retriever.open(tmp_path / "index").search("mill", k=3)) == 3


@pytest.mark.parametrize("name", ["embedfilter", "bulk", "optimal"])
def test_a_sentence_transformers_model_refuses_the_others(
    name: str, corpus: Path, tmp_path: Path, tiny_sentence_transformer: Path
) -> None:
    with pytest.raises(ModelError) as fault:
        ragidx.build(corpus, tmp_path / "index", model=str(tiny_sentence_transformer), filter=name)

    assert fault.value.message.endswith("has no unembedding matrix, so it has no spectrum")
    assert fault.value.hint == "use --filter none, or one that reads no head: truncation, random, whitening, pca"


# the command line


@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--filter truncation", "truncation, 16 dimensions, tau 2, the first coordinates"),
        (
            "--filter random-directions --dim 7 --filter-seed 3",
            "random-directions, 7 dimensions, random directions of the spectrum (seed 3)",
        ),
        ("--filter dominant", "dominant, 16 dimensions, tau 2, the end of the spectrum, its smallest singular values"),
        (
            "--filter optimal --filter-topk 20 --tau 4",
            "optimal, 8 dimensions, tau 4, the directions that raise frequent tokens least (seed 0), fitted on 6 chunks"
            " of the corpus",
        ),
        (
            "--filter whitening --dim 4 --filter-sample 5",
            "whitening, 4 dimensions, principal components of the corpus, each scaled to variance 1 (seed 0), fitted on"
            " 5 chunks of the corpus",
        ),
        ("--dim 1", "EmbedFilter, 1 dimension, the middle of the spectrum"),
        ("--filter none", "none: 32 raw coordinates"),
    ],
)
def test_a_build_tells_its_filter(options: str, line: str, run: Run) -> None:
    status, out, err = run("build", "corpus", "--model", "tiny", "--method", "classical", *options.split())

    assert (status, err) == (0, "")
    assert out.splitlines()[2] == f"filter     {line}"


@pytest.mark.usefixtures("small_corpus", "model")
def test_an_index_tells_its_filter(run: Run) -> None:
    run("build", "corpus", "--model", "tiny", "--filter", "pca", "--dim", "4")

    _, out, _ = run("info")

    assert "filter       pca, 4 dimensions, principal components of the corpus (seed 0)" in out.splitlines()


@pytest.mark.usefixtures("small_corpus", "model")
def test_progress_names_the_fit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.build.report._TELL_EVERY_S", 0.0)

    status, out, err = run(
        "build", "corpus", "--model", "tiny", "--method", "classical", "--filter", "pca", "--dim", "4", "--json"
    )

    steps = [json.loads(line)["progress"] for line in err.splitlines()]
    stages = [step["stage"] for step in steps]
    assert status == 0
    assert json.loads(out)["n_fitted"] == 6
    assert sorted(set(stages)) == ["fitting filter pca", "indexing"]
    assert stages == sorted(stages)
    for name in ("n_bytes", "n_documents", "n_cut", "n_chunks", "n_encoded", "n_tokens", "seconds"):
        numbers = [step[name] for step in steps]
        assert numbers == sorted(numbers)
    assert (steps[-1]["n_cut"], steps[-1]["n_chunks"], steps[-1]["n_encoded"]) == (6, 6, 6)
    assert [step["n_sample"] for step in (steps[0], steps[-1])] == [0, 6]


def test_the_share_of_a_fit_is_that_of_the_sample(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    shares: dict[bool, list[float | None]] = {True: [], False: []}

    ragidx.build(
        corpus,
        tmp_path / "index",
        **tiny,
        filter="pca",
        dim=4,
        filter_sample=20,
        on_progress=lambda progress: shares[progress.fitting].append(progress.share),
    )

    known = [share for share in shares[True] if share is not None]
    assert shares[True][0] is None  # the sample is not drawn yet
    assert known[0] == 0
    assert known == sorted(known)
    assert shares[False][0] == 0  # of the corpus nothing is stored when the fit ends
    assert shares[False][-1] == 1


def test_the_line_of_a_fit_counts_the_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 0.0)
    progress = Progress(stage="fitting filter pca", total_bytes=100)
    with ProgressLine(as_json=False) as line:
        line.callback(progress)
        progress.n_sample = 4000
        line.callback(progress)
        progress.n_encoded, progress.n_tokens, progress.seconds = 1000, 50_000, 20.0
        line.callback(progress)
        fitting = line.fitting
        progress.stage = "indexing"

    assert (fitting, line.fitting) == (True, False)
    assert capsys.readouterr().err.splitlines() == [
        "fitting filter pca: drawing a sample, ETA -",
        "fitting filter pca: 0 %, 0 of 4,000 chunks, ETA -",
        "fitting filter pca: 25 %, 1,000 of 4,000 chunks, 50 chunks/s, 2,500 tokens/s, ETA 1:00",
    ]


@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("fit_filter.fit_filter", "the filter was not fitted yet, the same command begins anew"),
        ("build._Build._flush", "what was encoded is kept, the same command goes on"),
    ],
)
def test_an_interrupted_build_says_what_is_kept(
    where: str, told: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    options = ("--model", "tiny", "--method", "classical", "--filter", "pca", "--dim", "4")
    with monkeypatch.context() as patch:
        patch.setattr(f"ragidx.pipelines.build.{where}", interrupted)
        done = run("build", "corpus", *options)

    assert done == (130, "", f"Interrupted: nothing was committed; {told}.\n")
    assert run("build", "corpus", *options).status == 0


def test_the_help_names_every_filter(run: Run) -> None:
    _, out, _ = run("build", "--help")

    told = "".join(out.split())
    assert all(name in told for name in FILTERS)


def test_every_filter_has_words() -> None:
    for name in FILTERS:
        assert words.filter_(FilterSpec(name=name), 5).lower().startswith(name)
