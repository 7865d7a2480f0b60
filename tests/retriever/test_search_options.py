"""The options of a search: checked, and the condition parsed, once, before anything is encoded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever.options import SearchOptions, search_options
from ragidx.retriever.rows import FolderRows, needs_vectors
from ragidx.retriever.where.conditions import Condition

from ..raising import message_of


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Three rows of width 4, and no model that could encode a question."""
    with RowWriter(tmp_path / "index", dim=4) as writer:
        writer.add_vectors(["a", "b", "c"], np.eye(3, 4), metadata=[{"year": 1}, {"year": 2}, {"year": 3}])
        writer.commit()
    return tmp_path / "index"


def test_the_options_hold_the_parsed_condition(index: Path) -> None:
    reader = ragidx.Index(index)

    options = search_options(reader.searcher.store, k=np.int64(2), where="year >= 2", dim=3)  # type: ignore[arg-type]

    assert options == SearchOptions(2, Condition(">=", "year", (2,)), dim=3)
    assert type(options.k) is int


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "`k`: k=0 asks for no hit\n  hint: give 1 or more"),
        (
            {"where": 3},
            "condition: 3 is no condition\n  hint: write a text such as 'year >= 1900', or compare a field: "
            'ragidx.field("year") >= 1900',
        ),
        (
            {"dim": 5},
            "`dim`: dim 5 is not from 1 to 4, the dimensions stored in the index\n"
            "  hint: give at most 4; for more, build again with a larger `dim` and `rebuild=True`",
        ),
    ],
)
def test_wrong_options_are_refused_before_a_model_is_looked_for(
    index: Path, wrong: dict[str, object], message: str
) -> None:
    assert message_of(QueryError, lambda: ragidx.Index(index).search("a question", **wrong)) == message  # type: ignore[arg-type]


# which mode


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., FolderRows]:
    """`make(lexical=False)`: an index of three rows with texts."""

    def call(texts: tuple[str | None, ...] = ("the mill", "lake", "bees"), **options: object) -> FolderRows:
        with RowWriter(tmp_path / "made", 3, **options) as writer:  # type: ignore[arg-type]
            writer.add_vectors(["a", "b", "c"], np.eye(3), list(texts))
            writer.commit()
        return FolderRows.open(tmp_path / "made")

    return call


@pytest.mark.parametrize(
    ("in_words", "encodes", "mode"),
    [(True, True, "hybrid"), (True, False, "lexical"), (False, True, "dense"), (False, False, "dense")],
)
def test_all_that_an_index_has_is_used_where_nothing_is_said(
    in_words: bool, encodes: bool, mode: str, make: Callable[..., FolderRows]
) -> None:
    options = search_options(make(), k=3, in_words=in_words, encodes=encodes)

    assert options == SearchOptions(3, mode=mode)


def test_lexical_search_without_a_lexical_part_is_refused_with_the_reason(make: Callable[..., FolderRows]) -> None:
    off = make(lexical=False)
    assert search_options(off, k=3, in_words=True).mode == "dense"
    for mode in ("lexical", "hybrid"):
        assert message_of(QueryError, lambda mode=mode: search_options(off, k=3, in_words=True, mode=mode)) == (
            f"{off.path}: the index has no lexical part: it was built without one\n"
            "  hint: build again, which encodes nothing anew, with `lexical=True`; or search with `mode=dense`"
        )


def test_texts_without_a_word_are_no_lexical_part(make: Callable[..., FolderRows]) -> None:
    store = make(("...", "---", None))

    assert search_options(store, k=3, in_words=True).mode == "dense"
    with pytest.raises(QueryError, match="it has no texts"):
        search_options(store, k=3, in_words=True, mode="lexical")


@pytest.mark.parametrize(
    ("options", "vectors"),
    [
        ({"mode": "dense"}, True),
        ({"mode": "hybrid"}, True),
        ({"mode": "lexical"}, False),
        ({"mode": "lexical", "min_score": 0.5}, True),
    ],
)
def test_a_question_is_encoded_where_a_cosine_is_needed(
    options: dict[str, object], vectors: bool, make: Callable[..., FolderRows]
) -> None:
    assert needs_vectors(search_options(make(), k=3, in_words=True, **options)) == vectors  # type: ignore[arg-type]


# what is refused

NAN = float("nan")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": "3"}, "`k`: k='3' is not a whole number|give 1 or more"),
        ({"k": True}, "`k`: k=True is not a whole number|give 1 or more"),
        ({"k": None}, "`k`: k=None is not a whole number|give 1 or more"),
        ({"mode": "hybird"}, "`mode`: unknown mode 'hybird'; did you mean 'hybrid'?|known: dense, hybrid, lexical"),
        ({"mode": ""}, "`mode`: unknown mode ''|known: dense, hybrid, lexical"),
        ({"fusion": "rff"}, "`fusion`: unknown fusion 'rff'; did you mean 'rrf'?|known: rrf, z"),
        ({"fusion": ""}, "`fusion`: unknown fusion ''|known: rrf, z"),
        ({"weight": NAN}, "`weight`: weight=nan is out of range|give from 0 to 1"),
        ({"weight": 1.1}, "`weight`: weight=1.1 is out of range|give from 0 to 1"),
        ({"weight": -0.1}, "`weight`: weight=-0.1 is out of range|give from 0 to 1"),
        ({"weight": "0.5"}, "`weight`: weight='0.5' is out of range|give from 0 to 1"),
        ({"weight": True}, "`weight`: weight=True is out of range|give from 0 to 1"),
        ({"mode": "dense", "weight": 0.5}, "`weight`: it is for hybrid search, and this one is dense|remove it"),
        ({"mode": "lexical", "weight": 0.5}, "`weight`: it is for hybrid search, and this one is lexical|remove it"),
        ({"mode": "dense", "fusion": "z"}, "`fusion`: it is for hybrid search, and this one is dense|remove it"),
        ({"mode": "lexical", "fusion": "rrf"}, "`fusion`: it is for hybrid search, and this one is lexical|remove it"),
        (
            {"min_z": 1, "fusion": "rrf"},
            "`min_z`: rrf gives places, no sums of z-scores|use `min_score`, which limits the cosine",
        ),
        (
            {"min_z": 1, "mode": "dense"},
            "`min_z`: dense search has no z-scores|use `min_score`, which limits the cosine",
        ),
        (
            {"min_z": 1, "mode": "lexical"},
            "`min_z`: lexical search has no z-scores|use `min_score`, which limits the cosine",
        ),
        ({"min_z": NAN}, "`min_z`: min_z=nan is out of range|give a number"),
        ({"min_score": 1.01}, "`min_score`: min_score=1.01 is out of range|give from -1 to 1"),
        ({"min_score": NAN}, "`min_score`: min_score=nan is out of range|give from -1 to 1"),
        ({"mmr": 2}, "`mmr`: mmr=2 is out of range|give from 0 to 1"),
        ({"mmr": NAN}, "`mmr`: mmr=nan is out of range|give from 0 to 1"),
        ({"per_document": 0}, "`per_document`: per_document=0 is less than 1|give 1 or more"),
        ({"per_document": 1.5}, "`per_document`: per_document=1.5 is not a whole number|give 1 or more"),
        ({"per_document": True}, "`per_document`: per_document=True is not a whole number|give 1 or more"),
        ({"context": -1}, "`context`: context=-1 is less than 0|give 0 or more"),
        ({"context": None}, "`context`: context=None is not a whole number|give 0 or more"),
        (
            {"mode": "lexical", "dim": 2},
            "`dim`: lexical search compares no vectors|remove it, or search with `mode=hybrid`",
        ),
        ({"rerank_dim": 2}, "`rerank_dim`: this compares again what `dim` has found|give `dim`, too"),
    ],
    ids=str,
)
def test_an_option_that_is_wrong_is_refused_with_the_reason(
    options: dict[str, object], message: str, make: Callable[..., FolderRows]
) -> None:
    said = message_of(QueryError, lambda: search_options(make(), in_words=True, **options))  # type: ignore[arg-type]

    assert said == message.replace("|", "\n  hint: ")


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_a_vector_has_no_words(mode: str, make: Callable[..., FolderRows]) -> None:
    searcher = ragidx.Index(make().path).searcher

    assert message_of(QueryError, lambda: searcher.search(vectors=np.eye(3), mode=mode)) == (
        f"`mode`: a vector has no words for {mode} search\n  hint: ask with a text"
    )


def test_an_option_that_there_is_not_is_a_programs_mistake(make: Callable[..., FolderRows]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'wieght'"):
        search_options(make(), k=3, wieght=1)  # type: ignore[call-arg]
