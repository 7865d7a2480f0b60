"""The demo: what `query` answers, and each hit's place by vectors and by words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines import demo

from ..measuring import ndcg_at_10
from ..raising import message_of
from .conftest import Done


@pytest.mark.slow
def test_the_answers_are_those_of_a_query_and_the_places_those_of_its_parts(tmp_path: Path) -> None:
    report, answers = demo.run(tmp_path / "index")

    retriever = ragidx.Index(tmp_path / "index", dtype="float32")
    assert (report.n_documents, report.n_chunks) == (124, 276)
    for question, found in zip(demo.QUESTIONS, answers, strict=True):
        assert [one.hit for one in found] == retriever.search(question, 3)
        for one in found:
            for place, mode in ((one.dense_place, "dense"), (one.lexical_place, "lexical")):
                ranked = retriever.search(question, 100, mode=mode, fold=False)
                ids = [hit.chunk_id for hit in ranked]
                assert (ids[place - 1] if place else None) == (one.hit.chunk_id if place else None)
                assert place is not None or one.hit.chunk_id not in ids


@pytest.mark.slow
def test_another_model_is_compared_with_and_without_the_filter(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    made = list[str]()
    report, answers, found = demo.compare(str(tiny_model("llama")), tmp_path, on_index=made.append)

    assert made == ["mini", "echo", "prompteol"]
    names = ["mini", "echo", "echo + EmbedFilter", "prompteol", "prompteol + EmbedFilter"]
    assert [(one.name, one.dim) for one in found] == list(zip(names, (255, 32, 16, 32, 16), strict=True))
    assert (report.method, len(answers)) == ("echo", len(demo.QUESTIONS))
    for one, (folder, dim) in zip(found, [("mini", None), ("echo", None), ("echo", 16)], strict=False):
        assert one.dense == pytest.approx(_ndcg(tmp_path / folder, dim), abs=1e-9)
    with_filter = ragidx.build(
        demo.sample_corpus(),
        tmp_path / "tau2",
        model=str(tiny_model("llama")),
        method="echo",
        filter=ragidx.FilterSpec(tau=2.0),
    ).report
    assert with_filter.dim == 16
    assert found[2].dense == pytest.approx(_ndcg(tmp_path / "tau2", None), abs=0.02)  # float16 rounds each on its own


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("openai:m", "`model`: 'openai:m' is a model of a server, and its files are needed here"),
        ("none.gguf", "`model`: there is no file 'none.gguf'"),
    ],
)
def test_what_is_no_decoder_is_refused_before_anything_is_built(tmp_path: Path, model: str, message: str) -> None:
    assert message_of(ModelError, lambda: demo.compare(model, tmp_path)).split("\n")[0] == message
    assert not list(tmp_path.iterdir())


def test_a_sentence_transformers_model_is_not_compared(tmp_path: Path, tiny_sentence_transformer: Path) -> None:
    assert message_of(SpecError, lambda: demo.compare(str(tiny_sentence_transformer), tmp_path / "demo")) == (
        f"`model`: '{tiny_sentence_transformer}' is a sentence-transformers model, and echo is for decoders\n"
        "  hint: name a decoder"
    )
    assert not (tmp_path / "demo").exists()


def _ndcg(index: Path, dim: int | None) -> float:
    sample = demo.sample_corpus().parent
    queries, qrels = load_queries(sample), load_qrels(sample)
    found = ragidx.Index(index).rank_documents(list(queries.values()), 10, mode="dense", dim=dim)
    return ndcg_at_10(qrels, {query: dict(few) for query, few in zip(queries, found, strict=True)})


@pytest.mark.slow
def test_the_command_shows_the_comparison(
    run: Callable[..., Done], tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    report, answers = demo.run(Path("mini"))
    qualities = [demo.Quality(name, dim, 0.5, 0.75) for name, dim in [("mini", 255), ("echo", 32), ("filter", 16)]]

    def compare(model: str, folder: Path, on_progress: object, on_index: Callable[[str], None]) -> object:
        on_index("echo")
        return report, answers, qualities

    monkeypatch.setattr(demo, "compare", compare)

    done = run("demo", "--model", str(tiny_model("llama")))

    assert done.status == 0, done.err
    assert "making the index echo (of mini, echo, prompteol)\n" in done.err
    assert "echo and EmbedFilter: 16 dimensions, and their words." in done.out
    assert "nDCG@10 of the sample's 60 questions" in done.out
    assert "filter 16 0.500 0.750" in " ".join(done.out.split())
    assert (
        "'with words' is what a query does by default, and 'echo + EmbedFilter' is the default of a decoder."
        in done.out
    )
    assert "demo --model" not in done.out
