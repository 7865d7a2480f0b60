"""Forecast: what a build would do and what it would take, before hours are spent on it.

    corpus and options -> documents, chunks, tokens, seconds, bytes

The corpus or a sample of it (`sample`) is read by the build's own readers, cut by its own chunker and counted by its
own tokenizer. The speed of encoding is measured here (`throughput`), and texts are compressed as a segment compresses
them (`footprint`). How long an approximate index takes to make is not estimated. The index folder is not written to,
not even its lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ragidx.corpora.errors import SpecError
from ragidx.corpora.readers.registry import read
from ragidx.corpora.records import Document, Skip
from ragidx.corpora.sources import Source
from ragidx.indexer.ann.index_types import FLAT
from ragidx.indexer.digests import DigestTable, digest
from ragidx.indexer.encoders.protocol import TUNE_FROM
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.indexer.writing.vacuum import check_folder
from ragidx.pipelines.ingest.choose_layer import with_last_layer
from ragidx.pipelines.ingest.chunks import Cutter, Item
from ragidx.pipelines.ingest.corpus import Reading, chunker_of, document_hash, too_long
from ragidx.pipelines.ingest.file_cache import REPEATED
from ragidx.pipelines.ingest.fit_filter import check_fit
from ragidx.pipelines.ingest.options import BuildKeywords, build_options
from ragidx.pipelines.ingest.removal import DELETED_FILE, deleted_ids, is_unreadable, missing
from ragidx.pipelines.ingest.report import PLANNING, OnProgress, Progress, Skips, Teller
from ragidx.pipelines.ingest.resolve import Plan, make_plan
from ragidx.pipelines.ingest.selection import Corpus, Selection, as_paths, reading_of
from ragidx.pipelines.ingest.tally import Tally
from ragidx.pipelines.plan.diff import ADDED, UNCHANGED, Knowledge
from ragidx.pipelines.plan.footprint import Room, SampleRows, first_recipes, n_lexical_rows, pack, room, stored_rows
from ragidx.pipelines.plan.sample import Estimate, Estimates, Part, parts, sample_share
from ragidx.pipelines.plan.throughput import Speed, measure

if TYPE_CHECKING:
    from ragidx.indexer.encoders.protocol import Encoder

_PART_CHARS = 8 << 20  # that are cut of a part of a sample; documents beyond are counted
_TEXTS = 2048  # that the speed may be measured on
_TEXTS_CHARS = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a build would do.

    Attributes:
        corpus, index: as they were named.
        model, method, encoder, filter, dim, index_type: how vectors would be made.
        index_recipe: what the build makes first of the largest new segment, as a factory string, or flat.
        target_recall: that it is tuned to; which recall it has is measured when it is made.
        n_files, corpus_bytes: of the corpus.
        share_read: of its bytes that were read, 1 where all were: then counts are exact.
        documents: of the corpus; `added`, `changed`, `unchanged` against the index, and `removed`, which of the
            sources that are planned are in the index alone (None where not all of them was read).
        chunks: of new and changed documents; `to_encode` of them go through the model, the others are known.
        tokens: that the model reads for them.
        truncated, empty: documents longer than the model reads, and without text.
        skipped: what is skipped, by reason.
        speed: None where there is nothing to encode.
        load_seconds, encode_seconds, lexical_seconds: of loading the model, encoding, and making the lexical part.
        seconds, seconds_low, seconds_high: of these, reading, cutting and packing. Making an approximate index comes
            on top.
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
    load_seconds: float
    encode_seconds: float
    lexical_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    room: Room

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types; docs/plan.md lists them."""
        return dataclasses.asdict(self) | {"encoder": str(self.encoder), "filter": str(self.filter)}


def forecast(
    corpus: Corpus = None,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[BuildKeywords],
) -> Forecast:
    """What `build` would do with the same arguments, without building.

    Args:
        corpus: as for `build`.
        index: the index folder; it is read where it exists, and not touched.
        on_progress: called a few times a second, stage `planning`.
        options: as for `build`.

    Raises:
        RagidxError: what `build` would refuse is refused in the same words: options, model, index, an empty corpus.
        SpecError: the corpus is standard input.
    """
    asked = with_last_layer(Path(index), build_options(**options))
    if "-" in map(str, as_paths(corpus)):
        raise SpecError(
            "it can be read once, and a plan would leave nothing of it for the build",
            "write it to a file, and plan with that",
            where="standard input",
        )
    plan = make_plan(Path(index), asked)
    return _Forecaster(plan, *reading_of(corpus, Path(index), asked, plan.stored), on_progress).run()


class _Forecaster:
    """One run of `forecast`; its state is what the steps share."""

    def __init__(self, plan: Plan, reading: Reading, selection: Selection, on_progress: OnProgress | None) -> None:
        self.plan, self.reading, self.selection = plan, reading, selection
        self.progress = Progress(stage=PLANNING)
        self._tell = Teller(on_progress, self.progress)
        self.skips = Skips()
        self.samples = SampleRows()
        self._texts = _Drawn()
        self._cutter: Cutter | None = None
        self._ids = DigestTable()  # of the documents of a corpus that is read whole
        self._deleted = deleted_ids(plan.blobs().get(DELETED_FILE)) if plan.stored is not None else frozenset[str]()
        self._tally = Tally(selection)
        self._name, self._unreadable = "", set[str]()  # the file that is read; files that cannot be
        self._load_seconds = 0.0
        self._count_seconds = 0.0  # of counting tokens, which a build does while it encodes

    def run(self) -> Forecast:
        """The whole forecast."""
        walked = Skips()
        self.files = list(self.reading.sources(walked.add))
        self.corpus_bytes = sum(file.size for file in self.files)
        share = sample_share(self.files)
        self.is_whole = share == 1
        self.progress.total_bytes = round(share * self.corpus_bytes)
        check_folder(self.reading.index)
        if self.plan.wants_a_sample:
            check_fit(self.plan, self.reading.corpus, self.reading.index)
        with Knowledge(self.plan, self.reading.index) as self.knowledge:
            started = time.perf_counter()
            found = self._read()
            read_seconds = time.perf_counter() - started - self._load_seconds - self._count_seconds
            skips = self.skips if self.skips.total() else walked  # a whole corpus was walked once more
            self.reading.check_something_was_read(self.progress.n_documents, skips)
            removed = self._removed() if self.is_whole else None
            skipped = found.skipped() | ({} if self.is_whole else dict(walked.counts))
            made = self._forecast(found, removed, skipped, read_seconds / found.share)
        self.progress.last = True
        self._tell(at_once=True)
        return made

    def _removed(self) -> int:
        """How many documents of the sources that were read, whole, are in the index alone.

        Raises:
            SpecError: a build would refuse to remove them.
        """
        stored, entries = self.plan.stored, self.selection.entries
        if stored is None:
            return 0
        found = missing(stored, self.knowledge.others(), entries, self.selection.names, self._unreadable)
        if not self.reading.options.allow_removal:
            self._tally.check_none_is_lost(entries)
            self._tally.check_removal(found.by_source, self.reading.index)
        return len(found.gone)

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> Estimates:
        done = []
        with contextlib.ExitStack() as self._open:
            for part in parts(self.files):
                self._read_part(part)
                self.progress.n_bytes += round(part.n_bytes)
                done.append(part)
        return Estimates(done)

    def _read_part(self, part: Part) -> None:
        """Count what a part holds: its documents, and what they would be cut into."""
        cut = Counter[str]()  # of documents that are cut
        n_chars = n_cut_chars = 0
        for document in self._documents(part):
            if document.id in self._deleted:
                continue
            self.progress.n_documents += 1
            kind = self.knowledge.of_document(document)
            owner = self._tally.source_of(document.id)
            self._tally.n_read[owner] += 1
            self._tally.n_kept[owner] += kind != ADDED
            for name in ("documents", kind):
                part.counts[name] += part.share
            if kind != UNCHANGED:
                n_chars += len(document.text)
                if part.source is None or n_cut_chars < _PART_CHARS:
                    n_cut_chars += len(document.text)
                    self._count(self._cutting().submit(document, document_hash(document)), cut, part.share)
            self._tell()
        if self._cutter is not None:
            self._count(self._cutter.drain(), cut, part.share)
        whole_texts = self.plan.spec.chunk.size is None
        for name, count in cut.items():
            a_document = name == "empty" or (whole_texts and name not in ("text_bytes", "tokens"))
            part.counts[name] += count * (part.share if a_document else n_chars / max(1, n_cut_chars))

    def _documents(self, part: Part) -> Iterator[Document]:
        """Those of a part. In a sample, a record whose id is its number may have another's."""

        def skip(skipped: Skip) -> None:
            self.skips.add(skipped)
            part.skips.add(skipped)
            if is_unreadable(skipped.where, skipped.reason, self._name):
                self._unreadable.add(skipped.where)

        if part.source is not None:
            yield from read(part.source, self.reading.read_options, on_skip=skip, layouts=self.reading.layouts)
            return
        for document in self.reading.documents(skip, self._begin):
            if self._is_repeated(document):
                skip(Skip(document.id, REPEATED))
            else:
                yield document

    def _begin(self, source: Source) -> bool:
        self._name = source.name
        return True

    def _is_repeated(self, document: Document) -> bool:
        """Whether another document had its id before."""
        key = digest(document.id)
        if self._ids.find(key):
            return True
        self._ids.add(key, 0)
        return False

    def _count(self, cut: Iterable[list[Item]], counts: Counter[str], share: float) -> None:
        """What documents that are cut add, one list a document; `share`: of a document that each is."""
        for items in cut:
            if not items:
                counts["empty"] += 1
                continue
            encoder = self.plan.encoder
            for item in items:
                self.samples.add(item.row)
            fresh = self.knowledge.fresh(items)
            counts["chunks"] += len(items)
            counts["text_bytes"] += sum(len(item.row.text.encode("utf-8", "surrogatepass")) for item in items)
            n_truncated = len(too_long(items, encoder, self.plan.spec.chunk))
            read = _share_read(items[0], encoder, share) if self.plan.spec.chunk.size is None else 1.0
            counts["truncated"] += n_truncated if read == 1 else len(items)
            counts["to_encode"] += len(fresh)
            started = time.perf_counter()
            counts["tokens"] += round(read * _n_tokens(encoder, [item.text for item in fresh]))
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

    def _forecast(
        self, found: Estimates, removed: int | None, skipped: dict[str, int], read_seconds: float
    ) -> Forecast:
        plan, spec = self.plan, self.plan.spec
        to_encode, tokens, chunks = found["to_encode"], found["tokens"], found["chunks"]
        dim = spec.filter.width(plan.hidden) if plan.wants_a_sample else plan.dim()
        n_new, text_bytes = chunks.value, found["text_bytes"].value
        first = first_recipes(plan, dim, n_new=n_new, text_bytes=text_bytes)  # what is refused is refused now
        speed = self._speed(to_encode.value)
        n_words = n_lexical_rows(plan, n_new)
        packed = pack(self.samples.rows() or (stored_rows(plan) if n_words else []), dim, plan.index_options().lexical)
        words = packed.lexical_seconds * n_words
        other = self._load_seconds + read_seconds * (1 + plan.wants_a_sample) + packed.seconds * n_new + words
        encode, low, high = (
            (0.0, 0.0, 0.0)
            if speed is None
            else (tokens.value / speed.tokens_per_s, tokens.low / speed.high, tokens.high / speed.low)
        )
        return Forecast(
            corpus=str(self.reading.corpus),
            index=str(self.reading.index),
            model=plan.encoder_spec.model,
            method=plan.encoder_spec.method,
            encoder=plan.encoder_spec,
            filter=spec.filter,
            dim=dim,
            index_type=spec.index_type,
            index_recipe=str((first[0][1] if first else None) or FLAT),
            target_recall=plan.index_options().target_recall,
            n_files=len(self.files),
            corpus_bytes=self.corpus_bytes,
            share_read=found.share,
            documents=found["documents"],
            added=found["added"],
            changed=found["changed"],
            unchanged=found["unchanged"],
            removed=removed,
            chunks=chunks,
            to_encode=to_encode,
            tokens=tokens,
            truncated=found["truncated"],
            empty=found["empty"],
            skipped=skipped,
            speed=speed,
            load_seconds=self._load_seconds,
            encode_seconds=encode,
            lexical_seconds=words,
            seconds=encode + other,
            seconds_low=low + other,
            seconds_high=high + other,
            room=room(plan, self.reading.index, dim, packed, n_new=n_new, text_bytes=text_bytes),
        )

    def _speed(self, n_texts: int) -> Speed | None:
        texts = self._texts.texts()
        if not texts:
            return None
        self._tell(at_once=True)
        project = None if self.plan.wants_a_sample else self.plan.filter
        return measure(self.plan.encoder, texts, project, tune=n_texts >= TUNE_FROM)


class _Drawn:
    """Some of the texts that would be encoded, chosen by their hashes: those with the lowest."""

    def __init__(self) -> None:
        self._held: list[tuple[int, str]] = []  # a heap, the highest hash first
        self._n_chars = 0

    def add(self, items: Sequence[Item]) -> None:
        """Offer texts, each once."""
        for item in items:
            heapq.heappush(self._held, (-int.from_bytes(item.row.text_hash), item.text))
            self._n_chars += len(item.text)
            while len(self._held) > 1 and (len(self._held) > _TEXTS or self._n_chars > _TEXTS_CHARS):
                self._n_chars -= len(heapq.heappop(self._held)[1])

    def texts(self) -> list[str]:
        """Those that were chosen, by rising hash."""
        return [text for _, text in sorted(self._held, reverse=True)]


def _share_read(item: Item, encoder: Encoder, share: float) -> float:
    """Of the tokens of a block that is a share of a whole document: those before the model's limit, evenly taken."""
    limit = encoder.text_limit()
    if share == 1 or limit is None:
        return 1.0
    ids = encoder.tokenizer.ids([encoder.tokenizer.head(item.text, limit)])[0]
    return min(1.0, share * limit / max(1, min(len(ids), limit)))


def _n_tokens(encoder: Encoder, texts: Sequence[str]) -> int:
    """Tokens that the model reads for documents, all copies and prompts together."""
    return sum(row.n_tokens for row in encoder.rendered(texts, None)) if texts else 0
