"""Encoding: chunks to vectors by text hash, for builds, fits of filters and sweeps; chunks to rows, for builds.

items -> windows -> texts, each once -> vectors (n, k) of text hashes, batch by batch, in the order that suits the
encoder. `NewVectors`: windows -> rows with the vector that is known, else the model's, in order -> the writer
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragidx.corpora.errors import is_panic, panics_of
from ragidx.corpora.records import Skip
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.arrays import Floats, bundles, slices
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.encoders.protocol import TUNE_FROM
from ragidx.indexer.unknown import script_of
from ragidx.pipelines.ingest.distributed import embedder_of
from ragidx.pipelines.ingest.endpoint import check_model, check_uncut
from ragidx.pipelines.ingest.report import Progress, Skips, StrictError
from ragidx.pipelines.ingest.workers.chunks import Item

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Encoder
    from ragidx.indexer.writing import StoreWriter
    from ragidx.pipelines.ingest.ledger import Ledger
    from ragidx.pipelines.ingest.resolve import Resolved

WINDOW_CHUNKS = 4096
WINDOW_CHARS = 4 << 20
_ROWS = 256  # that the writer gets at once


def windows(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Chunks that are encoded together: enough that sorting by length pays, few enough to stay in memory."""
    return bundles(items, lambda item: len(item.text), WINDOW_CHARS, WINDOW_CHUNKS)


def encode(
    items: Sequence[Item], embedder: Embedder, progress: Progress, *, raw: bool = False, tune: bool = True
) -> Iterator[tuple[list[bytes], Floats]]:
    """Vectors of a window, each different text once: text hashes and (n, k), without those of which nothing is left.

    A text that the tokenizer does not know has one that is zero, for its words may be found. `progress` counts the
    seconds that the caller takes, too. `raw` vectors are neither filtered nor normalised.

    Raises:
        ModelError: a vector is not finite; the message names the chunk.
    """
    different = list({item.row.text_hash: item for item in items}.values())
    texts, names = [item.text for item in different], [item.row.chunk_id for item in different]
    if tune and len(texts) >= TUNE_FROM:  # `batches` would do it, but with the clock running
        with progress.while_doing("measuring what is fastest"):
            embedder.encoder.tune(texts)
    started, before = time.perf_counter(), progress.seconds
    with _knowing(different, embedder.encoder):
        for batch in embedder.batches(texts, names=names, raw=raw, tune=tune):
            is_kept = np.asarray(batch.vectors.any(axis=1))
            is_kept[list(batch.unknown)] = True
            kept = np.flatnonzero(is_kept)
            yield [different[batch.rows[row]].row.text_hash for row in kept.tolist()], batch.vectors[kept]
            progress.n_encoded += len(batch.rows)
            progress.n_tokens += batch.n_tokens
            progress.seconds = before + time.perf_counter() - started
            progress.tell()


@contextlib.contextmanager
def _knowing(items: Sequence[Item], encoder: Encoder) -> Iterator[None]:
    """The encoder takes the token ids that workers gave."""
    if not encoder.takes_ids:
        yield
        return
    encoder.tokenizer.know({item.text: item.ids for item in items if item.ids is not None})
    try:
        yield
    finally:
        encoder.tokenizer.know({})


def with_vector(items: Sequence[Item], hashes: Collection[bytes], skips: Skips) -> list[Item]:
    """The items whose text has a vector; the others, whose vector is zero, are skipped."""
    for item in items:
        if item.row.text_hash not in hashes:
            skips.add(Skip(item.row.chunk_id, "the model gives no vector for the text: it is zero"))
    return [item for item in items if item.row.text_hash in hashes]


class NewVectors(contextlib.ExitStack):
    """The vectors of a build; processes of further devices end with it.

    `fitted` are vectors by text hash that fitting the filter has made already.
    """

    def __init__(self, resolved: Resolved, writer: StoreWriter, fitted: dict[bytes, Floats], ledger: Ledger) -> None:
        super().__init__()
        self._resolved, self._writer, self._fitted, self._ledger = resolved, writer, fitted, ledger

    def add(self, window: Sequence[Item]) -> None:
        """Encode what has no vector yet, and give the window's rows to the writer in their order."""
        ledger = self._ledger
        self.count_truncated(window)
        done = ledger.progress.n_chunks + len(window)
        vectors = self._writer.reuse(list({item.row.text_hash for item in window}))
        missing = {key: item for item in window if (key := item.row.text_hash) not in vectors}
        vectors |= (fitted := {key: self._fitted.pop(key) for key in missing if key in self._fitted})
        vectors |= self._encode([item for key, item in missing.items() if key not in fitted])
        items = with_vector(window, vectors, ledger.skips)
        for part in slices([item.row for item in items], _ROWS):
            self._writer.add(part, np.stack([vectors[row.text_hash] for row in part]))
        ledger.unknown.update(script_of(item.text) for item in items if not vectors[item.row.text_hash].any())
        ledger.n_rows += len(items)
        ledger.n_chunks_reused += len(items) - sum(key in vectors for key in missing)  # less what is zero
        ledger.progress.n_chunks = done
        ledger.progress.tell()

    def count_truncated(self, items: Sequence[Item]) -> None:
        """Count documents that are longer than the model reads.

        Raises:
            StrictError: there is one, and the build is strict.
        """
        resolved = self._resolved
        found = too_long(items, resolved.encoder, resolved.spec.chunk)
        self._ledger.n_truncated += len(found)
        if found and resolved.options.strict:
            raise StrictError(
                f"the document has more than the {resolved.encoder.text_limit()} tokens that the model reads",
                "cut documents with `chunk_size`, or build without `strict=True`",
                where=found[0].row.doc_id,
            )

    def _encode(self, items: Sequence[Item]) -> dict[bytes, Floats]:
        """Vectors by text hash; each batch is in the journal before the next is encoded."""
        found: dict[bytes, Floats] = {}
        if not items:
            return found
        progress = self._ledger.progress
        for keys, vectors in encode(items, self._embedder, progress):
            self._writer.remember(keys, vectors)
            found |= zip(keys, vectors, strict=True)
            progress.n_chunks += len(keys)
            check_model(self._resolved, self._writer)
            check_uncut(self._resolved, strict=self._resolved.options.strict)
        return found

    @functools.cached_property
    def _embedder(self) -> Embedder:
        return self.enter_context(embedder_of(self._resolved))


def too_long(items: Sequence[Item], encoder: Encoder, spec: ChunkSpec) -> list[Item]:
    """Whole documents may be longer than the model reads; chunks never are, the chunker sees to that."""
    limit = encoder.text_limit()
    if spec.size is not None or limit is None:
        return []
    tokenizer, heads = encoder.tokenizer, []
    for item in items:
        with panics_of("tokenizers", item.row.doc_id):
            heads.append(tokenizer.head(item.text, limit))
    try:
        lengths = tokenizer.ids(heads)
    except BaseException as fault:
        if is_panic(fault):  # of which text it does not say
            for item, head in zip(items, heads, strict=True):
                with panics_of("tokenizers", item.row.doc_id):
                    tokenizer.ids([head])
        raise
    return [item for item, ids in zip(items, lengths, strict=True) if len(ids) > limit]
