"""The axes of a grid: which encoders, filters, widths and searches are combined.

`Grid` -> `Axes`, checked before anything is encoded -> for each source its `Series`, for each width its
searches. A filter or a method takes the values that it has an option for; what cannot be is left out with a note.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragidx.corpora.errors import ModelError, SpecError, unknown_name
from ragidx.indexer.ann.index_types import FLAT, IndexOptions
from ragidx.indexer.encoders.methods import METHODS, filter_spec
from ragidx.indexer.specs import ATTENTIONS, FILTERS, HEAD, POOLINGS, QUESTIONS, FilterSpec, filter_kind
from ragidx.pipelines.experiments.evaluate.grid import Searches
from ragidx.pipelines.experiments.evaluate.options import Grid
from ragidx.pipelines.experiments.evaluate.report import words_of
from ragidx.pipelines.experiments.evaluate.sources.series import (
    Series,
    WidthChoice,
    full_width,
    notes_on_fit,
    series_of,
)
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource, VectorSource
from ragidx.retriever.options import DENSE, FUSIONS, HYBRID, LEXICAL, MODES, Z

MOST_CELLS = 1000
"""The most configurations of a grid without a word of consent."""

ENCODER_AXES = (
    *("model", "method", "template", "pooling", "attention", "layer", "copies"),
    *("max_length", "compute_matched", "instruction", "questions"),
)
FILTER_FIELDS = ("filter_seed", "filter_sample", "filter_topk", "filter_power")
"""Options of all filters that have them."""

_WORDS: Mapping[str, Iterable[str]] = {
    "model": ("mini",),
    "method": METHODS,
    "template": (),
    "instruction": (),
    "pooling": ("own", *POOLINGS),
    "attention": ("own", *ATTENTIONS),
    "filter": FILTERS,
    "index_type": (FLAT,),
    "mode": MODES,
    "fusion": (Z,),
    "questions": QUESTIONS,
}
"""What names of rows have of each axis, where it is not named."""

_REPEATING = {"echo", "reba"}


@dataclass(frozen=True)
class Axes:
    """The parts of a grid, checked.

    Attributes:
        encoders: the options of each encoder.
        filters: names of the filters; None: the one that a build takes.
        offsets: first columns of EmbedFilter; None: the one that a build takes.
        centers: whether means are taken off; None: as a build does.
        widths: the widths of each filter; none: the one that a build takes.
        searches: the searches of each width.
        fields: options of all filters that have them: seed, sample, topk, power.
        options: options of all encoders and of the corpus.
        costs: whether time and disk are measured: then by default every filter that suits the model has several widths,
            beside the full one.
    """

    encoders: tuple[Mapping[str, Any], ...]
    filters: tuple[str, ...] | None
    offsets: tuple[int | None, ...]
    centers: tuple[bool | None, ...]
    widths: WidthChoice
    searches: Searches
    fields: Mapping[str, Any]
    options: Mapping[str, Any]
    costs: bool

    @classmethod
    def of(cls, grid: Grid, options: Mapping[str, Any], *, costs: bool, target_recall: float) -> Axes:
        """The axes of a grid, with options that all of it has.

        Raises:
            SpecError: a value is unknown or out of range.
        """
        listed, filters = grid.axes(), check_filters(grid)
        return cls(
            encoders=_encoders({name: listed[name] for name in ENCODER_AXES if name in listed}),
            filters=filters,
            offsets=listed.get("offset", (None,)),
            centers=listed.get("center", (None,)),
            widths=WidthChoice(listed.get("dim", ()), listed.get("tau", ())),
            searches=_searches(listed, target_recall),
            fields={name.removeprefix("filter_"): options.get(name) for name in FILTER_FIELDS},
            options={name: value for name, value in options.items() if name not in FILTER_FIELDS},
            costs=costs,
        )

    def check_size(self, *, yes: bool) -> None:
        """Whether so many configurations are meant.

        Raises:
            SpecError: there are more than `MOST_CELLS`, and no consent.
        """
        widths = max(1, len(self.widths.dims) + len(self.widths.taus))
        filters = len(self.filters or (1,)) * len(self.offsets) * len(self.centers)
        vectors = filters * widths * len(self.searches.index_types)
        searches = sum(len(self.searches.of(mode)) for mode in self.searches.modes if mode != LEXICAL)
        cells = len(self.encoders) * vectors * searches + (LEXICAL in self.searches.modes)  # at most
        if cells > MOST_CELLS and not yes:
            raise SpecError(
                f"the grid has {cells:,} configurations, more than {MOST_CELLS:,}",
                "name fewer values, or say that you mean it: `yes=True`",
            )

    def series(self, source: VectorSource) -> tuple[list[Series], list[str]]:
        """Filters and widths of a source: those that were named, else what a build of its model takes; and notes on
        those that cannot be.

        Raises:
            SpecError: none can be, or the index does not have them.
            ModelError: none can be made of this model.
        """
        has_offsets, has_widths = self.offsets != (None,), bool(self.widths.dims or self.widths.taus)
        has_centers = self.centers != (None,)
        for option, is_given in (("offset", has_offsets), ("center", has_centers)):
            if is_given and not source.is_raw:
                raise SpecError(
                    "the index holds vectors after its filter, which is fixed",
                    "remove it, or evaluate the corpus, or an index of raw vectors: `filter=none`, not centred",
                    where=f"`{option}`",
                )
        if self.costs:
            return self._all_widths(source)
        is_asked = has_widths or has_offsets or has_centers
        as_it_is = isinstance(source, IndexSource) and self.filters is None and not is_asked
        if not source.is_raw or as_it_is:
            widths = self.widths if has_widths else WidthChoice((source.dim,))
            return series_of(source, self.filters or [source.spec.filter.name], widths, {}), []
        series, notes, fault = list[Series](), list[str](), None
        names = self.filters or (None,)
        having = [name for name in names if name is None or "offset" in filter_kind(name).fields]
        wanted = dict.fromkeys(
            (name, offset if name in having or not having else None, center)
            for name, offset, center in itertools.product(names, self.offsets, self.centers)
        )
        for name, offset, center in wanted:
            try:
                series += self._of_filter(source, name, offset, center)
            except (SpecError, ModelError) as raised:
                fault = fault or raised
                what = "its own filter" if name is None else f"filter {name}"
                notes.append(f"Left out of {source.model}: {what}: {raised.message}.")
        if not series and fault is not None:
            raise fault
        if has_widths and all(one.name == "none" for one in series):
            notes.append(
                f"Of {source.model} only all dimensions are measured: it has no filter by default; name one for others,"
                " such as `filter=truncation`."
            )
        notes += notes_on_fit(source, series)
        return _unique(series), notes + [note for one in series for note in one.left_out]

    def _all_widths(self, source: VectorSource) -> tuple[list[Series], list[str]]:
        """The full width, and what each filter has beside it: truncation to all coordinates is that."""
        found = [
            one
            for offset, center in itertools.product(self.offsets, self.centers)
            for one in series_of(
                source, self.filters, self.widths, {"offset": offset, **self.fields}, center=bool(center)
            )
        ]
        series = [full_width(source)]
        for one in _unique(found):
            widths = tuple(width for width in one.widths if one.map is not None or width != source.dim)
            series += [replace(one, widths=widths)] * bool(widths)
        return series, [note for one in found for note in one.left_out] + notes_on_fit(source, series)

    def _of_filter(
        self, source: VectorSource, name: str | None, offset: int | None, center: bool | None
    ) -> list[Series]:
        encoder, widths = source.spec.encoder, self.widths
        if encoder is None:
            spec = FilterSpec(name or "none")
        else:
            spec = filter_spec(source.files, encoder, None if name is None else FilterSpec(name))
        fields = {name: value for name, value in self.fields.items() if name in filter_kind(spec.name).fields}
        fields["offset"] = offset if offset is not None else spec.offset
        center = spec.center if center is None else center
        if not (widths.dims or widths.taus):
            is_head = spec.name.startswith(HEAD)  # whose width its file knows
            widths = WidthChoice(taus=(1.0,)) if is_head else WidthChoice((spec.width(source.hidden),))
        if spec.name == "none":
            widths = WidthChoice()
        return series_of(source, [spec.name], widths, fields, center=center)


def _unique(series: Sequence[Series]) -> list[Series]:
    return list({(one.name, one.offset, one.means is None, one.widths): one for one in series}.values())


def _searches(listed: Mapping[str, Sequence[Any]], target_recall: float) -> Searches:
    modes, fusions = listed.get("mode", (LEXICAL, DENSE, HYBRID)), listed.get("fusion", (Z,))
    for what, values, known in (("mode", modes, MODES), ("fusion", fusions, FUSIONS)):
        for value in values:
            if value not in known:
                raise unknown_name(what, value, known)
    types = listed.get("index_type", (FLAT,))
    weights = tuple(number for number in listed.get("weight", ()) if number is not None)
    for name in types:
        IndexOptions(name, target_recall)  # which says what is wrong with it
    for number in weights:
        if not 0 <= number <= 1:
            raise SpecError(f"weight={number:g} is not from 0 to 1", "0 is words alone, 1 cosines", where="`weight`")
    return Searches(tuple(modes), tuple(types), tuple(fusions), weights, target_recall)


def check_filters(grid: Grid) -> tuple[str, ...] | None:
    """The names of the filters, if all values are in range; None: none is named.

    Raises:
        SpecError: a value is none of a filter.
    """
    listed = grid.axes()
    for name in listed.get("filter", ()):
        FilterSpec(name)  # which says what is wrong with it
    for first in listed.get("offset", ()):
        FilterSpec(offset=first)
    WidthChoice(listed.get("dim", ()), listed.get("tau", ()))
    return listed.get("filter")


def check_reference(reference: str, grid: Grid, runs: Iterable[str]) -> None:
    """Whether a row may have these words in its name, as far as that is known before anything is encoded.

    Args:
        reference: the words that the row's name is to have.
        grid: the grid that is measured.
        runs: names of finished runs, whose rows are named so.

    Raises:
        SpecError: no row has one of them.
    """
    axes = grid.axes()
    names = [*runs, *(str(value) for name, usual in _WORDS.items() for value in axes.get(name) or usual)]
    switches = ("center", *(name.replace("_", "-") for name in ("compute_matched", "instruction") if name in axes))
    known = set(switches).union((f"no-{name}" for name in switches), *map(words_of, names))
    for word in words_of(reference):
        if "=" not in word and "/" not in word and word not in known:  # widths and paths are known later
            raise unknown_name("word of `reference`:", word, known)


def _encoders(axes: Mapping[str, Sequence[Any]]) -> tuple[Mapping[str, Any], ...]:
    """All combinations; beside a method that repeats a text, others are there once."""
    repeating = set(axes.get("method", ())) & _REPEATING
    encoders = {}
    for values in itertools.product(*axes.values()):
        options = dict(zip(axes, values, strict=True))
        if repeating and options["method"] not in repeating:
            options = {name: options[name] for name in options if name not in ("copies", "compute_matched")}
        encoders[tuple(options.items())] = options
    return tuple(encoders.values())
