"""Questions for precomputed vectors: which model encodes them, and whether it made the vectors.

model and options -> what a build resolves to, whose encoder and filter make the vectors of questions. Texts that come
with the vectors are encoded and compared with them; these new vectors are not stored. `ModelCheck` loads the model, and
so does `model_of_queries` where nothing else gives its width.
"""

from __future__ import annotations

import dataclasses
import heapq
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.digests import digest
from ragidx.indexer.encoders import Encoder
from ragidx.indexer.encoders.methods import continued_options, filter_spec
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import Manifest
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.ingest.report import QueryModelCheck
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against

N_TEXTS = 32  # encoded again, at most

_WITHOUT = "remove `model`: then the index is asked with vectors"
_FAR = 0.01  # 1 - cosine of a text's two vectors, at most
_ROUNDING = 0.0002  # what number formats come to
# Of how far apart different texts are, since a decoder puts all of them into a narrow cone: mini-decoder's by
# `classical` and by `reba` have cosines of 0.9965, which is 0.04 of the way; bfloat16 comes to a thousandth of that.
_SHARE = 0.02


def model_of_queries(index: Path, old: Manifest | None, options: BuildOptions, width: int) -> Resolved:
    """The model that encodes questions, for vectors of this width.

    An option that is not given is as the index has it; in a new index, as a build of a corpus would, but the
    filter follows from the width: the model's default filter where that leaves as many dimensions, else none.

    Args:
        index: the index folder.
        old: the state that is updated; None: a new index.
        options: the model, and the `QUERY_OPTIONS` that were passed.
        width: dimensions of a stored vector.

    Raises:
        ModelError: the model is not there.
        SpecError: its vectors have another width, or an option is unknown or out of range.
    """
    have = None if old is None else IndexSpec.from_json(dict(old.spec), where=str(index))
    asks = None if have is None else have.encoder
    if asks is not None:
        options = dataclasses.replace(options, encoder=continued_options(asks, options.encoder))
    try:
        resolved = resolve_against(options)
    except ModelError as fault:
        raise ModelError(fault.message, f"{fault.hint}; or {_WITHOUT}", where=fault.where) from fault
    says_filter = options.filter is not None
    if have is not None:  # the caller compares the specs and reports a difference
        wanted = filter_spec(resolved.files, resolved.encoder_spec, options.filter, have.filter)
        is_same = asks is not None and wanted == have.filter  # then the filter has its own numbers
        return _with_filter(resolved, wanted, Store.open(index) if is_same else None)
    possible = [resolved.spec.filter] if says_filter else [resolved.spec.filter, FilterSpec(name="none")]
    widths = {spec: spec.width(resolved.hidden) for spec in possible}
    for spec, numbers in widths.items():
        if numbers == width:
            return _with_filter(resolved, spec, None)
    raise _other_width(resolved, sorted(set(widths.values())), width, says_filter=says_filter)


def _with_filter(resolved: Resolved, spec: FilterSpec, stored: Store | None) -> Resolved:
    return dataclasses.replace(resolved, spec=dataclasses.replace(resolved.spec, filter=spec), stored=stored)


def _other_width(resolved: Resolved, widths: Sequence[int], width: int, *, says_filter: bool) -> SpecError:
    name, hint = resolved.files.name, f"name the model that made them, or {_WITHOUT}"
    if width < resolved.hidden:
        kept = "" if says_filter else f"of their first dimensions with `filter=truncation` `filter.dim={width}`, "
        hint = f"say what was kept {kept or 'with `filter` and `filter.dim`, '}{hint}"
    with_filter = " with that filter" if says_filter else ""
    made = " or ".join(f"{n:,}" for n in widths)
    return SpecError(
        f"'{name}' makes vectors of {made} dimensions{with_filter}, these have {width:,}",
        hint,
        where="`model`",
    )


class ModelCheck:
    """Whether a model made the vectors that come with texts: some of the texts are encoded again.

    The median of the cosines must be 0.99, and closer to 1 where different texts are near each other, as those of
    many decoders are: a fiftieth of the way to another text, at most. The texts are drawn by the hashes of their ids:
    whatever their order, and from the whole file.

    Args:
        resolved: the model, by `model_of_queries`.
        where: the vectors, for messages.

    Attributes:
        seconds: seconds that encoding took.
    """

    def __init__(self, resolved: Resolved, where: str) -> None:
        self._resolved, self._where = resolved, where
        self._drawn: list[tuple[bytes, str, NDArray[Any]]] = []
        self._has_begun = False
        self.seconds = 0.0

    @property
    def encoder(self) -> Encoder:
        """The encoder of the model."""
        return self._resolved.encoder

    def add(self, ids: Sequence[str], texts: Sequence[str], vectors: NDArray[Any], *, without: Collection[int]) -> None:
        """Take note of n rows; `without` those numbers.

        Raises:
            SpecError: of the texts of the rows before them, the model made the vector of none. The beginning of a file
                need not be like the rest (long texts, cut otherwise, may come first), so one of all is enough here.
        """
        if not self._has_begun and len(self._drawn) == N_TEXTS:
            self._has_begun = True
            self._compare(is_last=False)
        bar = self._drawn[-1][0] if len(self._drawn) == N_TEXTS else b"\xff" * 32
        new = [
            (key, texts[row], np.array(vectors[row]))
            for row, name in enumerate(ids)
            if row not in without and texts[row].strip() and (key := digest(name)) < bar
        ]
        if new:
            self._drawn = heapq.nsmallest(N_TEXTS, self._drawn + new, key=lambda drawn: drawn[0])

    def last(self) -> QueryModelCheck:
        """What the texts of all rows say.

        Raises:
            SpecError: the model did not make the vectors.
        """
        return self._compare(is_last=True) if self._drawn else QueryModelCheck(self._resolved.encoder_spec, 0)

    def _compare(self, *, is_last: bool) -> QueryModelCheck:
        started, resolved = time.perf_counter(), self._resolved
        texts = [text for _, text, _ in self._drawn]
        given = l2_normalize(np.stack([vector for *_, vector in self._drawn])[:, : resolved.dim()]).vectors
        made = resolved.embedder.embed_document(texts)
        self.seconds += time.perf_counter() - started
        cosines = (given * made).sum(axis=1)
        median, least, others = float(np.median(cosines)), float(cosines.min()), _others(given, texts)
        needed = 1 - min(_FAR, max(_ROUNDING, _SHARE * (1 - others)))
        if (median if is_last else float(cosines.max())) < needed:
            n, near = len(texts), f", since different texts have {others:.4f} here" if needed > 1 - _FAR else ""
            raise SpecError(
                f"'{resolved.files.name}' did not make these vectors: of {n} text{'s' * (n > 1)} encoded again, the "
                f"median cosine with these vectors is {median:.4f} (least {least:.4f}), and {needed:.4f} is asked for"
                f"{near}",
                f"name the model, `method`, `pooling` and `filter` that made them, or {_WITHOUT}",
                where=self._where,
            )
        return QueryModelCheck(resolved.encoder_spec, len(texts), median, least)


def _others(unit: NDArray[np.float32], texts: Sequence[str]) -> float:
    """The median cosine of the vectors of different texts; 0 where there is no such pair."""
    pairs = [(i, j) for i in range(len(texts)) for j in range(i) if texts[i] != texts[j]]
    if not pairs:
        return 0.0
    first, second = np.array(pairs).T
    return float(np.median((unit[first] * unit[second]).sum(axis=1)))
