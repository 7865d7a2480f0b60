"""What requests and answers hold, with their limits: checked by pydantic, and published in `/openapi.json`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from ragidx.indexer.options import Option, options_of
from ragidx.retriever.keywords import AskKeywords, SearchKeywords, VectorKeywords

MAX_K = 1_000
MAX_TEXT = 10_000  # characters of a question
MAX_WHERE = 10_000  # characters of a condition
MAX_BATCH = 64  # questions
MAX_CHUNKS = 20_000  # of an answer: questions, by hits of each, by the chunks of a hit with its context
MAX_VECTORS = 64
MAX_WIDTH = 65_536  # dimensions of a vector
MAX_INPUTS = 256  # texts to embed
MAX_DOCUMENT = 4_000_000  # characters
MAX_ID = 4_000  # characters of a document's id


def _is_number(value: Any) -> Any:
    """Neither true nor "1" is 1: to JSON Schema they differ; 1.0 is."""
    if isinstance(value, bool | str):
        raise ValueError("a number is expected")
    return value


def wrong(fault: ValidationError) -> tuple[str, str, str]:
    """What is wrong with a body, where, and pydantic's name for it: of several faults the first."""
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    is_nul = first["type"] == "string_pattern_mismatch"  # the one pattern that there is
    message = "the text has a NUL" if is_nul else first["msg"].removeprefix("Value error, ")
    return message, ".".join(str(part) for part in first["loc"]), first["type"]


NUMBER = BeforeValidator(_is_number)  # after the bounds, or they are not in the description
Whole = Annotated[int, NUMBER]
Number = Annotated[float, Field(allow_inf_nan=False), NUMBER]
_NO_NUL = {"pattern": "^[^\\u0000]*$"}
Text = Annotated[str, Field(pattern=_NO_NUL["pattern"])]
Name = Annotated[Text, Field(min_length=1, max_length=64, description="Which index, where several are served.")]


class Body(BaseModel):
    """A request; what is not known is refused."""

    model_config = ConfigDict(extra="forbid")


_MOST = {"k": MAX_K, "per_document": MAX_K, "dim": MAX_WIDTH, "rerank_dim": MAX_WIDTH, "context": 20}
"""What a service gives at most, where the option itself has no end."""


def _body_of(*keywords: type, but: Collection[str] = ()) -> type[Body]:
    """A body with the options of TypedDicts, which carry their descriptions and bounds."""
    options = {name: one for each in keywords for name, one in options_of(each).items() if name not in but}
    fields: dict[str, Any] = {
        name: (field_type(name, kind, option, _MOST), Field(default=option.default, description=option.about))
        for name, (kind, option) in options.items()
    }
    return create_model("Options", __base__=Body, **fields)


def field_type(name: str, kind: Any, option: Option, most: Mapping[str, int]) -> Any:
    """The type of a field; neither true nor "1" is a number, and no text has a NUL.

    Args:
        name: name of the keyword.
        kind: type of the keyword, which may be None, too.
        option: the option that the keyword's type carries.
        most: where a number ends for this caller, by name.
    """
    plain, *rest = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    strict: Any = plain
    if plain in (int, float):
        finite: Any = {"allow_inf_nan": False} if plain is float else {}
        strict = Annotated[plain, Field(ge=option.least, le=most.get(name, option.most), **finite), NUMBER]
    elif plain is str:
        strict = Annotated[Text, Field(max_length=MAX_WHERE if name == "where" else MAX_TEXT)]
    elif plain is bool:
        strict = StrictBool
    return strict | None if rest else strict


if TYPE_CHECKING:  # their fields are known when they are made

    class _Vectors(Body):
        k: int
        where: str | None

    class _Questions(_Vectors): ...
else:
    _Vectors = _body_of(VectorKeywords, AskKeywords, but=["instruction"])
    _Questions = _body_of(SearchKeywords, AskKeywords, but=["rerank"])


class Ranking(_Questions):
    """The options of a search with questions."""

    index: Name | None = None
    rerank: StrictBool = Field(default=False, description="Let the service's reranker order the best again.")
    rerank_top: Annotated[int, Field(ge=1, le=200, description="Passages that it reads."), NUMBER] | None = None


Question = Annotated[Text, Field(min_length=1, max_length=MAX_TEXT)]


class Search(Ranking):
    """A question."""

    query: Question


class SearchBatch(Ranking):
    """Several questions with the same options."""

    queries: list[Question] = Field(min_length=1, max_length=MAX_BATCH)


Coordinate = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # as Number, at a tenth of the time
Vector = Annotated[list[Coordinate], Field(min_length=1, max_length=MAX_WIDTH)]


class VectorSearch(_Vectors):
    """Vectors in place of questions."""

    index: Name | None = None
    vectors: list[Vector] = Field(min_length=1, max_length=MAX_VECTORS)


class Passage(BaseModel):
    """The part of a hit that is nearest to the question."""

    text: str
    line: int | None
    page: int | None


class Span(BaseModel):
    """A place in a document: characters, end excluded."""

    doc_id: str
    start: int
    end: int


class HitBody(BaseModel):
    """One chunk that was found, as of `ragidx query --json`."""

    rank: int
    score: float
    text: str
    doc_id: str
    chunk_id: str
    start: int
    end: int
    heading: str
    metadata: dict[str, Any]
    dense: float | None
    bm25: float | None
    line: int | None
    page: int | None
    context: str | None
    also: list[Span]
    passage: Passage | None = None


WordsBy = Annotated[str, Field(description="What `bm25` of a hit is: bm25, or ts_rank of PostgreSQL.")]


class Answer(BaseModel):
    """The hits of a question; `took_ms` is by stage."""

    index: str
    generation: int
    created: str
    query: str
    where: str | None
    k: int
    mode: str
    words_by: WordsBy
    stemmer: str | None
    notes: list[str] = Field(description="What there is to say of the whole answer.")
    hits: list[HitBody]
    took_ms: dict[str, float]


class HitsOf(BaseModel):
    """The hits of one question of several."""

    query: str | None = None
    notes: list[str]
    hits: list[HitBody]


class Answers(BaseModel):
    """The hits of several questions or vectors, in their order."""

    index: str
    generation: int
    created: str
    where: str | None
    k: int
    mode: str
    words_by: WordsBy
    answers: list[HitsOf]
    took_ms: dict[str, float]


def _value(value: Any) -> Any:
    """One that metadata can have: any JSON without a NUL."""
    for item in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        _value(item)
    if isinstance(value, str) and "\0" in value:
        raise ValueError("the text has a NUL")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN and infinity are no values: leave the field out")
    return value


Value = Annotated[Any, PlainValidator(_value), WithJsonSchema({"description": "any JSON, its texts without NUL"})]


class DocumentIn(Body):
    """A document to add or replace."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_DOCUMENT)]
    metadata: dict[Annotated[Text, Field(min_length=1, max_length=256)], Value] = Field(default={}, max_length=256)
    markdown: StrictBool = False


class DocumentOut(BaseModel):
    """A document, or characters of it."""

    index: str
    generation: int
    id: str
    text: str
    start: int
    end: int
    n_characters: int
    metadata: dict[str, Any]


class Changed(BaseModel):
    """A change that is committed: on the disk, and shown from now on."""

    index: str
    generation: int
    id: str


class IndexOut(BaseModel):
    """What an index holds."""

    name: str
    ready: bool
    problem: str
    generation: int | None = None
    n_documents: int | None = None
    n_chunks: int | None = None
    dimensions: int | None = None
    model: str | None = None
    mode: str | None = None
    fields: dict[str, str] = {}


class Info(BaseModel):
    """What is served."""

    version: str
    writable: bool
    rerank: str | None
    indexes: list[IndexOut]


_TEXT_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT, **_NO_NUL}
Texts = Annotated[
    list[Question],
    Field(min_length=1, max_length=MAX_INPUTS),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema(
        {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA, "minItems": 1, "maxItems": MAX_INPUTS}]}
    ),
]


class Embed(Body):
    """Texts to encode, as OpenAI's API has it; `model` is NAME for documents, NAME:query for questions."""

    model: Annotated[Text, Field(min_length=1, max_length=80)]
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=MAX_WIDTH), NUMBER] | None = None
    user: Annotated[Text, Field(max_length=256)] | None = None


class Embedding(BaseModel):
    """A vector of unit length; base64 is of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were read; 0 where the model's are not counted."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The vectors of the texts, in their order."""

    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: Usage


class Health(BaseModel):
    """Whether the process, or all of its indexes, can answer."""

    status: str
    indexes: dict[str, str] = {}


class Fault(BaseModel):
    """Why a request failed, and what to do."""

    type: str
    message: str
    hint: str = ""
    where: str = ""


class FaultBody(BaseModel):
    """An answer with a status of 400 or more."""

    error: Fault
