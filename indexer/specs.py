"""The specs of an index: which encoder, which filter, how they are stored. Frozen values; see `ragidx.corpora.spec`.

What decides a vector is in a spec; what only decides how fast it is made (device, dtype, batch size) is not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.spec import ChunkSpec, Spec, later

ATTENTIONS = ("causal", "bidirectional")
POOLINGS = ("mean", "weighted_mean", "last", "eos", "bos", "trainable")  # what they do: ragidx.indexer.encoders.pooling
TRUNCATIONS = ("end", "middle")
_NAMELESS: dict[str, Any] = {"model": "", "instruction": None, "adapters": ()} | dict.fromkeys(
    ("revision", "pooler", "tokenizer")
)
MAX_COPIES = 64  # of a text in what the model reads; the papers go to five


@dataclass(frozen=True, kw_only=True)
class EncoderSpec(Spec):
    """How a text becomes a raw vector. Names are resolved: nothing is left to a default that might change.

    `ragidx.indexer.options.EncoderOptions` says what each field is.
    """

    model: str = "mini"
    revision: str | None = None
    adapters: tuple[str, ...] = later(())
    method: str = "classical"
    template: str = "classical"
    template_query: str | None = later(None)
    copies: int | None = later(None)
    pooling: str = "mean"
    pooler: str | None = later(None)
    attention: str = "causal"
    layer: int = -1  # H^layer; -1 is after the final norm
    layer_norm: bool = later(False)
    pool_eos: bool = True
    instruction: str | None = None
    max_length: int | None = None
    compute_matched: bool = later(False)
    truncate: str = later("end")
    tokenizer: str | None = later(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention not in ATTENTIONS:
            raise unknown_name("attention", self.attention, ATTENTIONS)
        if self.truncate not in TRUNCATIONS:
            raise unknown_name("way to truncate", self.truncate, TRUNCATIONS)
        if self.copies is not None and not 1 <= self.copies <= MAX_COPIES:
            raise SpecError(f"a text cannot be read {self.copies:,} times", f"give 1 to {MAX_COPIES}", where="`copies`")
        if self.compute_matched and self.max_length is None:  # nothing to share: older indexes say so, and mean this
            object.__setattr__(self, "compute_matched", False)
        if self.max_length is not None and self.max_length < 1:
            raise SpecError(
                f"a length of {self.max_length} tokens holds nothing", "give 1 or more", where="`max_length`"
            )


@dataclass(frozen=True)
class FilterKind:
    """What a filter keeps and needs. `ragidx.indexer.filters.filter` makes the filters."""

    keeps: str  # what of a vector stays
    fields: tuple[str, ...] = ()  # the fields of `FilterSpec` it has besides tau and dim
    head: bool = False  # it reads the model's unembedding matrix
    nested: bool = True  # the first j stored dimensions are the vector of the filter of width j

    @property
    def calibrated(self) -> bool:
        """Whether it is fitted on a sample of the corpus."""
        return "sample" in self.fields


# Names as in tables 5 and 6 of the EmbedFilter paper: dominant, secondary and bulk say what is removed.
FILTERS = {
    "embedfilter": FilterKind("the middle of the spectrum", ("offset",), head=True),
    "truncation": FilterKind("the first coordinates"),
    "random": FilterKind("random coordinates", ("seed",), nested=False),
    "random-directions": FilterKind("random directions of the spectrum", ("seed",), head=True, nested=False),
    "dominant": FilterKind("the end of the spectrum, its smallest singular values", head=True),
    "secondary": FilterKind("the start of the spectrum, its largest singular values", head=True),
    "bulk": FilterKind("both ends of the spectrum", head=True),
    "optimal": FilterKind("the directions that raise frequent tokens least", ("seed", "sample", "topk"), head=True),
    "optimal-abs": FilterKind("the directions that move frequent tokens least", ("seed", "sample", "topk"), head=True),
    "whitening": FilterKind("principal components of the corpus, each scaled to variance 1", ("seed", "sample")),
    "pca": FilterKind("principal components of the corpus", ("seed", "sample", "power")),
    "none": FilterKind("all raw coordinates"),
}
HEAD = "head:"
"""The start of a trained head's name: `head:FILE` where it is asked for, in an index `head:` and a hash."""

TRAINED_HEAD, CENTRED_FILTER, ADAPTED_FILTER = "trained head", "centred filter", "adapted filter"
QUESTION_TABLE = "question table"
"""What readers of an index may have to know."""

TOKEN_TABLE = "token-table"
"""The `model_type` of a model that is a table of tokens (`ragidx.indexer.token_table`)."""

TABLE, MODEL = QUESTIONS = "table", "model"
"""What may encode the questions of an index."""

_HEAD_KIND = FilterKind("a trained map of all coordinates")


def filter_kind(name: str) -> FilterKind:
    """What a filter keeps and needs, by its name.

    Raises:
        SpecError: there is no such filter.
    """
    if name.startswith(HEAD) and name != HEAD:
        return _HEAD_KIND
    if name not in FILTERS:
        raise unknown_name("filter", name, (*FILTERS, f"{HEAD}FILE"))
    return FILTERS[name]


@dataclass(frozen=True)
class FilterSpec(Spec):
    """What of an embedding a stored vector keeps.

    In a request, a field that is not named is that of the index, else the preset's.
    """

    name: str = "embedfilter"  # one of FILTERS, or head:FILE
    _: KW_ONLY
    tau: float | None = None  # hidden width / kept width; None: keep all
    dim: int | None = None  # kept width; excludes tau
    offset: int | None = None  # embedfilter: first kept column, 0-based; None: the middle, centre-out
    seed: int = later(0)  # of what is drawn: coordinates, directions, or the sample of the corpus
    sample: int = later(4096)  # chunks of the corpus a filter is fitted on, at most
    topk: int = later(100)  # optimal: how many of the most frequent tokens count
    power: float = later(0.0)  # pca: components are divided by their deviation to this power; 1 is whitening
    center: bool = later(False)  # the mean of documents is taken off documents, that of questions off questions
    adapted: str = later("")  # content of the map that `ragidx adapt` trained for the vectors of an index; "": none

    def __post_init__(self) -> None:
        super().__post_init__()
        filter_kind(self.name)
        if self.tau is not None and float(self.tau).is_integer():
            object.__setattr__(self, "tau", int(self.tau))  # 2 and 2.0 are one choice, and one fingerprint
        object.__setattr__(self, "power", float(self.power))
        if self.tau is not None and self.dim is not None:
            raise SpecError(
                f"tau={self.tau:g} and dim={self.dim} are both set",
                "give one of `filter.tau` and `filter.dim`",
                where="filter",
            )
        if self.tau is not None and not self.tau >= 1:
            fault = "is not a number" if math.isnan(self.tau) else "would widen the vectors"
            hint = "give 1 or more: hidden width / kept width"
            raise SpecError(f"tau={self.tau:g} {fault}", hint, where="`filter.tau`")
        if self.dim is not None and self.dim < 1:
            raise SpecError(f"dim={self.dim} keeps nothing", "give 1 or more", where="`filter.dim`")
        if self.offset is not None and self.offset < 0:
            raise SpecError(f"offset={self.offset} is negative", "give 0 or more", where="`filter.offset`")
        if self.name == "none" and (self.tau, self.dim, self.offset) != (None, None, None):
            raise SpecError(
                "filter 'none' keeps all raw coordinates",
                "remove `filter.tau`, `filter.dim` and `filter.offset`",
                where="`filter`",
            )
        if "name" in self.given or not self.given:
            self._check_own_fields()

    @property
    def fitted(self) -> str:
        """What of it is fitted on a sample of the corpus; "": nothing."""
        if filter_kind(self.name).calibrated:
            return f"filter '{self.name}'"
        return "the mean" if self.center else ""

    @property
    def nested(self) -> bool:
        """Whether the first j stored dimensions are the vector of width j."""
        return bool(self.adapted) or filter_kind(self.name).nested

    @property
    def counts_tokens(self) -> bool:
        """Whether it is fitted on the tokens of the sample."""
        kind = filter_kind(self.name)
        return kind.calibrated and kind.head

    @property
    def wants_embeddings(self) -> bool:
        """Whether it is fitted on the embeddings of the sample."""
        return bool(self.fitted) and (self.center or not self.counts_tokens)

    def _check_own_fields(self) -> None:
        """Those that only some filters have."""
        if self.center and self.name.startswith(HEAD):
            raise SpecError(
                "a trained head has its own mean, of the texts that it was trained on",
                "remove `filter.center`",
                where="`filter.center`",
            )
        of_a_sample = {"seed", "sample"} if self.center else set[str]()
        for name in ("offset", "seed", "sample", "topk", "power"):
            default = type(self).__dataclass_fields__[name].default
            if getattr(self, name) != default and name not in {*filter_kind(self.name).fields, *of_a_sample}:
                owners = ", ".join(owner for owner, kind in FILTERS.items() if name in kind.fields)
                raise SpecError(
                    f"filter '{self.name}' has no {name}",
                    f"remove `filter.{name}`, or take a filter that has one: {owners}",
                    where=f"`filter.{name}`",
                )
        if self.sample < 2:
            raise SpecError(f"in a sample of {self.sample} nothing varies", "give 2 or more", where="`filter.sample`")
        if not 0 <= self.power <= 1:
            raise SpecError(
                f"power={self.power:g} is out of range", "give 0, plain PCA, to 1, whitening", where="`filter.power`"
            )
        if self.topk < 1:
            raise SpecError(f"topk={self.topk} counts no token", "give 1 or more", where="`filter.topk`")

    def from_column(self, offset: int | None, hidden: int | None) -> Self:
        """With the first column that the model's preset names, as far as there is room; one that is set stays."""
        if offset is None or self.offset is not None or self.name != "embedfilter":
            return self
        return dataclasses.replace(self, offset=offset if hidden is None else min(offset, hidden - self.width(hidden)))

    def width(self, hidden: int) -> int:
        """The kept width, of `hidden` dimensions.

        Raises:
            SpecError: nothing would be left, or the width is more than `hidden`.
        """
        offset = self.offset or 0
        width = self.dim or (hidden - offset if self.tau is None else int(hidden // self.tau))
        if width < 1:
            name, value, most = ("offset", offset, hidden - 1) if self.tau is None else ("tau", self.tau, hidden)
            raise SpecError(
                f"{name}={value:g} leaves nothing of {hidden} dimensions",
                f"give at most {most}",
                where=f"`filter.{name}`",
            )
        if width > hidden:
            raise SpecError(
                f"dim={width} is wider than the model, which has {hidden}",
                f"give at most {hidden}",
                where="`filter.dim`",
            )
        if offset + width > hidden:
            raise SpecError(
                f"columns {offset} to {offset + width} are asked for, the model has {hidden}",
                f"give an offset of at most {hidden - width}, or a smaller `filter.dim`",
                where="`filter.offset`",
            )
        return width


@dataclass(frozen=True, kw_only=True)
class Precomputed(Spec):
    """Precomputed vectors: the index was built from vectors, not from texts."""

    made_by: str = ""  # the model that made them, in the user's words; never looked up
    input_dim: int | None = None  # their full width, if the index keeps only the first dimensions


@dataclass(frozen=True, kw_only=True)
class IndexSpec(Spec):
    """Everything that must be equal for two vectors to be in one index.

    A model is identified by the content of its files, not by its name: a folder may move.
    """

    encoder: EncoderSpec | None = field(default=EncoderSpec())  # how a text becomes a vector; None: no model
    filter: FilterSpec = field(default=FilterSpec())
    chunk: ChunkSpec = field(default=ChunkSpec())
    index_type: str = "flat"
    vectors: str = "float16"
    weights: str = ""  # sha256 of the files of the model, its adapters and its pooler
    template: str = ""  # the template's pieces as they were, so that a changed template is noticed
    precomputed: Precomputed | None = later(None)  # noqa: RUF009  # its default is None
    weight: float | None = later(None)  # of the cosine in hybrid search, of the preset or by `ragidx adapt`
    questions: str = later("")  # table or model, whichever encodes questions; empty: there is no table

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is None and self.precomputed is None:
            raise SpecError("an index has an encoder, or precomputed vectors")
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise SpecError(f"weight={self.weight:g} is not from 0 to 1", where="`weight`")
        if self.questions not in ("", *QUESTIONS):
            raise SpecError(f"questions={self.questions!r} is neither table nor model", where="`questions`")

    def encoder_fingerprint(self) -> str:
        """sha256 (hex) of what decides the vectors before the filter."""
        return dataclasses.replace(self, filter=FilterSpec("none"), chunk=ChunkSpec()).fingerprint()

    def fingerprint(self) -> str:
        """sha256 (hex) of what decides the vectors.

        Names of files, the queries' instruction, the index type, the weight of a search and what encodes questions do
        not; `weights` holds the content of the model, its adapters and its pooler.
        """
        return Spec.fingerprint(
            dataclasses.replace(
                self,
                encoder=None if self.encoder is None else dataclasses.replace(self.encoder, **_NAMELESS),
                index_type="flat",
                weight=None,
                questions="",
                precomputed=None if self.precomputed is None else Precomputed(),
            )
        )


def requirements(stored: Mapping[str, object]) -> tuple[str, ...]:
    """What a reader of an index must know, by the spec that it stores."""
    found = stored.get("filter")
    if not isinstance(found, dict):
        found = {}
    needed = {
        TRAINED_HEAD: str(found.get("name", "")).startswith(HEAD),
        CENTRED_FILTER: found.get("center") is True,
        ADAPTED_FILTER: bool(found.get("adapted")),
        QUESTION_TABLE: bool(stored.get("questions")),
    }
    return tuple(name for name, is_needed in needed.items() if is_needed)


def holds_precomputed(stored: Mapping[str, object]) -> bool:
    """Whether the spec that an index stores is one of precomputed vectors."""
    return stored.get("precomputed") is not None
