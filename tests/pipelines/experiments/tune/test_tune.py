"""`ragidx.tune` and its command, on a corpus whose right answer is known."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx import Questions
from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.indexer.filters.filter import kept_columns
from ragidx.pipelines.cli.tune import verdict
from ragidx.pipelines.experiments.evaluate.significance import MeanDifference
from ragidx.pipelines.experiments.tune.proposal import Estimate
from ragidx.pipelines.experiments.tune.search import TunedChoice, VectorsChoice
from ragidx.pipelines.experiments.tune.tune import filter_widths

from ....measuring import evaluated
from ...conftest import Done

pytestmark = pytest.mark.slow

N = 40
WORDS = ["lake", "house", "signed", "honey", "bees", "dance", "where", "flowers", "lease", "winter", "road", "paper"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Long documents with a number that their query has, and short ones that resemble a query but for its last digit:
    words find the former, vectors the latter, and the latter are judged relevant."""
    rng, folder = np.random.default_rng(0), tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    texts = {f"d{n}": f"{' '.join(rng.choice(WORDS, 12))} part {7919 * (n + 3)}." for n in range(N)}
    texts |= {f"e{n}": f"part {7919 * (n + 3) + 1}" for n in range(N)}
    queries = {f"q{n}": f"part {7919 * (n + 3)}" for n in range(N)}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"_id": a, "text": b}) for a, b in queries.items()))
    qrels = [f"q{n}\te{n}\t1" for n in range(N)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(qrels) + "\n")
    return folder


@pytest.fixture
def decoder(tiny_model: Callable[..., Path]) -> dict[str, Any]:
    return {"model": str(tiny_model()), "method": "classical", "dtype": "float32", "cache": None}


def test_every_layer_is_tried_and_the_command_builds_what_is_advised(
    corpus: Path, tmp_path: Path, decoder: dict[str, Any], run: Callable[..., Done]
) -> None:
    estimates = list[Estimate]()
    found = ragidx.tune(
        corpus,
        questions=Questions.read(corpus),
        filter=["none", "embedfilter"],
        on_estimate=estimates.append,
        **decoder,
    )

    tried = {(one.what.layer, one.what.filter) for one in found.tried if one.part == "vectors"}
    assert tried >= {(1, "none"), (-1, "none"), (1, "embedfilter"), (-1, "embedfilter")}
    assert (found.n_queries, found.n_documents, found.synthetic) == (N, 2 * N, False)
    assert (estimates[0].n_queries, estimates[0].n_layers) == (N, 2)
    assert (found.search.advised.mode, found.search.is_better) == ("dense", True)
    assert found.search.gain.low > 0
    assert found.query == "ragidx query ... --mode dense"
    done = run(*shlex.split(found.build)[1:], "--index", str(tmp_path / "index"), "--dtype", "float32")
    assert done.status == 0, done.err
    stored = ragidx.Index(tmp_path / "index").spec
    assert stored.encoder is not None
    assert (stored.encoder.layer, stored.filter.name) == (found.vectors.advised.layer, found.vectors.advised.filter)


@pytest.mark.parametrize("method", ["classical", pytest.param("metaeol", marks=pytest.mark.slow)])
def test_all_layers_come_from_the_cache_and_are_those_of_encoders(
    corpus: Path, decoder: dict[str, Any], method: str
) -> None:
    from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
    from ragidx.pipelines.ingest.options import build_options
    from ragidx.pipelines.ingest.resolve import resolve_against

    options = {name: value for name, value in decoder.items() if name != "cache"} | {"method": method}
    texts, cache = ["lake house", "honey bees dance"], corpus / "cache"
    with RawVectors(resolve_against(build_options(**options, layer=-1)), cache) as vectors:
        first = vectors.layers(texts)
        asked = vectors.layers(texts, "")
    with RawVectors(resolve_against(build_options(**options, layer=-1)), cache) as vectors:
        vectors.encoder.encode_document = None  # type: ignore[method-assign,assignment]
        again = vectors.layers([*texts, "lake house"])

    np.testing.assert_array_equal(again[:, :2], first)
    np.testing.assert_array_equal(again[:, 2], first[:, 0])
    assert asked.shape == first.shape
    for layer, found in ((1, first[0]), (-1, first[-1])):
        expected = ragidx.load_encoder(**options, layer=layer).encode_document(texts)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_of_a_method_that_reads_more_than_one_layer_only_its_own_is_tried(
    corpus: Path, decoder: dict[str, Any]
) -> None:
    options = decoder | {"method": "reba"}
    found = ragidx.tune(corpus, questions=Questions.read(corpus), filter="none", **options)

    assert {one.what.layer for one in found.tried if one.part == "vectors"} == {None}
    assert "--layer" not in found.build
    with pytest.raises(SpecError, match="reba with mean pooling has no vector for each layer"):
        ragidx.load_encoder(decoder["model"], method="reba", dtype="float32").encode_layers([])


def test_an_index_is_compared_with_its_own_choices(corpus: Path, tmp_path: Path, decoder: dict[str, Any]) -> None:
    options = {name: value for name, value in decoder.items() if name != "cache"}
    index = tmp_path / "index"
    ragidx.build(corpus, index, layer=1, filter=ragidx.FilterSpec("none"), **options).close()

    found = ragidx.tune(index, questions=Questions.read(corpus, corpus), filter="none", dtype="float32", cache=None)

    default = found.vectors.default
    assert (default.method, default.layer, default.filter) == ("classical", 1, "none")
    assert found.build.startswith(f"ragidx build --index {index} --rebuild --model ")


@pytest.mark.parametrize("center", [False, True])
def test_the_best_is_tried_centred_and_not(corpus: Path, tmp_path: Path, decoder: dict[str, Any], center: bool) -> None:
    options = {name: value for name, value in decoder.items() if name != "cache"}
    index = tmp_path / "index"
    ragidx.build(corpus, index, layer=1, filter=ragidx.FilterSpec("none", center=center), **options).close()

    found = ragidx.tune(index, questions=Questions.read(corpus, corpus), filter="none", dtype="float32", cache=None)
    of_corpus = evaluated(corpus, mode="dense", filter="none", layer=1, center=center, **decoder)

    assert found.vectors.default.center is center
    assert {one.what.center for one in found.tried if isinstance(one.what, VectorsChoice)} == {False, True}
    assert ("--center" in found.build.split()) is found.vectors.advised.center
    default = next(one for one in found.tried if one.what == found.vectors.default)
    assert default.mean == pytest.approx(of_corpus.tasks[0].rows[0].means["ndcg@10"], abs=1e-6)


def test_the_command_has_what_else_the_index_was_built_with(
    corpus: Path, tmp_path: Path, decoder: dict[str, Any], run: Callable[..., Done]
) -> None:
    index, chunks = tmp_path / "index", ragidx.ChunkSpec(size=64)
    options = {"model": decoder["model"], "method": "echo", "copies": 3, "dtype": "float32", "pool_eos": True}
    ragidx.build(corpus, index, chunks=chunks, **options).close()

    found = ragidx.tune(index, questions=Questions.read(corpus, corpus), filter="none", dtype="float32", cache=None)
    done = run(*shlex.split(found.build)[1:], "--dtype", "float32")

    assert done.status == 0, done.err
    spec = ragidx.Index(index).spec
    assert spec.encoder is not None
    assert (spec.encoder.copies, spec.encoder.pool_eos, spec.chunk.size) == (3, True, 64)


def test_the_command_reads_the_same_files_and_fields(corpus: Path, decoder: dict[str, Any]) -> None:
    options = {"include": ["*.jsonl"], "text_field": ["*.jsonl=text"], "minutes": 0, "filter": "none"}

    found = ragidx.tune(corpus, questions=Questions.read(corpus), **options, **decoder)

    assert found.build.startswith(
        f"ragidx build {corpus} --include '*.jsonl' --text-field '*.jsonl=text' --model {decoder['model']} "
    )


def test_without_judgements_queries_are_made_of_the_corpus(tmp_path: Path, run: Callable[..., Done]) -> None:
    rng = np.random.default_rng(1)
    sentence = lambda: " ".join(rng.choice(WORDS, 9)).capitalize() + "."  # noqa: E731
    texts = [" ".join(sentence() for _ in range(4)) for _ in range(30)]
    (tmp_path / "notes.jsonl").write_text(
        "\n".join(json.dumps({"id": f"d{n}", "text": t}) for n, t in enumerate(texts))
    )

    done = run("tune", "notes.jsonl", "--cache", "none", "--filter", "truncation")

    assert done.status == 0, done.err
    assert "notes.jsonl, mini: 30 documents of 30, 30 chunks, 30 synthetic queries" in done.out
    assert "ragidx build notes.jsonl --model mini --method classical" in done.out
    assert "A sample of 30 documents of 30: 30 chunks and 30 queries, about " in done.err
    assert "lexical" not in done.out  # queries made of a corpus cannot tell it from dense


def test_the_table_says_what_the_choice_is_worth(corpus: Path, run: Callable[..., Done]) -> None:
    done = run("tune", str(corpus), "--queries", str(corpus), "--cache", "none", "--filter", "none", "--filter", "pca")
    shown = " ".join(done.out.split())

    assert done.status == 0, done.err
    assert "vectors, dense search bytes ndcg@10 difference" in shown
    assert "classical, truncation, 255 dimensions" in shown
    assert "would be detected" in shown or "Nothing that was tried is better" in shown


def test_json_has_everything_that_was_tried(corpus: Path, run: Callable[..., Done]) -> None:
    done = run("tune", str(corpus), "--queries", str(corpus), "--cache", "none", "--filter", "none", "--json")
    found = json.loads(done.out)

    assert done.status == 0, done.err
    assert {one["part"] for one in found["tried"]} == {"vectors", "search"}
    assert found["vectors"]["default"] == {
        "method": "classical",
        "layer": None,
        "filter": "truncation",
        "dim": 255,
        "offset": None,
        "center": False,
    }
    assert found["search"]["advised"] in [one["what"] for one in found["tried"] if one["part"] == "search"]
    assert len(found["vectors"]["of_folds"]) == 5
    assert found["n_queries"] == N


@pytest.mark.parametrize(
    ("preset", "named", "expected"),
    [
        (  # the middle, then the first and the last column apart
            1,
            {},
            [
                *[(128, 64), (64, 96), (255, 1), (247, 1), (128, 1), (64, 1)],
                *[(248, 0), (128, 0), (64, 0), (248, 8), (240, 8), (128, 8), (64, 8)],
            ],
        ),
        (None, {"dim": [100]}, [(100, None), (100, 0), (100, 1), (100, 8)]),
        (1, {"offset": [5]}, [(251, 5), (243, 5), (128, 5), (64, 5)]),
        (1, {"offset": [5, 9], "dim": [8, 300]}, [(8, 5), (300, 5), (8, 9), (300, 9)]),
    ],
)
def test_both_ends_of_the_filter_are_tried_or_what_is_named(
    preset: int | None, named: dict[str, list[int]], expected: list[tuple[int, int | None]]
) -> None:
    assert filter_widths("embedfilter", 256, preset, named) == expected
    assert filter_widths("pca", 256, preset, named) == [(dim, None) for dim in named.get("dim", [128, 64])]
    assert set(kept_columns(256, 64, offset=96)) == set(kept_columns(256, 64))  # which is the paper's


def test_the_command_tries_the_widths_and_the_first_column_that_are_named(
    corpus: Path, run: Callable[..., Done]
) -> None:
    done = run(
        *("tune", str(corpus), "--model", "mini-decoder", "--filter", "embedfilter", "--dim", "8", "--dim", "999"),
        *("--filter-offset", "5", "--queries", str(corpus), "--qrels", str(corpus), "--cache", "none", "--json"),
    )

    found = json.loads(done.out)
    tried = [one["what"] for one in found["tried"] if one["part"] == "vectors" and not one["what"]["center"]]
    assert {(one["filter"], one["dim"], one["offset"]) for one in tried} == {
        ("none", 256, None), ("embedfilter", 255, 1), ("embedfilter", 8, 5)
    }  # fmt: skip
    assert "Left out: embedfilter, 999 dimensions: dim=999 is more than the 251 dimensions there are." in found["notes"]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"chosen": 1}, "Nothing that was tried is better than the default search by more than chance: keep 1."),
        (
            {"verdict": "better"},
            "* Better than the default search, on queries that did not choose it: +0.100 [+0.050, +0.150], p = 0.01; "
            "0.060 would be detected. Take 2.",
        ),
        (
            {"verdict": "worse"},
            "* Worse than the default search, on queries that did not choose it: +0.100 [+0.050, +0.150], p = 0.01; "
            "0.060 would be detected. Keep 1.",
        ),
        (
            {},
            "* Not shown to be better than the default search, on queries that did not choose it: +0.100 [+0.050, "
            "+0.150], p = 0.01; 0.060 would be detected. Keep 1.",
        ),
    ],
)
def test_the_verdict_says_what_to_take(part: dict[str, Any], words: str) -> None:
    gain = MeanDifference(0.1, 0.05, 0.15, 0.01, part.get("verdict", "not real"), 0.06)

    assert verdict(TunedChoice(1, part.get("chosen", 2), (), gain), "search") == words


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"measure": "ndcg"}, "unknown measure 'ndcg'", "ndcg@10"),
        ({"measure": "recall@1000"}, "unknown measure 'recall@1000'", "recall@100"),
        ({"filter": "pcaa"}, "unknown filter 'pcaa'", "pca"),
        ({"dim": 0}, "dim=0 keeps nothing", "give 1 or more"),
        ({"dim": "64"}, "dim='64' is not a whole number", ""),
        ({"offset": -1}, "offset=-1 is negative", "give 0 or more"),
        ({"layer": 3}, "tune takes no such option: 'layer'", ""),
        ({"queries": "none.jsonl"}, "tune takes it in a value", "give `questions=Questions.read(queries=...)`"),
        ({"questions": Questions.read("none.jsonl", "none.tsv")}, "no such file", ""),
        ({"questions": Questions.of_log("none.jsonl")}, "judged queries choose", "`Questions.made()`"),
        (
            {"questions": Questions.read("none.jsonl")},
            "queries and what judges them go together",
            "give both, `queries` and `qrels`, or neither",
        ),
    ],
)
def test_bad_options_are_named(corpus: Path, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ragidx.RagidxError, match=message) as raised:
        ragidx.tune(corpus, cache=None, **options)

    assert hint in raised.value.hint


def test_an_index_keeps_its_model_and_chunks(corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    ragidx.build(corpus, index).close()

    with pytest.raises(SpecError, match="the index has its own model") as raised:
        ragidx.tune(index, model="mini", cache=None)
    assert raised.value.hint == "remove it, or tune the corpus"


def test_an_index_of_precomputed_vectors_has_no_model_to_tune(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.eye(8, dtype=np.float32))
    ragidx.build(vectors=tmp_path / "own.npy", index=tmp_path / "own").close()

    with pytest.raises(SpecError, match="the index holds precomputed vectors: it has no model to tune"):
        ragidx.tune(tmp_path / "own", cache=None)


def test_a_run_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "old.run").write_text("q1 Q0 d1 1 0.5 old\n")

    with pytest.raises(SpecError, match="it is neither a corpus nor an index"):
        ragidx.tune(tmp_path / "old.run")


def test_a_corpus_without_sentences_is_too_small(corpus: Path) -> None:
    with pytest.raises(CorpusError, match="documents can be asked for by a sentence of their own"):
        ragidx.tune(corpus, cache=None)
