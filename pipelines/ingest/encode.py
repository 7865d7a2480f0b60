"""Encoding: chunks to vectors by text hash, for builds, fits of filters and sweeps.

items -> windows -> texts, each once -> vectors (n, k) of text hashes, batch by batch, in the order that suits the
encoder. Not known here: what has a vector already, and where vectors go.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from ragidx.corpora.records import Skip
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders.embedder import Embedder
from ragidx.indexer.encoders.protocol import TUNE_FROM
from ragidx.pipelines.ingest.chunks import Item
from ragidx.pipelines.ingest.report import Progress, Skips, Teller, doing

WINDOW_CHUNKS = 4096
WINDOW_CHARS = 4 << 20


def windows(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Chunks that are encoded together: enough that sorting by length pays, few enough to stay in memory."""
    window: list[Item] = []
    n_chars = 0
    for item in items:
        window.append(item)
        n_chars += len(item.text)
        if len(window) >= WINDOW_CHUNKS or n_chars >= WINDOW_CHARS:
            yield window
            window, n_chars = [], 0
    if window:
        yield window


def encode(
    items: Sequence[Item], embedder: Embedder, progress: Progress, tell: Teller, *, raw: bool = False, tune: bool = True
) -> Iterator[tuple[list[bytes], Floats]]:
    """Vectors of a window, each different text once: text hashes and (n, k), without those that are zero.

    Args:
        items: of the window.
        embedder: of the vectors.
        progress: counts what went through the model, and the seconds, those that the caller takes included.
        tell: called after each batch.
        raw: neither filtered nor normalised.
        tune: as in `Encoder.batches`.

    Raises:
        ModelError: a vector is not finite; the message names the chunk.
    """
    different = list({item.row.text_hash: item for item in items}.values())
    texts, names = [item.text for item in different], [item.row.chunk_id for item in different]
    if tune and len(texts) >= TUNE_FROM:  # `batches` would do it, but with the clock running
        with doing("measuring what is fastest", progress, tell):
            embedder.encoder.tune(texts)
    started, before = time.perf_counter(), progress.seconds
    for batch in embedder.batches(texts, names=names, raw=raw, tune=tune):
        kept = np.flatnonzero(batch.vectors.any(axis=1))
        yield [different[batch.rows[row]].row.text_hash for row in kept.tolist()], batch.vectors[kept]
        progress.n_encoded += len(batch.rows)
        progress.n_tokens += batch.n_tokens
        progress.seconds = before + time.perf_counter() - started
        tell()


def with_vector(items: Sequence[Item], hashes: Collection[bytes], skips: Skips) -> list[Item]:
    """The items whose text has a vector; the others, whose vector is zero, are skipped."""
    for item in items:
        if item.row.text_hash not in hashes:
            skips.add(Skip(item.row.chunk_id, "the model makes nothing of the text: its vector is zero"))
    return [item for item in items if item.row.text_hash in hashes]
