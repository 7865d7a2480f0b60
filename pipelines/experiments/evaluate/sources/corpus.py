"""A corpus as a source: read and cut as a build does it, its raw vectors from the cache or the encoder.

documents -> chunks -> raw vectors -> raw.f32 (n, hidden) in a temporary folder, in the order of the corpus. A build
stores unit length in float16; here both are left to what is measured, since filters that are fitted see the model's own
lengths, and the answers that everything is compared with must not depend on rounding. The sample that a filter is
fitted on is the one that a build of this corpus would draw.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ragidx.corpora.records import Chunk
from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.filters.fitting import DocumentSample, FilterSample, lowest
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.experiments.evaluate.sources.source import VectorSource, mean_tokens
from ragidx.pipelines.ingest.corpus import Reading, chunker_of
from ragidx.pipelines.ingest.encode import too_long, windows, with_vector
from ragidx.pipelines.ingest.fit_filter import document_sample
from ragidx.pipelines.ingest.report import OnProgress, Progress, Skips
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft, Item, cut_ahead

COUNTED = 1000
"""Chunks of a corpus whose tokens are counted, at most."""

_SEED = 0


class CorpusSource(VectorSource):
    """A corpus, encoded when this is made.

    Args:
        corpus: a folder, a file, a BEIR folder, or `-`.
        folder: a temporary folder, which holds the vectors.
        vectors: the raw vectors of the encoder.
        fitted: the seed and size of the sample that filters are fitted on; None: no filter is.
        out: the folder of the results; it is not read where it is in the corpus.
        on_build: called a few times a second.

    Raises:
        RagidxError: what a build of the corpus would raise.
    """

    def __init__(
        self,
        corpus: str | Path,
        folder: Path,
        vectors: RawVectors,
        *,
        fitted: FilterSpec | None,
        out: Path | None = None,
        on_build: OnProgress | None = None,
    ) -> None:
        self._vectors, resolved = vectors, vectors.resolved
        self._reading = Reading.alone(corpus, out or folder, resolved.options)
        self.name, self.spec = str(corpus), resolved.spec
        self.instruction = resolved.encoder_spec.instruction
        self.hidden = self.dim = resolved.hidden
        self.n_documents = 0
        self._path = folder / "raw.f32"
        self._chunk_ids: list[str] = []
        self._doc_ids: list[str] = []
        self._skips, self._progress, self._n_truncated = Skips(), Progress(on_progress=on_build), 0
        self._cutter = Cutter(lambda: chunker_of(self.encoder, self.spec.chunk))
        self._drawn: list[Draft] = []
        with temporary_room(self._path):
            self._file = self._path.open("wb")
            self._lines = self._path.with_suffix(".chunks").open("w", encoding="utf-8")
        with self._file, self._lines:
            self._encode_all(fitted)
        self._searched = np.arange(len(self._chunk_ids))
        self._raw = np.zeros((0, self.dim), np.float32)
        if self._chunk_ids:
            self._raw = np.memmap(self._path, "<f4", "r", shape=(len(self._chunk_ids), self.dim))
        self.notes = tuple(self._notes())

    @functools.cached_property
    def tokens(self) -> float | None:
        """Counted on `COUNTED` chunks with the lowest random keys, all of a smaller corpus."""
        drawn = set(lowest(_SEED, self._chunk_ids, COUNTED))
        chunks = (chunk for row, chunk in enumerate(self._stored_chunks()) if row in drawn)
        texts = [self._cutter.chunker.encoded_text(chunk) for chunk in chunks]
        return mean_tokens(self.encoder, texts)

    def sample(self, spec: FilterSpec) -> FilterSample:
        """The sample that a build draws: of documents with the lowest random keys the chunks with the lowest ones."""
        chosen = {draft.id for draft in self._drawn}
        rows = [row for row, doc_id in enumerate(self._doc_ids) if doc_id in chosen]
        drawn = lowest(spec.seed, (self._chunk_ids[row] for row in rows), spec.sample)
        return self._sample(spec, [rows[place] for place in drawn])

    def _encoded_texts(self, rows: Sequence[int]) -> list[str]:
        names = {self._chunk_ids[row] for row in rows}
        every = [item for items in cut_ahead(self._drawn, self._cutter) for item in items]
        return [item.text for item in every if item.row.chunk_id in names]

    def _stored_chunks(self) -> Iterator[Chunk]:
        with self._path.with_suffix(".chunks").open(encoding="utf-8") as file:
            for line in file:
                yield Chunk(**json.loads(line))

    def _rows(self, numbers: Ints) -> Floats:
        return np.array(self._raw[numbers])

    def _names(self, column: str) -> list[str]:
        return self._doc_ids if column == "doc_id" else self._chunk_ids

    def _encode_all(self, fitted: FilterSpec | None) -> None:
        self._progress.total_bytes, self._progress.has_new = self._reading.total_bytes(), True
        sample = None if fitted is None else document_sample(dataclasses.replace(self.spec, filter=fitted))
        for window in windows(self._items(sample)):
            self._encode(window)
        self._drawn = [] if sample is None else sample.items()
        self._reading.check_something_was_read(self.n_documents, self._skips)
        self._progress.last = True
        self._progress.tell(at_once=True)

    def _items(self, sample: DocumentSample[Draft] | None) -> Iterator[Item]:
        """The chunks of the corpus."""
        for items in cut_ahead(self._drafts(sample), self._cutter):
            self._progress.n_cut += len(items)
            yield from items

    def _drafts(self, sample: DocumentSample[Draft] | None) -> Iterator[Draft]:
        """The documents of the corpus; they are added to the sample."""
        for draft in self._reading.drafts(self._cutter, self._skips.add, self._progress.add_bytes):
            if sample is not None:
                sample.add(draft.id, draft.n_chars, draft)
            self.n_documents += 1
            self._progress.n_documents += 1
            self._progress.tell()
            yield draft

    def _encode(self, window: Sequence[Item]) -> None:
        """Write the raw vectors of a window; a chunk without one is skipped."""
        self._n_truncated += len(too_long(window, self.encoder, self.spec.chunk))
        found = self._vectors.documents(window, self._progress)
        items = with_vector(window, found, self._skips)
        with temporary_room(self._path):
            self._file.writelines(found[item.row.text_hash].astype("<f4").tobytes() for item in items)
            self._file.flush()
            for item in items:
                self._lines.write(json.dumps(dataclasses.asdict(item.row.chunk)) + "\n")
        self._chunk_ids += [item.row.chunk_id for item in items]
        self._doc_ids += [item.row.doc_id for item in items]

    def _notes(self) -> Iterator[str]:
        for reason, count in self._skips.counts.items():
            if reason not in BY_RULE:
                yield f"Skipped: {count:,} x {reason}; first: {self._skips.places[reason][0]}."
        if self._n_truncated:
            yield f"Cut: {self._n_truncated:,} x document longer than the model reads."
