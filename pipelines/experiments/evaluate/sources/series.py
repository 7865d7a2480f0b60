"""The filters and widths of a sweep: which dimensions of the source's vectors each row of it compares.

One encoding serves all: of a filter whose columns are ordered (`filter_kind(name).nested`), the first k dimensions are
the filter of width k, brought to unit length. Raw vectors give one series for each filter, an index of others the
prefixes of what it stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.encoders.methods import OWN_MODULES, default_filter, pca_power
from ragidx.indexer.filters.filter import Filter, make_filter
from ragidx.indexer.filters.heads import load_head
from ragidx.indexer.model_files import expanded
from ragidx.indexer.specs import FILTERS, HEAD, TOKEN_TABLE, FilterSpec, filter_kind
from ragidx.pipelines.experiments.evaluate.sources.source import VectorSource

TAUS = (1.0, 2.0, 4.0, 8.0, 16.0)

_FITTED_ON_VECTORS = ("pca", "whitening")


@dataclass(frozen=True)
class Series:
    """A filter at several widths.

    Attributes:
        name: name of the filter.
        widths: widths of the filter, falling.
        map: the filter that is applied to the source's vectors before they are cut; None: nothing is.
        is_unit: whether the source's vectors have unit length, and are compared as they are where nothing is cut.
        left_out: notes on widths that cannot be had.
        offset: first column of EmbedFilter; None: another filter, or the middle.
        means: (d,) means of documents and of questions that are taken off; None: nothing is, or by the index.
    """

    name: str
    widths: tuple[int, ...]
    map: Filter | None = None
    is_unit: bool = False
    left_out: tuple[str, ...] = ()
    offset: int | None = None
    means: tuple[Doubles, Doubles] | None = None

    def narrow(self, vectors: Floats, width: int, *, of_queries: bool = False) -> Floats:
        """Vectors (n, dim) of the source as (n, width) of unit length; what is zero stays zero."""
        if self.map is None:
            return vectors if self.is_unit and width == vectors.shape[1] else shortened(vectors, width)
        made = self.map.narrowed(width)
        return shortened((made.of_queries() if of_queries else made)(vectors), width)


@dataclass(frozen=True)
class WidthChoice:
    """Which widths are wanted; with neither, those of `TAUS`.

    Attributes:
        dims: the wanted widths themselves.
        taus: the wanted widths as hidden width / width.
    """

    dims: tuple[int, ...] = ()
    taus: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for dim in self.dims:
            if dim < 1:
                raise SpecError(f"dim={dim} keeps nothing", "give 1 or more", where="`dim`")
        for tau in self.taus:
            FilterSpec(tau=tau)  # which says what is wrong with it

    def each(self, hidden: int) -> list[WidthChoice]:
        """Choices of one width each."""
        return [WidthChoice((width,)) for width in self.of(hidden, hidden)]

    def of(self, hidden: int, widest: int) -> tuple[int, ...]:
        """The widths, falling from `widest`; tau = 1 is the widest.

        Raises:
            SpecError: a width is larger than the widest.
        """
        for dim in self.dims:
            if dim > widest:
                raise _too_wide(f"dim={dim:,}", widest, f"at most {widest:,}", "`dim`")
        every = set(self.dims)
        for tau in self.taus or (() if self.dims else TAUS):
            width = FilterSpec(tau=tau).width(hidden) if self.taus else int(hidden // tau)
            if self.taus and tau > 1 and width > widest:
                raise _too_wide(f"tau={tau:g}, {width:,} dimensions,", widest, "a larger tau", "`tau`")
            every.add(min(width, widest))
        return tuple(sorted(every - {0}, reverse=True))


def full_width(source: VectorSource) -> Series:
    """The series of a source's vectors, whole."""
    return Series(source.spec.filter.name, (source.dim,), None, source.is_unit)


def fitted_sample(names: Sequence[str] | None, fields: Mapping[str, Any]) -> FilterSpec:
    """A spec whose seed and size are those of the sample that filters of a corpus are fitted on.

    Raises:
        SpecError: a value is out of range.
    """
    given = {field: fields[field] for field in ("seed", "sample") if fields.get(field) is not None}
    return FilterSpec(name=next((name for name in names or () if filter_kind(name).calibrated), "pca"), **given)


def series_of(
    source: VectorSource,
    names: Sequence[str] | None,
    widths: WidthChoice,
    fields: Mapping[str, Any],
    *,
    center: bool = False,
) -> list[Series]:
    """The series that are swept, without the reference.

    Args:
        source: the source that is swept, such as an index.
        names: names of the filters; None: those that suit the model.
        widths: the widths that are wanted.
        fields: options of the filters: offset, seed, sample, topk, power; each goes to those that have it.
        center: whether the filters take the means of documents and questions off.

    Raises:
        SpecError: the index keeps no raw vectors for another filter, a filter that was named cannot be made so, or a
            width is larger than what there is, or not that of the one filter `none`.
        ModelError: the filter needs an unembedding matrix, and the model has none, or the index has no model.
    """
    if not source.is_raw:
        own = source.spec.filter.name
        if not filter_kind(own).nested:
            nested = ", ".join(known for known, kind in FILTERS.items() if kind.nested)
            raise SpecError(
                f"filter '{own}' draws each width by itself: a narrower one is not a prefix of a wider one",
                f"measure the corpus, or an index with one of {nested}",
                where="`filter`",
            )
        if names is not None and list(names) != [own]:
            made = f"after the filter '{own}'" if own != "none" else "from which the mean was taken off"
            raise SpecError(
                f"the index holds vectors {made}, and others need raw ones",
                "measure the corpus, or an index of raw vectors: `filter=none`, not centred",
                where="`filter`",
            )
        return [Series(own, widths.of(source.hidden, source.dim), None, source.is_unit)]
    wanted = _suitable(source) if names is None else list(dict.fromkeys(names))
    _check_fields(wanted, fields)
    _check_model(wanted, source)
    if wanted == ["none"]:
        _check_none(widths, source.hidden)
    return [
        _series(source, name, choice, fields, named=names is not None, center=center)
        for name in wanted
        for choice in ([widths] if filter_kind(name).nested else widths.each(source.hidden))
    ]


def notes_on_fit(source: VectorSource, series: Sequence[Series]) -> list[str]:
    """Notes on what differs from a build where filters are fitted on vectors of an index, which have unit length."""
    fitted = [one.name for one in series if one.name in _FITTED_ON_VECTORS and one.map is not None]
    fitted += ["centring"] * any(one.means is not None for one in series)
    if not fitted or not source.is_unit:
        return []
    return [
        f"{' and '.join(dict.fromkeys(fitted))}: fitted on vectors of unit length here, and on the model's own by a"
        " build; for a model that normalises these are the same."
    ]


def _suitable(source: VectorSource) -> list[str]:
    """EmbedFilter for decoders; truncation and PCA where no unembedding matrix belongs to the vectors."""
    made = source.spec.encoder
    is_table = made is not None and made.layer == 0 and source.files.family == TOKEN_TABLE
    has_none = made is None or made.method in OWN_MODULES or is_table
    return ["truncation", "pca"] if has_none else ["embedfilter"]


def _check_model(names: Sequence[str], source: VectorSource) -> None:
    """Whether there is a model for the filters that are made of one."""
    wanting = [name for name in names if filter_kind(name).head]
    if wanting and source.spec.encoder is None:
        raise ModelError(
            f"filter '{wanting[0]}' is computed from a model's unembedding matrix, and the index names no model: its "
            "vectors are precomputed",
            "take truncation or pca, or name the model that made them when the index is built: "
            "ragidx build --vectors FILE --model M --rebuild",
            where="`filter`",
        )


def _check_none(widths: WidthChoice, hidden: int) -> None:
    """Whether `none`, swept alone, has all the widths that are wanted."""
    if not (widths.dims or widths.taus):
        return
    narrower = [width for width in widths.of(hidden, hidden) if width < hidden]
    if narrower:
        raise SpecError(
            f"filter 'none' keeps all {hidden:,} dimensions, and has no width of {narrower[0]:,}",
            "remove `dim` and `tau`, or take the first dimensions: `filter=truncation`",
            where="`filter`",
        )


def _series(
    source: VectorSource, name: str, widths: WidthChoice, fields: Mapping[str, Any], *, named: bool, center: bool
) -> Series:
    """What is fitted skips widths that the sample is too poor for; all of them only where it was not named."""
    if name in ("none", "truncation") and not center:
        every = (source.hidden,) if name == "none" else widths.of(source.hidden, source.hidden)
        return Series(name, every, None, source.is_unit)
    has = {*filter_kind(name).fields, *(("seed", "sample") if center else ())}
    own = {field: value for field, value in fields.items() if field in has and value is not None}
    if name == "embedfilter" and "offset" not in own:
        own["offset"] = default_filter(source.files, source.encoder.spec).offset
    if name == "pca" and source.spec.encoder is not None:
        own.setdefault("power", pca_power(source.files, source.spec.encoder))
    widest = source.hidden - (own.get("offset") or 0)
    if name.startswith(HEAD):
        head = load_head(file := expanded(name.removeprefix(HEAD)))
        head.check(source.spec, str(file))
        widest = head.matrix.shape[1]
    if widest < 1:
        what = f"offset={own['offset']} leaves nothing of {source.hidden:,} dimensions"
        raise SpecError(what, f"give less than {source.hidden:,}", where="`filter.offset`")
    wanted = (source.hidden,) if name == "none" else widths.of(source.hidden, widest)
    spec = FilterSpec(name=name, dim=None if name == "none" else wanted[0], center=center, **own)
    if not spec.fitted:
        return Series(name, wanted, make_filter(spec, source), offset=own.get("offset"))
    sample, left_out = source.sample(spec), []
    means = sample.means() if center else None
    for place, width in enumerate(wanted):
        try:
            made = make_filter(spec if name == "none" else dataclasses.replace(spec, dim=width), source, sample)
        except SpecError as fault:  # the sample varies in fewer directions
            if named and width == wanted[-1]:
                raise
            left_out.append(f"{name} at {width:,} dimensions is skipped: {fault.message}.")
            continue
        return Series(name, wanted[place:], made, False, tuple(left_out), own.get("offset"), means)
    return Series(name, (), left_out=tuple(left_out))


def _check_fields(names: Sequence[str], fields: Mapping[str, Any]) -> None:
    for field, value in fields.items():
        if value is not None and not any(field in filter_kind(name).fields for name in names):
            raise SpecError(
                f"none of the filters that are measured ({', '.join(names)}) has the option {field}",
                f"remove `filter_{field}`",
                where=f"`filter_{field}`",
            )


def _too_wide(asked: str, widest: int, take: str, where: str) -> SpecError:
    return SpecError(f"{asked} is more than the {widest:,} dimensions there are", f"give {take}", where=where)
