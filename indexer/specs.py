"""The specs of an index: which encoder, which filter, how they are stored. Frozen values; see `ragidx.corpora.spec`.

What decides a vector is in a spec; what only decides how fast it is made (device, dtype, batch size) is not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import ChunkSpec, Json, Spec

FILTERS = ("embedfilter", "none")
ATTENTIONS = ("causal", "bidirectional")
POOLINGS = ("mean", "weighted_mean", "last")  # the functions are in ragidx.indexer.pooling, which loads torch


@dataclass(frozen=True, kw_only=True)
class EncoderSpec(Spec):
    """How a text becomes a raw vector. Names are resolved: nothing is left to a default that might change."""

    model: str = "mini"  # a bundled name, a folder, or a hub id
    revision: str | None = None  # of a hub id
    method: str = "classical"
    template: str = "classical"  # a name in templates.toml, or a string with {text}
    pooling: str = "mean"
    attention: str = "causal"
    layer: int = -1  # H^layer; -1: the last one, after the final norm; 0: the input embeddings
    pool_eos: bool = True  # whether an EOS that a template pools counts (echo)
    instruction: str | None = None  # default of queries; None: what the template says
    max_length: int | None = None  # tokens the model reads at most; None: what the model allows

    def __post_init__(self) -> None:
        if self.attention not in ATTENTIONS:
            raise SpecError(f"unknown attention '{self.attention}'", f"known: {', '.join(ATTENTIONS)}")
        if self.max_length is not None and self.max_length < 1:
            raise SpecError(f"a length of {self.max_length} tokens holds nothing", where="max_length")


@dataclass(frozen=True, kw_only=True)
class FilterSpec(Spec):
    """Which directions of the spectrum a stored vector keeps."""

    name: str = "embedfilter"  # or "none"
    tau: float | None = None  # hidden width / kept width; None: keep all
    dim: int | None = None  # kept width; excludes tau
    offset: int | None = None  # first kept column, 0-based; None: the middle, centre-out

    def __post_init__(self) -> None:
        if self.tau is not None and self.dim is not None:
            raise SpecError(
                f"tau={self.tau:g} and dim={self.dim} are both set", "give one of --tau and --dim", where="filter"
            )
        if self.tau is not None and not self.tau >= 1:
            raise SpecError(
                f"tau={self.tau:g} would widen the vectors", "give 1 or more: hidden width / kept width", where="--tau"
            )
        if self.dim is not None and self.dim < 1:
            raise SpecError(f"dim={self.dim} keeps nothing", "give 1 or more", where="--dim")
        if self.offset is not None and self.offset < 0:
            raise SpecError(f"offset={self.offset} is negative", "give 0 or more", where="--filter-offset")
        if self.name == "none" and (self.tau, self.dim, self.offset) != (None, None, None):
            raise SpecError(
                "filter 'none' keeps all raw coordinates",
                "leave out --tau, --dim and --filter-offset",
                where="--filter",
            )

    def width(self, hidden: int) -> int:
        """How many numbers of `hidden` are kept.

        Raises:
            SpecError: nothing would be left, or more is asked for than there is.
        """
        width = self.dim if self.dim is not None else hidden if self.tau is None else int(hidden // self.tau)
        offset = self.offset or 0
        if self.dim is None and self.tau is None:
            width = hidden - offset
        if width < 1:
            what = f"tau={self.tau:g}" if self.tau is not None else f"offset={offset}"
            raise SpecError(f"{what} leaves nothing of {hidden} dimensions", f"give at most {hidden}", where="filter")
        if width > hidden:
            raise SpecError(
                f"dim={width} is wider than the model, which has {hidden}", f"give at most {hidden}", where="--dim"
            )
        if offset + width > hidden:
            raise SpecError(
                f"columns {offset} to {offset + width} are asked for, the model has {hidden}",
                f"give an offset of at most {hidden - width}, or a smaller --dim",
                where="--filter-offset",
            )
        return width


@dataclass(frozen=True, kw_only=True)
class IndexSpec(Spec):
    """Everything that must be equal for two vectors to stand in one index.

    A model is known by the content of its files, not by its name: a folder may move.
    """

    encoder: EncoderSpec = field(default=EncoderSpec())
    filter: FilterSpec = field(default=FilterSpec())
    chunk: ChunkSpec = field(default=ChunkSpec())
    index_type: str = "flat"
    vectors: str = "float16"
    weights: str = ""  # sha256 of the model's weight files, config and tokenizer
    template: str = ""  # the template's pieces as they were, so that a changed template is noticed

    def fingerprint(self) -> str:
        """sha256 (hex) of what decides the vectors; the model's name and the queries' instruction do not."""
        nameless = dataclasses.replace(self.encoder, model="", revision=None, instruction=None)
        return Spec.fingerprint(dataclasses.replace(self, encoder=nameless))


def differences(have: IndexSpec, want: IndexSpec) -> list[str]:
    """One line for each field in which two specs differ, in the user's words."""
    lines = _differences(have.to_json(), want.to_json(), "")
    lines = [line for line in lines if not line.startswith("encoder.instruction ")]  # no stored vector depends on it
    if have.weights == want.weights:
        return [line for line in lines if not line.startswith(("encoder.model ", "encoder.revision "))]
    named = [line for line in lines if line.startswith("encoder.model ")]
    return [line for line in lines if not (named and line.startswith("weights "))]


def _differences(have: dict[str, Json], want: dict[str, Json], prefix: str) -> list[str]:
    lines: list[str] = []
    for name, old in have.items():
        new = want.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            lines.append(f"{prefix}{name} is {_short(old)} in the index, {_short(new)} now")
    return lines


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
