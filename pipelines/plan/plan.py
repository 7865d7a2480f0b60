"""Forecast: what a build would do and what it would take, told before hours are spent on it.

corpus and options -> documents, chunks, tokens, seconds, bytes. A corpus of up to 8 MiB is read whole, and what can be
counted is exact; of a larger one a sample that lots decide (`pieces`), with a range (`sampling`). Chunks are cut by the
build's own chunker and counted by its own tokenizer; the speed is measured here (`speed`), texts are compressed as a
segment compresses them (`room`), and the making of a large index is timed on some of their vectors (`index_time`).
Nothing is written to the index folder, not even its lock; the zero vectors of texts that the model makes nothing of are
not foreseen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import SpecError
from ragidx.corpora.records import Document, Skip
from ragidx.indexer.ann.index_types import FLAT
from ragidx.indexer.digests import DigestTable, digest
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.indexer.writing.vacuum import check_folder
from ragidx.pipelines.build.chunks import Cutter, Item
from ragidx.pipelines.build.corpus import Reading, check_removal, chunker_of, document_hash, too_long
from ragidx.pipelines.build.file_cache import REPEATED
from ragidx.pipelines.build.fit_filter import check_fit
from ragidx.pipelines.build.options import BuildKeywords, build_options
from ragidx.pipelines.build.report import PLANNING, OnProgress, Progress, Skips, Teller
from ragidx.pipelines.build.resolve import make_plan
from ragidx.pipelines.plan.diff import UNCHANGED, Knowledge
from ragidx.pipelines.plan.footprint import Room, SampleRows, new_segments, pack, room, with_times
from ragidx.pipelines.plan.index_time import SPREAD, IndexTimer
from ragidx.pipelines.plan.sample import SAMPLE_BYTES, WHOLE_BYTES, Piece, corpus_of, pieces
from ragidx.pipelines.plan.sampling import Estimate, Extrapolation, Tally
from ragidx.pipelines.plan.throughput import Speed, measure

if TYPE_CHECKING:
    from ragidx.indexer.encoders.protocol import Encoder
    from ragidx.indexer.filters.filter import Filter

_TUNE_FROM = 256  # new chunks: as `build` has it
_PIECE_CHARS = 8 << 20  # of a piece of a sample, documents beyond are counted and not cut
_TEXTS = 2048  # that the speed may be measured on
_TEXTS_CHARS = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a build would do.

    Attributes:
        corpus, index: as they were named.
        model, method, encoder, filter, dim, index_type: how vectors would be made.
        index_recipe: what the largest new segment is to have, as a factory string, or flat.
        target_recall: that it is tuned to; which recall it has is measured when it is made.
        n_files, corpus_bytes: of the corpus.
        share_read: of its bytes that were read, 1 where all were: then counts are exact.
        documents: of the corpus; `added`, `changed`, `unchanged` against the index, and `removed`, which are in the
            index alone (None where not everything was read).
        chunks: of new and changed documents; `to_encode` of them go through the model, the others are known.
        tokens: that the model reads for them.
        truncated, empty: documents longer than the model reads, and without text.
        skipped: what is left out, by reason.
        speed: None where there is nothing to encode.
        encode_seconds, index_seconds: of encoding, and of making the indexes of new segments by the first recipe that
            fits into memory, tuning included; where it does not reach the recall, those after it come on top.
        seconds: of both, and of loading the model, reading, cutting and packing.
        room: bytes on the disk and in memory, for this and for other index types and widths.
    """

    corpus: str
    index: str
    model: str
    method: str
    encoder: EncoderSpec
    filter: FilterSpec
    dim: int
    index_type: str
    index_recipe: str
    target_recall: float
    n_files: int
    corpus_bytes: int
    share_read: float
    documents: Estimate
    added: Estimate
    changed: Estimate
    unchanged: Estimate
    removed: int | None
    chunks: Estimate
    to_encode: Estimate
    tokens: Estimate
    truncated: Estimate
    empty: Estimate
    skipped: dict[str, int]
    speed: Speed | None
    encode_seconds: float
    index_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    room: Room

    def to_json(self) -> dict[str, Any]:
        """All fields; stable, documented in the README."""
        return dataclasses.asdict(self) | {"encoder": str(self.encoder), "filter": str(self.filter)}


def forecast(
    corpus: str | Path,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[BuildKeywords],
) -> Forecast:
    """What `build` would do with the same arguments, without building.

    Args:
        corpus: a folder, a file, or a BEIR folder.
        index: the index folder; it is read where it exists, and not touched.
        on_progress: called a few times a second, stage `planning`.
        options: as for `build`.

    Raises:
        RagidxError: what `build` would refuse is refused in the same words: options, model, index, an empty corpus.
        SpecError: the corpus is standard input.
    """
    asked = build_options("forecast", **options)
    if str(corpus) == "-":
        raise SpecError(
            "standard input can be read once, and a plan would leave nothing of it for the build",
            "write it to a file, and plan with that",
            where="--plan",
        )
    return _Forecaster(Reading(corpus, Path(index), asked), on_progress).run()


class _Forecaster:
    """One run of `forecast`; its state is what the steps share."""

    def __init__(self, reading: Reading, on_progress: OnProgress | None) -> None:
        self.reading = reading
        self.progress = Progress(stage=PLANNING)
        self._tell = Teller(on_progress, self.progress)
        self.skips = Skips()
        self.samples = SampleRows()
        self._texts = _Drawn()
        self._cutter: Cutter | None = None
        self._ids = DigestTable()  # of the documents of a corpus that is read whole
        self._load_seconds = 0.0
        self._count_seconds = 0.0  # of counting tokens, which a build does while it encodes

    def run(self) -> Forecast:
        """The whole forecast."""
        walked = Skips()
        self.corpus = corpus_of(self.reading, walked.add)
        is_whole = self.corpus.cost() <= WHOLE_BYTES
        share = 1.0 if is_whole else SAMPLE_BYTES / self.corpus.cost()
        self.progress.total_bytes = round(share * self.corpus.total_bytes)
        self.plan = make_plan(self.reading.index, self.reading.options)
        check_folder(self.reading.index)
        if self.plan.wants_a_sample:
            check_fit(self.plan, self.reading.corpus)
        with Knowledge(self.plan, self.reading.index) as self.knowledge:
            started = time.perf_counter()
            tallies = self._read()
            read_seconds = time.perf_counter() - started - self._load_seconds - self._count_seconds
            self.reading.check_something_was_read(self.progress.n_documents, self._all_skips(walked))
            found = Extrapolation(tallies, {} if is_whole else self.corpus.strata())
            if is_whole and not self.reading.options.allow_removal:
                n_removed = self.knowledge.count_others()
                n_before = found["unchanged"].value + found["changed"].value + n_removed
                check_removal(n_removed, n_before, self.reading.index)
            skipped = found.skipped() | ({} if is_whole else dict(walked.counts))
            made = self._forecast(found, skipped, read_seconds / found.share)
        self.progress.last = True
        self._tell(at_once=True)
        return made

    def _all_skips(self, walked: Skips) -> Skips:
        """For the corpus in which nothing can be read: a whole one tells the walk's again, pieces do not."""
        return self.skips if self.skips.total() else walked

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> list[Tally]:
        tallies = []
        with contextlib.ExitStack() as self._open:
            for piece in pieces(self.corpus, WHOLE_BYTES, SAMPLE_BYTES):
                tallies.append(self._read_piece(piece))
                self.progress.n_bytes += round(piece.n_bytes)
        return tallies

    def _read_piece(self, piece: Piece) -> Tally:
        """Count what a piece holds: its documents, and what they would be cut into."""
        tally, cut = Tally(piece.ending, piece.n_bytes), Tally(piece.ending, piece.n_bytes)
        n_chars = n_cut_chars = 0
        for document in piece.documents(self.reading, lambda skip: self._skip(skip, tally)):
            if piece.source is None and self._is_repeated(document):  # those of a sample may be numbered alike
                self._skip(Skip(document.id, REPEATED), tally)
                continue
            self.progress.n_documents += 1
            kind = self.knowledge.of_document(document)
            for name in ("documents", kind):
                tally.counts[name] += piece.share
            if kind != UNCHANGED:
                n_chars += len(document.text)
                if piece.source is None or n_cut_chars < _PIECE_CHARS:
                    n_cut_chars += len(document.text)
                    self._count(self._cutting().submit(document, document_hash(document)), cut)
            self._tell()
        if self._cutter is not None:
            self._count(self._cutter.drain(), cut)
        for name, count in cut.counts.items():
            tally.counts[name] += count * (piece.share if name == "empty" else n_chars / max(1, n_cut_chars))
        return tally

    def _is_repeated(self, document: Document) -> bool:
        """Whether another document had its id before."""
        key = digest(document.id)
        if self._ids.find(key):
            return True
        self._ids.add(key, 0)
        return False

    def _skip(self, skip: Skip, tally: Tally) -> None:
        one = Skips()
        one.add(skip)
        for reason in one.counts:
            tally.skipped[reason] += 1
        self.skips.add(skip)

    def _count(self, cut: Iterable[list[Item]], tally: Tally) -> None:
        """What documents that are cut add, one list a document."""
        for items in cut:
            if not items:
                tally.counts["empty"] += 1
                continue
            encoder = self.plan.encoder
            for item in items:
                self.samples.add(item.row)
            fresh = self.knowledge.fresh(items)
            tally.counts["chunks"] += len(items)
            tally.counts["text_bytes"] += sum(len(item.row.text.encode("utf-8", "surrogatepass")) for item in items)
            tally.counts["truncated"] += len(too_long(items, encoder, self.plan.spec.chunk))
            tally.counts["to_encode"] += len(fresh)
            started = time.perf_counter()
            tally.counts["tokens"] += _n_tokens(encoder, [item.text for item in fresh])
            self._count_seconds += time.perf_counter() - started
            self._texts.add(fresh)
            self.progress.n_cut += len(items)
            self._tell()

    def _cutting(self) -> Cutter:
        """The cutter, made when the first document is cut: a plan without a new document loads no model."""
        if self._cutter is None:
            started = time.perf_counter()
            chunker = chunker_of(self.plan.encoder, self.plan.spec.chunk)
            self._load_seconds = time.perf_counter() - started
            self._cutter = self._open.enter_context(Cutter(chunker))
        return self._cutter

    # -- what follows ---------------------------------------------------------------------------------------------

    def _forecast(self, found: Extrapolation, skipped: dict[str, int], read_seconds: float) -> Forecast:
        plan, spec = self.plan, self.plan.spec
        to_encode, tokens, chunks = found["to_encode"], found["tokens"], found["chunks"]
        dim = spec.filter.width(plan.hidden) if plan.wants_a_sample else plan.dim()
        n_new, text_bytes = chunks.value, found["text_bytes"].value
        new = new_segments(plan, dim, n_new=n_new, text_bytes=text_bytes)  # what is refused is refused now
        speed, vectors = self._speed(to_encode.value)
        packed = pack(self.samples.rows(), dim)
        other = self._load_seconds + read_seconds * (1 + plan.wants_a_sample) + packed.seconds * chunks.value
        encode, low, high = (
            (0.0, 0.0, 0.0)
            if speed is None
            else (tokens.value / speed.tokens_per_s, tokens.low / speed.high, tokens.high / speed.low)
        )
        taken = room(plan, self.reading.index, dim, packed, n_new=n_new, text_bytes=text_bytes)
        timer = IndexTimer(dim, vectors)
        making = sum(timer.seconds(recipe, rows) for rows, recipe in new)
        return Forecast(
            corpus=str(self.reading.corpus),
            index=str(self.reading.index),
            model=plan.encoder_spec.model,
            method=plan.encoder_spec.method,
            encoder=plan.encoder_spec,
            filter=spec.filter,
            dim=dim,
            index_type=spec.index_type,
            index_recipe=str((new[0][1] if new else None) or FLAT),
            target_recall=plan.index_options().target_recall,
            n_files=len(self.corpus.files),
            corpus_bytes=self.corpus.total_bytes,
            share_read=found.share,
            documents=found["documents"],
            added=found["added"],
            changed=found["changed"],
            unchanged=found["unchanged"],
            removed=self.knowledge.count_others() if found.is_whole else None,
            chunks=chunks,
            to_encode=to_encode,
            tokens=tokens,
            truncated=found["truncated"],
            empty=found["empty"],
            skipped=skipped,
            speed=speed,
            encode_seconds=encode,
            index_seconds=making,
            seconds=encode + other + making,
            seconds_low=low + other + making / SPREAD,
            seconds_high=high + other + making * SPREAD,
            room=with_times(taken, timer, plan.index_options(), dim, text_bytes // max(1, n_new)) if making else taken,
        )

    def _speed(self, n_texts: int) -> tuple[Speed | None, NDArray[np.float32] | None]:
        texts = self._texts.texts()
        if not texts:
            return None, None
        self._tell(at_once=True)
        project: Filter | None = None if self.plan.wants_a_sample else self.plan.filter
        return measure(self.plan.encoder, texts, project, tune=n_texts >= _TUNE_FROM)


class _Drawn:
    """Some of the texts that would be encoded, by lots: their hashes."""

    def __init__(self) -> None:
        self._held: list[tuple[int, str]] = []  # a heap, the highest lot first
        self._n_chars = 0

    def add(self, items: Sequence[Item]) -> None:
        """Offer texts, each once."""
        for item in items:
            heapq.heappush(self._held, (-int.from_bytes(item.row.text_hash), item.text))
            self._n_chars += len(item.text)
            while len(self._held) > 1 and (len(self._held) > _TEXTS or self._n_chars > _TEXTS_CHARS):
                self._n_chars -= len(heapq.heappop(self._held)[1])

    def texts(self) -> list[str]:
        """Those with the lowest lots, by rising lot."""
        return [text for _, text in sorted(self._held, reverse=True)]


def _n_tokens(encoder: Encoder, texts: Sequence[str]) -> int:
    """Tokens that the model reads for documents, all copies and prompts together."""
    return sum(row.n_tokens for row in encoder.rendered(texts, None)) if texts else 0
