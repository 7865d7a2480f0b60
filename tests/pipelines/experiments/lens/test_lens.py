"""The lens over texts and hits: what is kept and what is removed add up, and scores fall into parts by token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import ModelError, QueryError, SpecError
from ragidx.indexer.encoders import Encoder
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.filters.filter import make_filter
from ragidx.indexer.filters.logits import logits, token_coordinates
from ragidx.indexer.filters.unembedding import find_unembedding, spectrum_of
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.experiments.lens.lens import lens_hit, lens_text
from ragidx.pipelines.index import Index
from ragidx.pipelines.ingest.build import build
from ragidx.retriever.searcher import Searcher

from ....raising import message_of

pytestmark = pytest.mark.slow

TEXT = "The lease of the house by the lake was signed by Ada Lovelace in 1840."
QUERY = "who signed the lease of the house?"
ALL = 10**6  # tokens to name: every one


@pytest.fixture(scope="session")
def mini() -> Encoder:
    return load_encoder("mini-decoder", device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def tiny(tiny_model: Callable[..., Path]) -> Encoder:
    return load_encoder(str(tiny_model("llama")), method="classical", device="cpu", dtype="float32")


@pytest.fixture
def retriever(small_corpus: Path, tmp_path: Path) -> Searcher:
    """An index of six documents, made with the bundled decoder."""
    build(small_corpus, tmp_path / "index", model="mini-decoder", dtype="float32", device="cpu")
    return Index(tmp_path / "index", dtype="float32", device="cpu").searcher


# one text


def test_the_filter_of_mini_decoder_removes_the_frequent_tokens_and_leaves_those_of_the_text(mini: Encoder) -> None:
    lens = lens_text(TEXT, mini, k=5).lens

    assert {"the", ",", "."} & {each.token for each in lens.before}
    assert {"the", ",", "."} & {each.token for each in lens.removed}
    assert {"lake", "lease"} <= {each.token for each in lens.after}
    assert lens.removed_share > 0.9


@pytest.mark.parametrize(
    "filter",
    [
        FilterSpec(tau=2.0),
        FilterSpec(dim=3, offset=1),
        FilterSpec(tau=1.0),
        FilterSpec(name="truncation", tau=4.0),
        FilterSpec(name="random", dim=5, seed=3),
        FilterSpec(name="bulk", tau=2.0),
    ],
    ids=str,
)
def test_the_logits_before_are_those_after_plus_those_removed(tiny: Encoder, filter: FilterSpec) -> None:
    seen = lens_text(TEXT, tiny, filter, k=ALL)

    before, after, removed = (_by_id(part) for part in (seen.lens.before, seen.lens.after, seen.lens.removed))
    assert len(before) == 300
    np.testing.assert_allclose(before, after + removed, atol=1e-5 * abs(before).max())
    raw = tiny.encode_document([TEXT])
    np.testing.assert_allclose(before, logits(find_unembedding(tiny.files), raw)[0], atol=1e-5 * abs(before).max())
    made = make_filter(filter, tiny)
    assert made is not None
    kept = np.linalg.norm(made(raw)) / np.linalg.norm(raw)
    assert seen.lens.removed_share == pytest.approx(1 - kept**2, abs=1e-5)
    assert (seen.dim, seen.hidden, seen.filter) == (made.dim, 32, filter)


def test_without_a_filter_there_is_only_a_before(tiny: Encoder) -> None:
    seen = lens_text(TEXT, tiny, FilterSpec(name="none"), k=3)

    assert (len(seen.lens.before), seen.lens.after, seen.lens.removed) == (3, (), ())
    assert (seen.lens.removed_share, seen.dim) == (0.0, 32)


def test_an_instruction_makes_the_text_a_query(tiny_model: Callable[..., Path]) -> None:
    echo = load_encoder(str(tiny_model("llama")), method="echo", device="cpu", dtype="float32")

    document, query, instructed = (
        lens_text(TEXT, echo, instruction=instruction, k=ALL).lens.before
        for instruction in (None, "", "Find the year of a telescope")
    )

    np.testing.assert_allclose(_by_id(document), _by_id(query), atol=1e-4)
    assert abs(_by_id(instructed) - _by_id(query)).max() > 1e-3


def test_a_text_lens_goes_to_json(tiny: Encoder) -> None:
    seen = lens_text(TEXT, tiny, k=2)

    data = json.loads(json.dumps(seen.to_json()))

    assert list(data) == ["model", "encoder", "filter", "hidden", "dim", "lens"]
    assert data["lens"]["text"] == TEXT
    first = seen.lens.before[0]
    assert data["lens"]["before"][0] == {"id": first.id, "token": first.token, "logit": first.logit}


# a query and a hit


def test_the_parts_of_all_tokens_add_up_to_the_score(retriever: Searcher) -> None:
    seen = lens_hit(QUERY, retriever, k=ALL)

    files = retriever.encoder.files
    vectors = retriever.encode([QUERY]), _unit(retriever, TEXT)
    wide = [vector @ _matrix(retriever).T for vector in vectors]
    parts = np.prod(token_coordinates(find_unembedding(files), spectrum_of(files), np.concatenate(wide)), axis=0)
    assert (seen.hit.doc_id, seen.written.text) == ("lease.txt", TEXT)
    assert seen.score == pytest.approx(seen.hit.score, abs=1e-3)  # the index keeps float16
    assert seen.score == pytest.approx(parts.sum(), abs=1e-5)
    shares = [each.share for each in seen.shared]
    assert shares == sorted(shares, reverse=True)
    np.testing.assert_allclose(shares, parts[[each.id for each in seen.shared]], atol=1e-6)


def test_what_query_and_hit_both_write_is_told_with_both_logits(retriever: Searcher) -> None:
    seen = lens_hit(QUERY, retriever, k=5)

    assert {"lease", "leases", "house"} & {each.token for each in seen.shared}
    for side, written in ((seen.query, "query"), (seen.written, "hit")):
        known = {each.id: each.logit for each in side.after}
        told = {each.id: getattr(each, written) for each in seen.shared}
        assert known.keys() & told.keys()
        assert all(told[i] == pytest.approx(known[i], abs=1e-5) for i in known.keys() & told.keys())


def test_a_later_hit_and_a_condition_choose_another_text(retriever: Searcher) -> None:
    ranked = retriever.search([QUERY], k=3, mode="dense")[0]

    assert lens_hit(QUERY, retriever, 3).hit == ranked[2]
    only = lens_hit(QUERY, retriever, where='subject == "biology"')
    assert (only.hit.doc_id, only.hit.rank) == ("facts.jsonl#bees", 1)


@pytest.mark.parametrize(
    "options",
    [{"filter": "none"}, {"filter": FilterSpec("pca", dim=2)}, {"chunks": ragidx.ChunkSpec(titles=False)}],
    ids=str,
)
def test_an_index_of_another_kind_is_read_as_it_was_built(
    small_corpus: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    build(small_corpus, tmp_path / "other", model="mini-decoder", dtype="float32", device="cpu", **options)
    retriever = Index(tmp_path / "other", dtype="float32", device="cpu").searcher

    for rank in (1, 2, 3):
        seen = lens_hit("the old mill by the river", retriever, rank)

        assert seen.score == pytest.approx(seen.hit.score, abs=2e-3)


def test_the_title_of_a_record_is_read_with_its_text(tmp_path: Path) -> None:
    texts = [f"A {one} lives in the old wood, and it sleeps by day." for one in ("bee", "owl", "fox", "elk")]
    records = [{"id": f"r{n}", "title": f"Of wood {n}", "story": text} for n, text in enumerate(texts)]
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, records)))
    build(tmp_path / "records.jsonl", tmp_path / "index", model="mini-decoder")

    seen = lens_hit("an owl in the wood", Index(tmp_path / "index").searcher)

    assert seen.hit.heading.startswith("Of wood")
    assert seen.score == pytest.approx(seen.hit.score, abs=2e-3)


def test_a_hit_lens_goes_to_json(retriever: Searcher) -> None:
    seen = lens_hit(QUERY, retriever, k=1)

    data = json.loads(json.dumps(seen.to_json()))

    assert set(data) == {
        *("index", "model", "encoder", "filter", "hidden", "dim", "query", "hit", "written", "score", "shared")
    }
    assert data["hit"] == seen.hit.to_json()
    assert list(data["shared"][0]) == ["id", "token", "share", "query", "hit"]
    assert data["query"]["text"] == QUERY


# what goes wrong


@pytest.mark.parametrize("call", [lambda text, r: lens_text(text, r.encoder), lens_hit], ids=["text", "hit"])
def test_an_empty_text_is_refused(retriever: Searcher, call: Callable[..., Any]) -> None:
    assert message_of(QueryError, lambda: call(" \n", retriever)) == "the text is empty\n  hint: write a text"


def test_a_text_that_the_model_makes_nothing_of_is_refused(mini: Encoder) -> None:
    said = message_of(QueryError, lambda: lens_text("\u200b", mini))

    assert said == "the model gives no vector for the text '\\u200b'\n  hint: use words that it knows"


@pytest.mark.parametrize(
    ("hit", "where", "message"),
    [
        (7, None, "`hit`: the query has 6 hits, there is no hit 7\n  hint: give 1 to 6"),
        (2, "year == 1946", "`hit`: the query has 1 hit, there is no hit 2\n  hint: give 1"),
        (1, "year == 9", "`hit`: the query has 0 hits, there is no hit 1\n  hint: widen the condition"),
    ],
)
def test_a_hit_that_is_not_there_is_told(retriever: Searcher, hit: int, where: str | None, message: str) -> None:
    assert message_of(QueryError, lambda: lens_hit(QUERY, retriever, hit, where=where)) == message


def test_numbers_below_one_are_refused(retriever: Searcher) -> None:
    with pytest.raises(SpecError) as no_hit:
        lens_hit(QUERY, retriever, 0)
    with pytest.raises(SpecError) as no_token:
        lens_text(QUERY, retriever.encoder, k=0)

    assert str(no_hit.value) == "`hit`: hit 0 is none: the best hit is number 1\n  hint: give 1 or more"
    assert str(no_token.value) == "`k`: k=0 names no token\n  hint: give 1 or more"


def test_a_filter_that_scales_has_no_removed_part(small_corpus: Path, tmp_path: Path) -> None:
    build(
        small_corpus,
        tmp_path / "white",
        model="mini-decoder",
        dtype="float32",
        device="cpu",
        filter=FilterSpec("whitening", dim=2),
    )

    with pytest.raises(SpecError) as told:
        lens_hit(QUERY, Index(tmp_path / "white", dtype="float32", device="cpu").searcher)

    assert str(told.value) == (
        "`filter`: the filter stretches what it keeps, so a vector is not what it keeps plus what it removes\n"
        "  hint: take a filter that keeps lengths, such as embedfilter, truncation or pca"
    )


def test_a_filter_that_is_fitted_on_a_corpus_needs_an_index(tiny: Encoder) -> None:
    said = message_of(SpecError, lambda: lens_text(TEXT, tiny, FilterSpec(name="pca", dim=2)))

    assert "is fitted on a corpus, and there is none here" in said


def test_vectors_of_another_width_than_the_head_are_told(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = np.ones((1, 7), np.float32)
    monkeypatch.setattr(type(tiny), "encode_document", lambda self, texts: narrow)

    assert message_of(ModelError, lambda: lens_text(TEXT, tiny)) == (
        "its vectors are 7 wide and its unembedding matrix 32: the lens cannot read them\n"
        "  hint: remove the modules after the language model, with `method=classical`"
    )


def _by_id(tokens: Any) -> np.ndarray:
    assert isinstance(tokens, tuple)
    return np.array([each.logit for each in sorted(tokens, key=lambda each: each.id)])


def _unit(retriever: Searcher, text: str) -> np.ndarray:
    kept = retriever.encoder.encode_document([text]) @ _matrix(retriever)
    return kept / np.linalg.norm(kept)


def _matrix(retriever: Searcher) -> np.ndarray:
    made = make_filter(retriever.spec.filter, retriever.encoder)
    assert made is not None
    return made.matrix


def test_a_hit_of_an_index_of_precomputed_vectors_has_no_lens(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", dim=2) as index:
        index.add_vectors(["a"], [[1.0, 0.0]])

        message = message_of(ModelError, lambda: lens_hit(QUERY, index.searcher))

    assert message.startswith(
        f"{tmp_path / 'index'}: the index holds precomputed vectors: it has no model that encodes"
    )
