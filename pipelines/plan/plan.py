"""Plan: what a build would do and what it would take, before hours are spent on it.

    files -> Drafts of documents -> Changes -> chunks -> counts -> seconds, bytes

The stages are the build's own; in place of the model and the writer stand counts. A large corpus is read in part: whole
files, drawn at random, and the beginning of a file that is large itself. What is counted is then multiplied by the
bytes. The speed of encoding is measured here (`speed`), and texts are compressed as a segment compresses them
(`footprint`). How long an approximate index takes to make is not estimated. The index folder is not written to, not
even its lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import SpecError
from ragidx.corpora.sources import Source
from ragidx.indexer.ann.index_types import FLAT
from ragidx.indexer.encoders.protocol import TUNE_FROM
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.store.lookup import CommittedVectors, Documents
from ragidx.indexer.store.rows import Row
from ragidx.indexer.writing.vacuum import check_folder
from ragidx.pipelines.ingest.changes import Decisions, Kind, Verdict
from ragidx.pipelines.ingest.corpus import Reading, chunker_of
from ragidx.pipelines.ingest.encode import too_long
from ragidx.pipelines.ingest.fit_filter import check_fit
from ragidx.pipelines.ingest.ledger import Ledger
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.removal import deleted_ids, missing
from ragidx.pipelines.ingest.report import PLANNING, OnProgress, Progress, Skips
from ragidx.pipelines.ingest.resolve import Resolved, resolve
from ragidx.pipelines.ingest.selection import Corpus, as_paths, reading_of
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft, Item
from ragidx.pipelines.plan.footprint import SAMPLE_ROWS, IndexFootprint, first_recipes, footprint, pack
from ragidx.pipelines.plan.speed import TEXTS, Speed, measure

WHOLE_BYTES = 8 << 20  # a corpus of up to so many is read whole: some ten seconds of cutting
SAMPLE_BYTES = 4 << 20  # read of a larger one, about
_FILE_BYTES = 1 << 20  # read of a file of a larger one, about
_UNPACKED = 4  # characters of text for each byte of a file that does not say how far it is read
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a build would do.

    Attributes:
        corpus, index: names as they were given.
        model, method, encoder, filter, dim, index_type: how vectors would be made.
        index_recipe: what the build makes first of the largest new segment, as a factory string, or flat.
        target_recall: recall that it is tuned to; which recall it has is measured when it is made.
        n_files, corpus_bytes: files of the corpus, and their bytes.
        share_read: share of these bytes that was read. 1: all, and counts are exact; else they are estimates.
        n_documents: documents of the corpus; `n_added`, `n_changed`, `n_unchanged` against the index, and `n_removed`,
            which of the sources that are planned are in the index alone (None where not all of them was read).
        n_chunks: chunks of new and changed documents; `n_to_encode` of them go through the model, the others are known.
        n_tokens: tokens that the model reads for them.
        n_truncated, n_empty: documents longer than the model reads, and without text.
        skipped: number of skips by reason.
        speed: speed of encoding; None where there is nothing to encode.
        load_seconds, encode_seconds, lexical_seconds: time to load the model, to encode, and to make the lexical part.
        seconds: all of these, and reading, cutting and packing. Making an approximate index comes on top.
        footprint: bytes on the disk and in memory.
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
    n_documents: int
    n_added: int
    n_changed: int
    n_unchanged: int
    n_removed: int | None
    n_chunks: int
    n_to_encode: int
    n_tokens: int
    n_truncated: int
    n_empty: int
    skipped: dict[str, int]
    speed: Speed | None
    load_seconds: float
    encode_seconds: float
    lexical_seconds: float
    seconds: float
    footprint: IndexFootprint

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types; docs/plan.md lists them."""
        return dataclasses.asdict(self) | {"encoder": str(self.encoder), "filter": str(self.filter)}


def plan(
    corpus: Corpus = None,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Plan:
    """What `build` would do with the same arguments, without building; an index is read, and not touched.

    Raises:
        RagidxError: what `build` would refuse is refused in the same words: options, model, index, an empty corpus.
        SpecError: the corpus is standard input.
    """
    chosen = build_options(**options)
    if "-" in map(str, as_paths(corpus)):
        raise SpecError(
            "it can be read once, and a plan would leave nothing of it for the build",
            "write it to a file, and plan with that",
            where="standard input",
        )
    resolved = resolve(Path(index), chosen)
    reading = reading_of(corpus, Path(index), chosen, resolved.stored)
    progress = Progress(stage=PLANNING, on_progress=on_progress)
    ledger = Ledger(reading.selection, progress, Skips())
    files = list(reading.sources(ledger.skip))
    check_folder(reading.index)
    if resolved.wants_a_sample:
        check_fit(resolved, reading.corpus, reading.index)
    counts = _Counts(resolved, reading, ledger, Documents(resolved.stored))
    counts.read(files)
    estimate = _made(counts, files)
    progress.last = True
    progress.tell(at_once=True)
    return estimate


@dataclass
class _Counts:
    """Where the pipeline ends: documents and chunks are counted, some rows and texts kept.

    Attributes:
        documents: documents of the index.
        of: counts by name, of the whole corpus: a file that was read in part counts by its bytes.
        rows, texts: some that a build would store and encode.
        load_seconds, read_seconds: time to load the model, and to read and cut.
    """

    resolved: Resolved
    reading: Reading
    ledger: Ledger
    documents: Documents
    of: Counter[str] = field(default_factory=Counter)
    rows: list[Row] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    share_read: float = 1.0
    load_seconds: float = 0.0
    read_seconds: float = 0.0
    _seen: set[bytes] = field(default_factory=set)  # hashes of texts
    _count_seconds: float = 0.0  # of counting tokens, which a build does while it encodes
    _n_bytes: int = 0  # of the file that is read
    _n_chars: int = 0  # of its documents

    @property
    def is_whole(self) -> bool:
        """Whether everything was read, so that counts are exact."""
        return self.share_read == 1

    def read(self, files: Sequence[Source]) -> None:
        """Count what the files hold, or those of them that are drawn.

        Raises:
            CorpusError: there is no document.
        """
        started, progress = time.perf_counter(), self.ledger.progress
        total = sum(file.size for file in files)
        is_sampled = total > WHOLE_BYTES
        drawn = random.Random(_SEED).sample(files, len(files)) if is_sampled else files
        progress.total_bytes = SAMPLE_BYTES if is_sampled else total
        reader = self.reading.files(self._cutter, self.ledger.skip, self._add_bytes)
        stored = self.resolved.stored
        deleted = deleted_ids(self.resolved.blobs().get(DELETED_FILE)) if stored is not None else {}
        read = [entry.number for entry in self.ledger.selection.selected]
        decisions = Decisions(self.documents, read, deleted)
        walked, n_drawn, n_read = Counter(self.ledger.skips.counts), 0, 0
        of_files, of_program = defaultdict[str, float](float), Counter[str]()
        if self.reading.options.rebuild:
            for change in decisions.changes(self.reading.program_drafts(self.ledger.skip)):
                self._take(change, of_program)
        for source, drafts in reader.drafts(drawn):
            if is_sampled and n_drawn and n_read >= SAMPLE_BYTES:
                break
            self.ledger.begin(source)
            here, n_bytes = self._read_file(source, drafts, decisions, in_part=is_sampled)
            n_read += n_bytes
            for name, count in here.items():
                of_files[name] += count * source.size / max(1, n_bytes)
            n_drawn += source.size
        factor = max(1, total) / max(1, n_drawn) if is_sampled else 1.0
        self.share_read = n_read / total if is_sampled else 1.0
        self.of = Counter({name: round(count * factor) for name, count in of_files.items()}) + of_program
        for reason, count in self.ledger.skips.counts.items():
            while_reading = (count - walked[reason]) / self.share_read if self.share_read else 0
            self.of[f"skipped {reason}"] = round(walked[reason] + while_reading)
        if self.ledger.selection.names:
            self.reading.check_something_was_read(progress.n_documents, self.ledger.skips)
        self.read_seconds = (time.perf_counter() - started - self.load_seconds - self._count_seconds) / max(
            self.share_read, 1e-9
        )

    def _read_file(
        self, source: Source, drafts: Generator[Draft], decisions: Decisions, *, in_part: bool
    ) -> tuple[Counter[str], int]:
        """What a file holds, and how many of its bytes that is."""
        here, self._n_bytes, self._n_chars = Counter[str](), 0, 0
        ahead = -1  # bytes that the reader looked at before it gave the first document
        with contextlib.closing(drafts):
            for change in decisions.changes(drafts):
                ahead = self._n_bytes if ahead < 0 else ahead
                self._take(change, here)
                n_read = self._n_bytes or self._n_chars // _UNPACKED
                if in_part and n_read - ahead >= _FILE_BYTES:
                    return here, min(source.size, n_read)
        return here, source.size

    def _add_bytes(self, count: int) -> None:
        self._n_bytes += count
        self.ledger.progress.add_bytes(count)

    def _take(self, change: Verdict, here: Counter[str]) -> None:
        self.ledger.change(change)
        self._n_chars += change.draft.n_chars
        if not change.is_cut and change.kind is not Kind.SAME:
            return
        here["documents"] += 1
        here[change.kind.value] += 1
        self.documents.keep(change.draft.id)
        if change.is_cut:
            items = self._cutter.cut(change.draft)
            self.ledger.cut(items)
            if items:
                self._count(items, here)
            else:
                here["empty"] += 1
        self.ledger.progress.tell()

    def _count(self, items: Sequence[Item], here: Counter[str]) -> None:
        """What the chunks of a document add."""
        encoder = self.resolved.encoder
        texts = self._new_texts(items)
        here["chunks"] += len(items)
        here["text_bytes"] += sum(len(item.row.text.encode("utf-8", "surrogatepass")) for item in items)
        here["truncated"] += len(too_long(items, encoder, self.resolved.spec.chunk))
        here["to_encode"] += len(texts)
        started = time.perf_counter()
        here["tokens"] += sum(row.n_tokens for row in encoder.rendered(texts, None)) if texts else 0
        self._count_seconds += time.perf_counter() - started
        self.rows += [item.row for item in items][: SAMPLE_ROWS - len(self.rows)]
        self.texts += texts[: TEXTS - len(self.texts)]

    def _new_texts(self, items: Sequence[Item]) -> list[str]:
        """The texts that have no vector in the index, each once, here and in later calls."""
        texts = {item.row.text_hash: item.text for item in items if item.row.text_hash not in self._seen}
        self._seen |= texts.keys()
        have_vectors = self._committed.known(list(texts))
        return [text for text, has_vector in zip(texts.values(), have_vectors, strict=True) if not has_vector]

    def n_removed(self) -> int | None:
        """How many documents of the sources are in the index alone; None where not all was read.

        Raises:
            SpecError: a build would refuse to remove them.
        """
        if not self.is_whole:
            return None
        stored, ledger = self.resolved.stored, self.ledger
        if stored is None:
            return 0
        entries, names = ledger.selection.entries, ledger.selection.names
        self.documents.keep_all(self.documents.of([entry.number for entry in entries if entry.name not in names]))
        unseen = missing(stored, self.documents, ledger.unreadable, self.reading.roots())
        if not self.reading.options.allow_removal:
            ledger.check_none_is_lost(entries)
            ledger.check_removal(unseen, self.reading.index)
        return len(unseen.gone)

    @functools.cached_property
    def _committed(self) -> CommittedVectors:
        return CommittedVectors(self.resolved.stored)

    @functools.cached_property
    def _cutter(self) -> Cutter:
        return Cutter(self._chunker)

    def _chunker(self) -> Chunker:
        started = time.perf_counter()
        made = chunker_of(self.resolved.encoder, self.resolved.spec.chunk)
        self.load_seconds = time.perf_counter() - started
        return made


def _made(counts: _Counts, files: Sequence[Source]) -> Plan:
    """What follows from the counts."""
    resolved, of, index = counts.resolved, counts.of, counts.reading.index
    spec, n_removed = resolved.spec, counts.n_removed()
    dim = spec.filter.width(resolved.hidden) if resolved.wants_a_sample else resolved.dim()
    n_new, text_bytes = of["chunks"], of["text_bytes"]
    recipes = first_recipes(resolved, dim, n_new=n_new, text_bytes=text_bytes)  # refused before the speed is measured
    speed = _speed(counts)
    packed = pack(counts.rows, dim, resolved.index_options().lexical)
    encode = 0.0 if speed is None else of["tokens"] / speed.tokens_per_s
    words = packed.lexical_seconds * n_new
    read = counts.read_seconds * (1 + resolved.wants_a_sample)
    reasons = {name.removeprefix("skipped "): count for name, count in of.items() if name.startswith("skipped ")}
    return Plan(
        corpus=str(counts.reading.corpus),
        index=str(index),
        model=resolved.encoder_spec.model,
        method=resolved.encoder_spec.method,
        encoder=resolved.encoder_spec,
        filter=spec.filter,
        dim=dim,
        index_type=spec.index_type,
        index_recipe=str((recipes[0][1] if recipes else None) or FLAT),
        target_recall=resolved.index_options().target_recall,
        n_files=len(files),
        corpus_bytes=sum(file.size for file in files),
        share_read=counts.share_read,
        n_documents=of["documents"],
        n_added=of[Kind.NEW.value],
        n_changed=of[Kind.CHANGED.value],
        n_unchanged=of[Kind.SAME.value],
        n_removed=n_removed,
        n_chunks=n_new,
        n_to_encode=of["to_encode"],
        n_tokens=of["tokens"],
        n_truncated=of["truncated"],
        n_empty=of["empty"],
        skipped=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        speed=speed,
        load_seconds=counts.load_seconds,
        encode_seconds=encode,
        lexical_seconds=words,
        seconds=encode + counts.load_seconds + read + packed.seconds * n_new + words,
        footprint=footprint(resolved, index, dim, packed, recipes, text_bytes),
    )


def _speed(counts: _Counts) -> Speed | None:
    if not counts.texts:
        return None
    counts.ledger.progress.tell(at_once=True)
    project = None if counts.resolved.wants_a_sample else counts.resolved.filter
    return measure(counts.resolved.encoder, counts.texts, project, tune=counts.of["to_encode"] >= TUNE_FROM)
