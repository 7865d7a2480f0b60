"""Questions in words for vectors that were made elsewhere: the model that encodes them, and whether it made those."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, ModelError, SpecError
from ragidx.corpora.vectors import batch as vector_batch
from ragidx.indexer.digests import digest
from ragidx.indexer.store.store import Store
from ragidx.pipelines.maintain.rewrite import reindex, shrink
from ragidx.pipelines.vectors.build import build_vectors
from ragidx.pipelines.vectors.query_model import N_TEXTS, TextSample

pytestmark = pytest.mark.slow  # a model is loaded, again and again

INDEX = "ragidx-index"
TEXTS = [
    "The lease of the house by the lake was signed by Ada Lovelace.",
    "The old mill stands where the river reaches the sea.",
    "The tower in Tokyo is painted orange and white.",
    "Bees dance to tell where the flowers are.",
    "Neptune was found with a pencil before a telescope.",
    "Movable metal type was cast in Korea before Gutenberg.",
]
WITHOUT = "or leave --model out: then the index is asked with vectors"
HINT = "leave the option out to go on with the index, or replace it with --rebuild"


@pytest.fixture
def write(folder: Path) -> Callable[..., str]:
    """`write(vectors)`: `v.parquet` with them beside `TEXTS`, or other texts."""

    def call(vectors: Any, texts: list[str | None] | None = None, name: str = "v.parquet") -> str:
        rows = [list(row) for row in np.asarray(vectors, np.float32)]
        columns: dict[str, Any] = {"id": [f"d{n}" for n in range(len(rows))], "vector": rows}
        if texts != []:
            columns["text"] = texts or TEXTS
        pq.write_table(pa.table(columns), folder / name)
        return name

    return call


@pytest.fixture
def encode(model: Path) -> Callable[..., Any]:
    """`encode(texts, method=...)`: raw vectors of `tiny`, a model 32 wide; classical where nothing else is said."""

    def call(texts: list[str], **options: Any) -> Any:
        return ragidx.load_encoder(str(model), **({"method": "classical"} | options)).encode_document(texts)

    return call


@pytest.fixture
def v(write: Callable[..., str], encode: Callable[..., Any]) -> str:
    """`v.parquet`: what `tiny` makes of `TEXTS`, by the method classical."""
    return write(encode(TEXTS))


def _build(vectors: str = "v.parquet", **options: Any) -> Any:
    return build_vectors(vectors, INDEX, **({"model": "tiny", "method": "classical"} | options))


def _first(question: str, index: str = INDEX) -> tuple[str, float]:
    hit = ragidx.Retriever.open(index).search(question, k=1)[0]
    return hit.chunk_id, round(hit.score, 3)


# a model, and what it answers


@pytest.mark.usefixtures("v")
def test_a_text_finds_its_given_vector() -> None:
    report = _build()

    spec = ragidx.IndexReader.open(INDEX).spec
    assert [_first(text) for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]
    assert report.queries is not None
    assert (report.queries.n_checked, report.device, report.dtype) == (6, "cpu", "float32")
    assert report.queries.least_cosine == pytest.approx(1, abs=1e-5)
    assert (report.model, report.method, report.n_encoded, report.dim) == ("tiny", "vectors", 0, 32)
    assert (spec.encoder.method, spec.encoder.model, spec.filter.name, len(spec.weights)) == ("vectors", "", "none", 64)
    assert spec.query_encoder is not None
    assert (spec.query_encoder.method, spec.query_encoder.model) == ("classical", "tiny")
    assert Store.open(INDEX).manifest.fingerprint == spec.fingerprint()


def test_a_question_and_its_instruction_are_encoded_as_those_of_a_corpus_are(
    write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write(encode(TEXTS, method="echo"))
    _build(method="echo", instruction="Find the answer")
    given, made = ragidx.Retriever.open(INDEX), ragidx.load_encoder("tiny", method="echo")

    for instruction in (None, "Find the mill", ""):
        raw = made.encode_query(["a mill"], "Find the answer" if instruction is None else instruction)
        np.testing.assert_allclose(
            given.encode(["a mill"], instruction), raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6
        )


@pytest.mark.parametrize("options", [{}, {"tau": 2.0}, {"filter": "embedfilter", "dim": 16}])
def test_vectors_as_wide_as_the_default_filter_leaves_them_went_through_it(
    options: dict[str, Any], write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    kept = ragidx.EmbedFilter.from_encoder(ragidx.load_encoder("tiny", method="classical"), tau=2)
    write(kept(encode(TEXTS)))

    report = _build(**options)

    assert (report.dim, ragidx.IndexReader.open(INDEX).spec.filter.name) == (16, "embedfilter")
    assert [_first(text) for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]


def test_vectors_that_were_cut_need_the_filter_to_be_named(
    write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write(encode(TEXTS)[:, :24])

    with pytest.raises(SpecError) as fault:
        _build()
    _build(filter="truncation", dim=24)

    assert str(fault.value) == (
        "--model: 'tiny' makes vectors of 16 or 32 numbers, those that are given have 24\n  hint: say what was kept of "
        f"their first numbers with --filter truncation --dim 24, name the model that made them, {WITHOUT}"
    )
    assert [_first(text) for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]


@pytest.mark.slow
def test_a_sentence_transformer_answers_for_its_vectors(
    tiny_sentence_transformer: Path, write: Callable[..., str]
) -> None:
    write(ragidx.load_encoder(str(tiny_sentence_transformer)).encode_document(TEXTS))

    report = build_vectors("v.parquet", INDEX, model=str(tiny_sentence_transformer))
    shrink(INDEX, dim=16)

    assert report.queries.n_checked == 6
    assert ragidx.Retriever.open(INDEX).encode(["a mill"]).shape == (1, 16)
    assert len(ragidx.Retriever.open(INDEX).search("a mill")) == 6


@pytest.mark.usefixtures("v")
def test_langchain_asks_such_an_index_too() -> None:
    from ragidx.retriever.frameworks.langchain import RagidxRetriever

    _build()

    assert [found.page_content for found in RagidxRetriever(index=INDEX, k=1).invoke(TEXTS[1])] == [TEXTS[1]]


@pytest.mark.usefixtures("v")
def test_a_model_that_has_moved_is_named_and_one_that_has_changed_is_refused(folder: Path) -> None:
    _build()
    (folder / "tiny").rename(folder / "moved")

    hits = ragidx.Retriever.open(INDEX, model="moved").search(TEXTS[0], k=1)
    (folder / "moved/config.json").write_text((folder / "moved/config.json").read_text() + "\n")
    with pytest.raises(ModelError) as fault:
        ragidx.Retriever.open(INDEX, model="moved").search(TEXTS[0])

    assert hits[0].chunk_id == "d0"
    assert str(fault.value) == (
        "ragidx-index: 'moved' is not the model this index was made with: its files have changed\n"
        "  hint: name the right folder with --model, or build the index again with --rebuild"
    )


# whether it made the vectors


@pytest.mark.usefixtures("v")
def test_a_model_that_did_not_make_the_vectors_is_refused_and_nothing_is_committed(folder: Path) -> None:
    with pytest.raises(SpecError) as fault:
        _build(method="echo")

    assert fault.value.where == "v.parquet"
    assert fault.value.message.startswith(
        "'tiny' did not make these vectors: of 6 texts encoded again, the median cosine"
    )
    assert fault.value.hint == f"name the model, --method, --pooling and --filter that made them, {WITHOUT}"
    assert not (folder / INDEX).exists()


MANY = [f"Text number {n} is about {n * n}." for n in range(300)]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read 64 rows at a time."""
    monkeypatch.setattr(vector_batch, "_BATCH_ROWS", (16, 64))


@pytest.mark.usefixtures("small_batches")
def test_a_model_that_made_none_of_the_first_vectors_is_refused_before_the_rest_is_read(
    folder: Path, write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write(encode(MANY), list(MANY))
    read: list[int] = []

    with pytest.raises(SpecError) as fault:
        _build(method="echo", on_progress=lambda progress: read.append(progress.n_chunks))

    assert fault.value.message.startswith(
        "'tiny' did not make these vectors: of 32 texts encoded again, the median cosine"
    )
    assert max(read) <= 128
    assert not (folder / INDEX).exists()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("n_mended", "is_refused"), [(50, False), (250, True)])
def test_a_beginning_that_is_unlike_the_rest_is_no_reason_to_refuse(
    n_mended: int, is_refused: bool, write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    """Of the first batch some texts are as they were, so it is the sample of all that says the word."""
    mended = range(14, 14 + n_mended)
    write(encode(MANY), [f"{text} It was mended." if n in mended else text for n, text in enumerate(MANY)])

    if not is_refused:
        assert _build().queries.n_checked == 32
        return
    with pytest.raises(SpecError, match="'tiny' did not make these vectors: of 32 texts encoded again"):
        _build()


def test_one_wrong_text_among_many_is_told_and_no_reason_to_refuse(
    write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write(encode(TEXTS), ["The text was mended later.", *TEXTS[1:]])

    queries = _build().queries

    assert queries.median_cosine == pytest.approx(1, abs=1e-5)
    assert queries.least_cosine < 0.99


def test_the_figures_of_a_refusal_are_the_cosines(write: Callable[..., str], encode: Callable[..., Any]) -> None:
    unit = encode(TEXTS[:1]) / np.linalg.norm(encode(TEXTS[:1]))
    aside = np.random.default_rng(0).standard_normal((1, 32))
    aside -= (aside @ unit.T) * unit
    aside /= np.linalg.norm(aside)
    write(0.8 * unit + 0.6 * aside, TEXTS[:1])

    with pytest.raises(SpecError) as fault:
        _build()

    assert str(fault.value) == (
        "v.parquet: 'tiny' did not make these vectors: of 1 text encoded again, the median cosine with what is given "
        "is 0.8000 (least 0.8000), and 0.9900 is asked for\n"
        f"  hint: name the model, --method, --pooling and --filter that made them, {WITHOUT}"
    )


def test_where_all_texts_are_near_each_other_0_99_is_not_enough(write: Callable[..., str]) -> None:
    whole = {"model": "mini", "method": "classical", "layer": -1}
    write(ragidx.load_encoder(**whole).encode_document(TEXTS))

    with pytest.raises(SpecError) as fault:
        build_vectors("v.parquet", INDEX, model="mini", method="reba")
    report = build_vectors("v.parquet", INDEX, **whole, dtype="bfloat16")

    told = r"is (0\.\d{4}) \(.*and (0\.\d{4}) is asked for, since different texts have (0\.\d{4}) here$"
    found = re.search(told, fault.value.message)
    assert found
    median, asked, others = map(float, found.groups())
    assert 0.99 < median < asked
    assert asked == pytest.approx(1 - 0.02 * (1 - others), abs=2e-4)
    assert report.queries.median_cosine > 0.9999


@pytest.mark.parametrize("texts", [[], [None] * 6, [" "] * 6])
def test_without_texts_only_the_width_is_looked_at(
    texts: list[str | None], write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write(encode(TEXTS), texts)

    report = _build(method="echo")

    assert report.to_json()["queries"] == {
        "encoder": str(ragidx.IndexReader.open(INDEX).spec.query_encoder),
        "n_checked": 0,
        "median_cosine": None,
        "least_cosine": None,
    }
    with pytest.raises(SpecError, match="'tiny' makes vectors of 16 or 32 numbers, those that are given have 33"):
        _build(write(np.eye(33), []), rebuild=True)


def test_texts_are_drawn_by_the_hash_of_the_id_whatever_their_order() -> None:
    names = [f"d{n}" for n in range(500)]
    texts = ["" if n % 5 == 0 else f"text {n}" for n in range(500)]
    broken = {7, 11}
    vectors = np.arange(500.0)[:, None]
    whole, parts = TextSample(), TextSample()

    whole.add(names, texts, vectors, without=broken)
    for start in reversed(range(0, 500, 70)):
        here = slice(start, start + 70)
        parts.add(names[here], texts[here], vectors[here], without={row - start for row in broken})

    able = sorted((n for n in range(500) if n % 5 and n not in broken), key=lambda n: digest(names[n]))[:N_TEXTS]
    assert whole.texts == parts.texts == [f"text {n}" for n in able]
    assert whole.vectors.tolist() == parts.vectors.tolist() == [[n] for n in able]


# what is refused


@pytest.mark.usefixtures("v")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "nowhere"},
            "--model: no model 'nowhere': neither a bundled one, nor a folder, nor an id of the form owner/name\n"
            "  hint: `ragidx models` lists what is bundled and shows what else can be named; " + WITHOUT,
        ),
        (
            {"filter": "truncation", "dim": 8},
            "--model: 'tiny' makes vectors of 8 numbers with that filter, those that are given have 32\n"
            f"  hint: name the model that made them, {WITHOUT}",
        ),
        (
            {"filter": "pca", "dim": 32},
            "--filter: filter 'pca' is fitted on a corpus, and there is none here\n  hint: build an index with it "
            "(ragidx build CORPUS --filter pca), or take a filter that needs none",
        ),
        (
            {"model": None},
            "method says how a model encodes questions, and no model is named\n"
            "  hint: name with model the one that made the vectors, or leave method out",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises((SpecError, ModelError)) as fault:
        _build(**options)

    assert str(fault.value) == message
    assert not (folder / INDEX).exists()


# the next build


@pytest.mark.usefixtures("v")
def test_the_next_build_keeps_the_model_and_loads_no_torch() -> None:
    _build()
    code = (
        "import sys, ragidx\n"
        f"report = ragidx.build_vectors('v.parquet', {INDEX!r})\n"
        "print(report.committed, report.queries.n_checked, report.queries.encoder)\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == f"False None {ragidx.IndexReader.open(INDEX).spec.query_encoder}\n[]\n"


def test_what_changed_is_replaced_and_questions_go_on(
    v: str, write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    _build(v)
    texts = ["Another lease was signed.", *TEXTS[1:]]
    write(encode(texts), texts)

    report = build_vectors(v, INDEX)

    assert (report.n_changed, report.n_unchanged) == (1, 5)
    assert _first(texts[0]) == ("d0", 1.0)


@pytest.mark.usefixtures("v")
def test_the_same_model_again_is_checked_and_commits_nothing(folder: Path) -> None:
    _build()

    again = _build(method=None)
    shutil.copytree(folder / "tiny", folder / "copy")
    moved = _build(model="copy")

    assert (again.committed, again.queries.n_checked) == (False, 6)
    assert moved.n_unchanged == 6
    assert ragidx.IndexReader.open(INDEX).spec.query_encoder.model == "copy"


@pytest.mark.usefixtures("v")
def test_another_model_or_method_is_an_error_and_rebuild_replaces_it(tiny_model: Callable[..., Path]) -> None:
    _build()
    other = str(tiny_model("gpt2"))
    told = []
    for options in ({"method": "echo"}, {"model": other}, {"filter": "truncation", "dim": 24}):
        with pytest.raises(SpecError) as fault:
            _build(**options)
        told.append((fault.value.message, fault.value.hint))

    build_vectors("v.parquet", INDEX, rebuild=True)

    assert told == [
        (f"the index was made otherwise: {what}", HINT)
        for what in (
            "query_encoder.method is 'classical' in the index, 'echo' now; "
            "query_encoder.template is 'classical' in the index, 'echo' now",
            f"query_encoder.model is 'tiny' in the index, '{other}' now",
            "filter.name is 'none' in the index, 'truncation' now; filter.dim is None in the index, 24 now",
        )
    ]
    assert ragidx.IndexReader.open(INDEX).spec.query_encoder is None


@pytest.mark.usefixtures("v")
def test_an_index_without_a_model_gets_one_by_a_rebuild() -> None:
    build_vectors("v.parquet", INDEX)

    with pytest.raises(SpecError) as fault:
        _build()
    _build(rebuild=True)

    assert str(fault.value) == (
        "ragidx-index: the index was made otherwise: no model encodes questions in the index, 'tiny' now\n"
        f"  hint: {HINT}"
    )
    assert _first(TEXTS[3]) == ("d3", 1.0)


# narrower


@pytest.mark.parametrize("width", [32, 16])
def test_after_a_shrink_questions_are_asked_at_that_width_and_the_same_file_is_known(
    width: int, write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    kept = ragidx.EmbedFilter.from_encoder(ragidx.load_encoder("tiny", method="classical"), dim=16)
    vectors = encode(TEXTS) if width == 32 else kept(encode(TEXTS))
    write(vectors)
    _build()
    before = ragidx.Retriever.open(INDEX).search("a mill", k=6, dim=12)

    shrink(INDEX, dim=12)
    after = ragidx.Retriever.open(INDEX).search("a mill", k=6)
    again = build_vectors("v.parquet", INDEX)
    checked = _build(method=None)
    reindex(INDEX, "eight", dim=8)

    assert [hit.chunk_id for hit in after] == [hit.chunk_id for hit in before]
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before], abs=1e-3)
    assert (again.committed, again.n_unchanged, again.dim, again.to_json()["given_dim"]) == (False, 6, 12, width)
    assert (checked.committed, checked.queries.n_checked) == (False, 6)
    assert checked.queries.least_cosine == pytest.approx(1, abs=1e-5)
    assert [_first(text, "eight") for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]


@pytest.mark.usefixtures("v")
def test_after_a_shrink_narrow_vectors_are_taken_too_and_no_others(
    write: Callable[..., str], encode: Callable[..., Any]
) -> None:
    _build()
    shrink(INDEX, dim=12)

    narrow = build_vectors(write(encode(TEXTS)[:, :12], name="narrow.parquet"), INDEX)
    with pytest.raises(CorpusError) as fault:
        build_vectors(write(encode(TEXTS)[:, :20], name="other.parquet"), INDEX)

    assert (narrow.n_changed, narrow.dim, narrow.given_dim) == (6, 12, None)
    assert _first(TEXTS[2]) == ("d2", 1.0)
    assert str(fault.value) == (
        "other.parquet: the file holds vectors of 20 numbers; those of the index, or of the files before, have 12\n"
        "  hint: vectors of two models do not stand together: choose another --index, or replace it with --rebuild; "
        "an index that was shrunk takes the first 12 numbers of each vector"
    )
