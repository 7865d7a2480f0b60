"""The options of an evaluation, each one line here: the grid, the questions that are asked, and what is concluded.

The options of `ragidx evaluate`, `sweep` and `tune` are made of them, as others are of `ragidx.retriever.keywords`.
"""  # annotations are objects here, not text: they are read

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, get_args

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.ann.index_types import FLAT, INDEX_TYPES
from ragidx.indexer.options import Option, described, options_of
from ragidx.indexer.specs import FILTERS

KINDS = ("sentence", "title")
"""Kinds of queries that are made of a corpus."""

MARGIN = 0.01
ANSWERS, LEAST_ANSWERS = 100, 10
"""Documents that are kept of each query by default, and that measures need."""

_Texts: TypeAlias = str | Sequence[str] | None
_Ints: TypeAlias = int | Sequence[int] | None
_Floats: TypeAlias = float | Sequence[float] | None
_File: TypeAlias = str | Path | None

_method, _filter, _ranking, _question, _comparison = (
    partial(Option, group=group) for group in ("Method", "Filter", "Ranking", "Question", "Comparison")
)
_NUMBERS = {int: (Integral, "a whole number"), float: (Real, "a number"), bool: (bool, "true or false")}


@described
@dataclass(frozen=True, kw_only=True)
class Grid:
    """The configurations that are measured: all combinations of what is named, one value or several of each."""

    model: Annotated[_Texts, Option("ID|PATH", "A model, as for build.", "Model")] = None
    method: Annotated[_Texts, _method("M", "A method, as for build.")] = None
    template: Annotated[_Texts, _method("T", "A template's name, or a string with {text}.")] = None
    pooling: Annotated[_Texts, _method("P", "A pooling.")] = None
    attention: Annotated[_Texts, _method("A", "An attention: causal, bidirectional.")] = None
    layer: Annotated[_Ints, _method("N", "A hidden layer.")] = None
    copies: Annotated[_Ints, _method("N", "How often echo or reba repeats the text.")] = None
    max_length: Annotated[_Ints, _method("N", "The most tokens of a text that are read.")] = None
    compute_matched: Annotated[
        bool | Sequence[bool] | None,
        _method("yes|no", "Whether `max_length` is of all copies of the text together."),
    ] = None
    instruction: Annotated[_Texts, _method("S", "A task sentence of queries, or task:NAME; '' for none.")] = None
    questions: Annotated[_Texts, _question("Q", "What encodes questions: table (of `train questions`), model.")] = None
    filter: Annotated[_Texts, _filter("F", f"A filter: {', '.join(FILTERS)}, head:FILE.")] = None
    tau: Annotated[_Floats, _filter("N", "A width as hidden width / N.")] = None
    dim: Annotated[_Ints, _filter("N", "A width to measure.")] = None
    offset: Annotated[
        _Ints, _filter("N", "embedfilter: the first kept direction of the spectrum.", typed="filter-offset")
    ] = None
    index_type: Annotated[
        _Texts, Option("T", f"An index type: {', '.join(INDEX_TYPES)}, or a factory string [default: {FLAT}].", "Index")
    ] = None
    center: Annotated[
        bool | Sequence[bool] | None, _filter("yes|no", "Whether the filter takes the means of both sides off.")
    ] = None
    mode: Annotated[_Texts, _ranking("M", "A search: dense, lexical, hybrid [default: all of them].")] = None
    fusion: Annotated[_Texts, _ranking("F", "Fusion of hybrid search: z, rrf [default: z].")] = None
    weight: Annotated[
        _Floats, _ranking("W", "Weight of the cosine in hybrid search, 0 to 1 [default: the index's own, else 0.5].")
    ] = None

    def __post_init__(self) -> None:
        axes = self.axes()
        for name, (kinds, _) in options_of(Grid).items():
            kind, wanted = _NUMBERS.get(get_args(kinds)[0], (str, ""))
            for value in axes.get(name, ()) if wanted else ():
                if value is not None and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
                    raise SpecError(f"{name}={value!r} is not {wanted}", "give one", where=f"`{name}`")

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The values of each axis that has some, each once."""
        named = {name: value for name, value in vars(self).items() if value is not None}
        return {name: tuple(some) for name, value in named.items() if (some := as_list(value))}


@described
@dataclass(frozen=True)
class Questions:
    """The queries that ask, and what judges them: made by `Questions.read`, `Questions.made` or `Questions.of_log`."""

    queries: Annotated[_File, _question("FILE", "Queries: JSON lines, lines of id, tab and text, or TREC topics.")] = (
        None
    )
    qrels: Annotated[_File, _question("FILE", "Relevance judgements, BEIR or TREC.")] = None
    split: Annotated[str, _question("S", "The split of a folder's judgements, or pairs.")] = "test"
    drop_self: Annotated[bool, _question(None, "The document with the query's id is no answer.")] = False
    without_labels: Annotated[
        bool, _question(None, "Make queries of the corpus: a sentence is taken out of its document.")
    ] = False
    log: Annotated[
        _File,
        _question(
            "FILE",
            "Queries that nobody judged: how alike the rows answer them; says nothing of quality.",
            typed="query-log",
        ),
    ] = None
    kind: Annotated[str, _question("K", "Kind of made queries: sentence, title.")] = KINDS[0]
    seed: Annotated[int, _question("N", "Seed of the draw of made queries.")] = 0
    vectors: Annotated[
        _File,
        _question(
            "FILE",
            "For an index: the vectors of the queries, in their order, an .npy file or JSON, as for query --vector.",
            typed="query-vectors",
        ),
    ] = None

    @classmethod
    def read(
        cls,
        queries: _File = None,
        qrels: _File = None,
        split: str = "test",
        *,
        drop_self: bool = False,
        vectors: _File = None,
    ) -> Self:
        """Queries of a file, and what judges them; by default those of the BEIR folder that is measured.

        `vectors` are for an index whose costs are measured; without `queries` they ask, and nothing judges them.
        """
        return cls(queries, qrels, split, drop_self, vectors=vectors)

    @classmethod
    def made(cls, kind: str = KINDS[0], seed: int = 0) -> Self:
        """Queries that are made of the corpus itself, and need no judgements: a sentence or a title of a document."""
        return cls(without_labels=True, kind=kind, seed=seed)

    @classmethod
    def of_log(cls, file: str | Path) -> Self:
        """Queries that nobody judged: how alike configurations answer them, which says nothing of quality."""
        return cls(log=file)

    def __post_init__(self) -> None:
        """Refuse what the three ways cannot say, but the command line can."""
        said = {name: getattr(self, name) for name in ("queries", "qrels", "without_labels", "log")}
        ways = [name for name, value in said.items() if value not in (None, False)]
        if len(ways) > 1 and ways != ["queries", "qrels"]:
            named = " and ".join(f"`questions.{name}`" for name in ways)
            raise SpecError(f"{named} exclude each other: each says which queries ask", "give one of them")
        if not self.without_labels and (self.kind, self.seed) != (KINDS[0], 0):
            where = "`seed`" if self.seed else "`kind`"
            raise SpecError("it is for queries that are made of the corpus", "add `without_labels=True`", where=where)
        if self.kind not in KINDS:
            raise unknown_name("kind of query", self.kind, KINDS)


@described
@dataclass(frozen=True)
class Judge:
    """The measure, reference and margin of what is concluded, and how many answers it is concluded from."""

    measure: Annotated[str | None, _comparison("M", "The measure that intervals and tests are of.")] = None
    reference: Annotated[
        str | None,
        _comparison(
            "NAME",
            "Words of the row that the others are compared with [default: the first; without labels the first hybrid].",
        ),
    ] = None
    margin: Annotated[float, _comparison("M", "What the cheapest row may lose against the best.")] = MARGIN
    all_pairs: Annotated[bool, _comparison(None, "Compare each row with each other, not with the reference alone.")] = (
        False
    )

    answers: Annotated[
        int,
        _comparison(
            "N",
            "Documents that are kept of each query; `measure` recall@1000 is of 1,000.",
            default=ANSWERS,
            least=LEAST_ANSWERS,
        ),
    ] = ANSWERS

    def __post_init__(self) -> None:
        check_margin(self.margin)
        if not isinstance(self.answers, Integral) or self.answers < LEAST_ANSWERS:
            hint = f"give a whole number from {LEAST_ANSWERS} on"
            raise SpecError(f"answers={self.answers!r} is too little to measure", hint, where="`answers`")


def check_margin(margin: float) -> None:
    """Whether a margin is a loss that may be allowed.

    Raises:
        SpecError: it is none, or any.
    """
    if not 0 < margin < math.inf:
        allows = "any loss" if margin > 0 else "no loss"
        raise SpecError(f"margin={margin:g} allows {allows}", "give a number above 0", where="`margin`")


_NOW = {
    **{name: f"grid=Grid({name}=...)" for name in options_of(Grid)},
    **{name: f"judge=Judge({name}=...)" for name in options_of(Judge)},
    **{name: f"questions=Questions.read({name}=...)" for name in ("queries", "qrels", "split", "drop_self")},
    **{name: f"questions=Questions.made({name}=...)" for name in ("kind", "seed")},
    "query_vectors": "questions=Questions.read(vectors=...)",
    "without_labels": "questions=Questions.made()",
    "query_log": "questions=Questions.of_log(...)",
}
"""What stands for a keyword that evaluate, or tune, once had."""


def check_moved(door: str, options: Mapping[str, object], *values: str) -> None:
    """Whether none of the options is now a field of one of these values: grid, questions, judge.

    Raises:
        SpecError: one is.
    """
    for name in options:
        if _NOW.get(name, "").partition("=")[0] in values:
            raise SpecError(f"{door} takes it in a value", f"give `{_NOW[name]}`", where=f"`{name}`")


def as_list(value: Any) -> list[Any]:
    """A value, or several, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value]
    return list(dict.fromkeys(value))
