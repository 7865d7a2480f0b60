"""The options of a search: each is one line here, from which every place where it can be given is made.

Python's keywords are these types; the command line, its help, `ragidx.toml`, HTTP, the tools of agents, `help()` and
docs/cli.md follow. What is done with them is in `ragidx.retriever.options`.
"""  # annotations are objects here, not text: they are read

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypedDict

from ragidx.indexer.options import Device, Dtype, Endpoint, Option

_model, _ranking, _hit = (partial(Option, group=group) for group in ("Model", "Ranking", "Hit"))


@dataclass(frozen=True, slots=True)
class Rerank:
    """A model that reads the best passages with the question, and orders them again.

    Attributes:
        model: a cross-encoder or a decoder: a folder or a hub id.
        top: passages that it reads; never fewer than there are to be hits.
        method: auto, cross-encoder, or the name of a prompt: `reranker_methods`.
    """

    model: str
    top: int = 20
    method: str = "auto"


class PlaceKeywords(TypedDict, total=False):
    """Where an index's model is now and how it runs; None: where it was, when the index was made."""

    model: Annotated[str | None, _model("PATH", "Where the index's model is now, if it was moved.")]
    adapters: Annotated[
        Sequence[str] | None, _model("PATH", "Where its LoRA adapters are now: all of them, in order.", typed="adapter")
    ]
    pooler: Annotated[str | None, _model("FILE", "Where the weights of its trainable pooling are now.")]
    device: Device
    dtype: Dtype
    endpoint: Endpoint
    questions: Annotated[
        str | None,
        Option("Q", "What encodes questions: table (of `train questions`) or model [default: as trained].", "Question"),
    ]


class WidthKeywords(TypedDict, total=False):
    """How vectors are compared, by name; None: the default."""

    dim: Annotated[int | None, _ranking("N", "Compare only the first N numbers of the vectors.", least=1)]
    rerank_dim: Annotated[
        int | None, _ranking("N", "With `dim`: compare the found chunks again, by the first N numbers.", least=1)
    ]
    min_score: Annotated[float | None, _ranking("C", "Drop chunks with a cosine below C.", least=-1, most=1)]


class RankKeywords(WidthKeywords, total=False):
    """How chunks are ranked for a question, by name: the options of a search for documents."""

    mode: Annotated[
        Literal["dense", "lexical", "hybrid"] | None,
        _ranking(
            "M",
            "dense (by the vectors), lexical (by the words), or hybrid, which is the default where the index has both.",
        ),
    ]
    weight: Annotated[
        float | None,
        _ranking("W", "Weight of the vectors in hybrid search [default: 0.5, or what adapt chose].", least=0, most=1),
    ]
    fusion: Annotated[
        Literal["z", "rrf"] | None,
        _ranking("F", "z (scores against those of all chunks) or rrf (places) [default: z]."),
    ]
    min_z: Annotated[float | None, _ranking("Z", "Drop chunks with a score of hybrid search below Z.")]
    rerank: Annotated[
        Rerank | None,
        Option("MODEL", "Let a cross-encoder or a decoder read the best, and order them again.", "Reranking"),
    ]


class ShapeKeywords(TypedDict, total=False):
    """What becomes of the ranked chunks, by name."""

    per_document: Annotated[int | None, _hit("N", "At most N hits of a document.", least=1)]
    fold: Annotated[bool, _hit(None, "Show equal and nearly equal passages once.", default=True)]
    mmr: Annotated[
        float | None, _hit("L", "Prefer hits unlike those before; 1 is by score, 0 by unlikeness.", least=0, most=1)
    ]
    context: Annotated[int, _hit("N", "Show N chunks of the document on each side.", default=0, least=0)]


class VectorKeywords(WidthKeywords, ShapeKeywords, total=False):
    """The options of a search by vectors, by name, without the condition."""


class SearchKeywords(RankKeywords, ShapeKeywords, total=False):
    """The options of a search in words, by name, without the condition."""


class AskKeywords(TypedDict, total=False):
    """What is asked for beside them."""

    k: Annotated[int, _hit("N", "Hits to return.", default=10, least=1, for_agents=True)]
    where: Annotated[
        str | None, _ranking("EXPR", "Keep chunks whose metadata match, such as 'year >= 1900'.", for_agents=True)
    ]
    instruction: Annotated[
        str | None, Option("S", "Task sentence put before the query, or task:NAME; '' for none.", "Question")
    ]
