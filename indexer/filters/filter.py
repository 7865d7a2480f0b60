"""Filters: the map from an embedding to the stored numbers.

embeddings (n, d) -> (n, k) float32, k = d // tau: `e @ matrix - shift`. EmbedFilter and its relatives keep directions
of the spectrum of the unembedding matrix, `W_U = U Sigma V^T`: orthonormal columns, so the reduced form `e V[:, kept]`
has the inner products of the projection `e V[:, kept] V[:, kept]^T`. Truncation and random keep coordinates; whitening
and PCA are fitted on a sample of the corpus and take its mean away; a head was trained on pairs. With `center` any of
them but a head takes the mean of documents off documents, and the mean of questions off questions. Sources: the
EmbedFilter paper, sections 4 and 5.4 (the baselines of its tables 5 and 6); BERT-whitening, Su et al. 2021. Nothing is
normalised here: an `Embedder` does that, last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.arrays import Doubles, Floats, Ints
from ragidx.indexer.filters.fitting import FilterSample, lowest
from ragidx.indexer.filters.heads import Head, load_head
from ragidx.indexer.filters.logits import average_of_log_p, delta, log_frequencies, top_tokens
from ragidx.indexer.filters.unembedding import Spectrum, find_unembedding, spectrum_of
from ragidx.indexer.model_files import expanded
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import HEAD, FilterSpec

if TYPE_CHECKING:
    from torch import Tensor

Rows = TypeVar("Rows", Floats, "Tensor")

_THEN = "then."  # before the names of what belongs to the map behind a filter


@dataclass(frozen=True, eq=False)
class Filter:
    """A linear map, applied to pooled embeddings.

    Attributes:
        matrix: (d, k) float32.
        columns: (k,) which directions of the spectrum, or coordinates, it keeps, in stored order; None: neither.
        shift: (k,) float32, the mean of the corpus through the matrix; None: nothing is taken away.
        query_shift: (k,) float32, the same for questions; None: that of documents.
        then: a map of what this one gives, at length 1, in an index that was adapted. `mapped` applies it, and what is
            behind it; calling the filter does not.
    """

    matrix: Floats
    columns: Ints | None = None
    shift: Floats | None = None
    query_shift: Floats | None = None
    then: Filter | None = None

    def __post_init__(self) -> None:
        for name in ("matrix", "columns", "shift", "query_shift"):
            value = getattr(self, name)
            if value is not None:
                dtype = np.int64 if name == "columns" else np.float32
                object.__setattr__(self, name, np.ascontiguousarray(value, dtype=dtype))
        for name in ("columns", "shift", "query_shift"):
            value = getattr(self, name)
            if self.matrix.ndim != 2 or (value is not None and value.shape != self.matrix.shape[1:]):
                raise ValueError(f"a filter of shape {self.matrix.shape} has no {name} of shape {np.shape(value)}")
        if self.then is not None and self.then.hidden != self.matrix.shape[1]:
            raise ValueError(f"a map of width {self.then.hidden} behind a filter that gives {self.matrix.shape[1]}")

    def __repr__(self) -> str:
        """In a line, without the matrix."""
        return f"<{type(self).__name__} from {self.hidden} to {self.dim} dimensions>"

    @property
    def hidden(self) -> int:
        """Width of what goes in."""
        return int(self.matrix.shape[0])

    @property
    def dim(self) -> int:
        """Width of what comes out, of the last map."""
        return int(self.matrix.shape[1]) if self.then is None else self.then.dim

    def __call__(self, embeddings: ArrayLike) -> Floats:
        """(n, d) -> (n, k), in float32. A zero embedding stays zero.

        Raises:
            ValueError: the embeddings are not d wide.
        """
        rows = np.asarray(embeddings, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.hidden:
            raise ValueError(f"the filter takes embeddings of shape (n, {self.hidden}), got {rows.shape}")
        return apply(rows, self.matrix, self.shift)

    def mapped(self, units: Floats) -> Floats:
        """What the filter gave, at length 1, through all maps behind it: (n, k) -> (n, dim) of length 1 or zero."""
        return units if self.then is None else self.then.mapped(l2_normalize(self.then(units)).vectors)

    def followed(self, last: Filter) -> Filter:
        """The filter with one more map behind all others."""
        return replace(self, then=last if self.then is None else self.then.followed(last))

    def of_queries(self) -> Filter:
        """The filter for questions."""
        if self.query_shift is None:
            return self
        return replace(self, shift=self.query_shift, query_shift=None)

    def centred(self, documents: Doubles, questions: Doubles) -> Filter:
        """The filter that takes these means, (d,), off documents and questions before anything else."""
        shift, query_shift = ((mean @ self.matrix).astype(np.float32) for mean in (documents, questions))
        return Filter(self.matrix, self.columns, shift, query_shift)

    def narrowed(self, dim: int) -> Filter:
        """The filter of the first `dim` dimensions."""
        if self.then is not None:
            return replace(self, then=self.then.narrowed(dim))
        columns = None if self.columns is None else self.columns[:dim]
        shift, query_shift = (None if part is None else part[:dim] for part in (self.shift, self.query_shift))
        return Filter(self.matrix[:, :dim], columns, shift, query_shift)

    def to_bytes(self) -> bytes:
        """The filter as a safetensors file."""
        return save_tensors(self._tensors())

    def _tensors(self) -> dict[str, NDArray[Any]]:
        named = {name: getattr(self, name) for name in ("matrix", "columns", "shift", "query_shift")}
        behind = {} if self.then is None else {f"{_THEN}{name}": part for name, part in self.then._tensors().items()}
        return {name: part for name, part in named.items() if part is not None} | behind

    def content(self) -> str:
        """16 hexadecimal digits that are those of this filter alone."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:16]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            IndexFormatError: the bytes are not a filter.
        """
        hint, where = "build again with `rebuild=True`", "filter.safetensors"
        try:
            tensors = load_tensors(data)
            made = cls._of(tensors)
        except (SafetensorError, KeyError, ValueError, TypeError) as fault:
            raise IndexFormatError("the filter of the index cannot be read", hint, where=where) from fault
        if not all(np.isfinite(part).all() for part in tensors.values()):
            raise IndexFormatError("the filter of the index holds numbers that are not finite", hint, where=where)
        return made

    @classmethod
    def _of(cls, tensors: Mapping[str, NDArray[Any]]) -> Self:
        behind = {name.removeprefix(_THEN): part for name, part in tensors.items() if name.startswith(_THEN)}
        shifts = tensors.get("shift"), tensors.get("query_shift")
        return cls(tensors["matrix"], tensors.get("columns"), *shifts, Filter._of(behind) if behind else None)


def apply(rows: Rows, matrix: Rows, shift: Rows | None) -> Rows:
    """Apply a filter, (n, d) -> (n, k), in NumPy, or on the device if all three are tensors.

    A zero row (nothing was pooled) stays zero.
    """
    with np.errstate(invalid="ignore"):  # BLAS may set the flag for memory beside a small matrix; results are checked
        vectors = rows @ matrix
    return vectors if shift is None else (vectors - shift) * rows.any(1).reshape(-1, 1)


def stored_units(raw: Floats, one: Filter | None) -> Floats:
    """What an index with this filter stores of raw vectors: (n, d) -> (n, dim) of unit length, or zero."""
    units = l2_normalize(raw if one is None else one(raw)).vectors
    return units if one is None else one.mapped(units)


class HeadOwner(Protocol):
    """The source of a filter: an encoder, or the plan of a build, which has not loaded one yet."""

    @property
    def files(self) -> ModelFiles:
        """The model, for its unembedding matrix."""
        ...

    @property
    def hidden(self) -> int:
        """Width of its embeddings."""
        ...


class EmbedFilter(Filter):
    """The middle of the spectrum of a model's own unembedding matrix; its edges, where frequent tokens live, go."""

    @classmethod
    def from_encoder(
        cls, encoder: HeadOwner, tau: float | None = None, dim: int | None = None, offset: int | None = None
    ) -> EmbedFilter:
        """The filter of an encoder's model, as the options `tau`, `dim` and `filter_offset` of a build mean it.

        Raises:
            SpecError: tau, dim or offset are out of range.
            ModelError: the model has no unembedding matrix.
        """
        spec = FilterSpec.from_json({"tau": tau, "dim": dim, "offset": offset})  # which looks at their types
        preset = encoder.files.preset().get("filter", {})
        made = make_filter(spec.from_column(preset.get("offset"), encoder.hidden), encoder)
        assert made is not None
        return cls(made.matrix, made.columns)


def make_filter(spec: FilterSpec, source: HeadOwner, sample: FilterSample | None = None) -> Filter | None:
    """The filter of a spec; None for `none` that is not centred. Some are fitted on a sample of the corpus.

    Raises:
        SpecError: the width is out of range, or the corpus that the filter is fitted on is missing or too small.
        ModelError: the model has no unembedding matrix, and the filter needs one.
    """
    if spec.adapted:
        raise SpecError(
            "the map of an index that was adapted is its own", "remove `filter.adapted`", where="`filter.adapted`"
        )
    if spec.fitted and sample is None:
        raise SpecError(
            f"{spec.fitted} is fitted on a corpus, and there is none here",
            "build an index with it, or take a filter that needs none",
            where="`filter`",
        )
    if spec.name.startswith(HEAD):
        return head_filter(load_head(expanded(spec.name.removeprefix(HEAD))), spec)
    if not spec.center:
        return None if spec.name == "none" else MAKERS[spec.name](spec, source, sample or FilterSample())
    assert sample is not None
    every = np.arange(source.hidden)
    made = coordinates(source.hidden, every) if spec.name == "none" else MAKERS[spec.name](spec, source, sample)
    return made.centred(*sample.means())


def head_filter(head: Head, spec: FilterSpec) -> Filter:
    """The filter of a trained head, as wide as its spec says."""
    width = head.named(spec).dim
    return Filter(head.matrix[:, :width], shift=head.shift[:width])


def directions(spectrum: Spectrum, columns: Ints) -> Filter:
    """Keep these directions of a spectrum, in this order."""
    return Filter(spectrum.directions[:, columns].astype(np.float32), columns)


def coordinates(hidden: int, columns: Ints) -> Filter:
    """Keep these coordinates of the embedding, in this order."""
    matrix = np.zeros((hidden, len(columns)), dtype=np.float32)
    matrix[columns, np.arange(len(columns))] = 1
    return Filter(matrix, columns)


def kept_columns(hidden: int, width: int, offset: int | None = None) -> Ints:
    """Which `width` of `hidden` columns EmbedFilter keeps, in the order in which they are stored.

    With an offset the order is plain; without one it is centre-out: for every k the first k are the middle k.

    >>> kept_columns(6, 4), kept_columns(5, 3), kept_columns(6, 3, offset=1)
    (array([2, 3, 1, 4]), array([2, 1, 3]), array([1, 2, 3]))
    """
    if offset is not None:
        return np.arange(offset, offset + width, dtype=np.int64)
    # Each step takes the neighbour on one side; [low, high) is the kept set, and starts empty in the middle.
    low = high = (hidden - 1) // 2
    order: list[int] = []
    for k in range(1, width + 1):
        if (hidden - k) // 2 < low:
            low -= 1
            order.append(low)
        else:
            order.append(high)
            high += 1
    return np.array(order, dtype=np.int64)


def edge_columns(hidden: int, width: int) -> Ints:
    """The first ceil(k / 2) and the last floor(k / 2) columns, from the edges inwards: what is left without the bulk.

    >>> edge_columns(6, 5)
    array([0, 5, 1, 4, 2])
    """
    step = np.arange(width, dtype=np.int64)
    return np.where(step % 2 == 0, step // 2, hidden - 1 - step // 2)


def drawn_columns(hidden: int, width: int, seed: int) -> Ints:
    """`width` of `hidden` columns, drawn by a seed, sorted: the same on every machine and in every version of NumPy."""
    return np.sort(np.array(lowest(seed, map(str, range(hidden)), width), dtype=np.int64))


Maker: TypeAlias = Callable[[FilterSpec, HeadOwner, FilterSample], Filter]
Choice: TypeAlias = Callable[[int, int, FilterSpec], Ints]  # hidden width, kept width, spec -> columns


def _first(hidden: int, width: int, spec: FilterSpec) -> Ints:
    return np.arange(width)


def _drawn(hidden: int, width: int, spec: FilterSpec) -> Ints:
    return drawn_columns(hidden, width, spec.seed)


def _of_coordinates(choice: Choice) -> Maker:
    """A filter that keeps coordinates of the embedding."""
    return lambda spec, source, sample: coordinates(
        source.hidden, choice(source.hidden, spec.width(source.hidden), spec)
    )


def _of_spectrum(choice: Choice) -> Maker:
    """A filter that keeps directions of the spectrum, chosen by their rank."""

    def make(spec: FilterSpec, source: HeadOwner, sample: FilterSample) -> Filter:
        spectrum = spectrum_of(source.files)
        hidden = len(spectrum.directions)
        return directions(spectrum, choice(hidden, spec.width(hidden), spec))

    return make


def _of_effect(size: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Maker:
    """A filter that keeps the directions that do least to the frequent tokens of the corpus."""

    def make(spec: FilterSpec, source: HeadOwner, sample: FilterSample) -> Filter:
        head, spectrum = find_unembedding(source.files), spectrum_of(source.files)
        counts = sample.token_counts(head.shape[0])
        frequent = top_tokens(counts, spec.topk)
        frequent = frequent[counts[frequent] > 0]
        average = average_of_log_p(head, spectrum, log_frequencies(counts, head.shape[0]))
        effect = delta(head, spectrum, average, frequent)
        return directions(spectrum, np.argsort(size(effect), kind="stable")[: spec.width(head.shape[1])])

    return make


def _of_components(power: float | None = None) -> Maker:
    """A filter that takes the mean of the corpus away and keeps its first principal components U, (e - mean) U.

    Each is divided by its standard deviation to a power, that of the spec or a fixed one. With 0 it keeps the variance
    that it has (PCA), with 1 its variance is 1 (BERT-whitening); between them: arXiv 2603.19339.
    """

    def make(spec: FilterSpec, source: HeadOwner, sample: FilterSample) -> Filter:
        width = spec.width(source.hidden)
        mean, components = sample.components(width, spec.name)
        scales = components.values[:width] ** (spec.power if power is None else power)
        matrix = components.directions[:, :width] / scales
        return Filter(matrix.astype(np.float32), shift=(mean @ matrix).astype(np.float32))

    return make


MAKERS: dict[str, Maker] = {
    "embedfilter": _of_spectrum(lambda hidden, width, spec: kept_columns(hidden, width, spec.offset)),
    "truncation": _of_coordinates(_first),
    "random": _of_coordinates(_drawn),
    "random-directions": _of_spectrum(_drawn),
    # From the end backwards, so that a prefix is the narrower filter here too.
    "dominant": _of_spectrum(lambda hidden, width, spec: np.arange(hidden - 1, hidden - 1 - width, -1)),
    "secondary": _of_spectrum(_first),
    "bulk": _of_spectrum(lambda hidden, width, spec: edge_columns(hidden, width)),
    "optimal": _of_effect(lambda effect: effect),
    "optimal-abs": _of_effect(np.abs),
    "whitening": _of_components(1.0),
    "pca": _of_components(),
}
"""Every name of `FILTERS` but `none`, and how it is made."""
