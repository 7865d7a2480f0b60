"""The words of a segment, made by workers: each reads some of its stored rows, and gives their postings.

Segment, LexicalSpec -> tasks of some rows each -> workers -> Pieces, in the order of the rows

The file that is made of them is the same for any number of workers. What they cannot do is done in this process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Generator, Iterator
from pathlib import Path

import pyarrow as pa

from ragidx.corpora.errors import MachineError
from ragidx.corpora.limits import MIB, ReadOptions
from ragidx.indexer.arrays import slices
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import PostingsPiece, packed, unpacked
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.entries import parse_segment
from ragidx.indexer.store.files import CHUNKS
from ragidx.indexer.store.segment import BATCH_ROWS, Segment
from ragidx.indexer.writing.lexical_files import OnRows, pieces_of
from ragidx.pipelines.ingest.workers.capacity import has_interpreter, n_workers
from ragidx.pipelines.ingest.workers.lanes import Message
from ragidx.pipelines.ingest.workers.pool import Pool
from ragidx.pipelines.ingest.workers.process import Process

TASK_BATCHES = 16
"""Record batches of a task: some 4,000 rows."""

PAYS_BYTES = 2 * MIB
"""Of stored rows: fewer are read sooner in this process than workers start."""

_OPTIONS = ReadOptions()
_JOB: Message = {"kind": "job", "options": dataclasses.asdict(_OPTIONS), "language": False, "known": None}, b""


def make_pieces(workers: int | None, segment: Segment, spec: LexicalSpec, on_rows: OnRows) -> Generator[PostingsPiece]:
    """The postings of a segment, in the order of its rows; a `MakePieces`, but for the first argument.

    `workers` None: as many as the machine has room for, and none for a small segment.
    """
    last = -(-segment.entry.rows // BATCH_ROWS)
    parts = list(slices(range(last), TASK_BATCHES))
    count = min(_count(workers, segment), len(parts))
    if count < 2:
        yield from pieces_of(segment, spec.make_analyzer(), on_rows)
        return
    with Pool(count, lambda heard, ended: Process("workers.worker", _JOB, _OPTIONS.limits, heard, ended)) as pool:
        what, mapped = _written(segment, spec), segment.entry.files[CHUNKS].bytes
        tasks = [pool.add({"words": [part.start, part.stop], "mapped": mapped}, what) for part in parts]
        for task, part in zip(tasks, parts, strict=True):
            rows = range(part.start * BATCH_ROWS, min(part.stop * BATCH_ROWS, segment.entry.rows))
            made = _made(pool, task, rows)
            if made is None:
                made = list(pieces_of(segment, spec.make_analyzer(), lambda count: None, part))
            yield from made
            on_rows(len(rows))


def _count(workers: int | None, segment: Segment) -> int:
    if not has_interpreter() or (workers is None and segment.entry.files[CHUNKS].bytes < PAYS_BYTES):
        return 1
    try:
        return n_workers(workers)
    except MachineError:  # there is no memory for a worker
        return 1


def _made(pool: Pool, task: int, rows: range) -> list[PostingsPiece] | None:
    """What a worker makes of some rows; None: it could not."""
    made: list[PostingsPiece] = []
    try:
        for header, body in pool.messages(task):
            kind = header.get("kind")
            if kind == "postings":
                made += unpacked(body, rows)
            elif kind == "again":
                made = []
            else:  # it met an error, or died
                return None
    except (MachineError, ValueError, pa.ArrowException, OSError):
        return None
    return made


# -- in the worker ------------------------------------------------------------------------------------------------


def _written(segment: Segment, spec: LexicalSpec) -> bytes:
    """What a worker needs to read a segment's words."""
    schema, entry = dict(segment.schema), segment.entry.to_json()
    told = [str(segment.folder.absolute()), entry, segment.dim, schema, dataclasses.asdict(spec)]
    return json.dumps(told).encode()


def pieces(written: bytes, batches: range) -> Iterator[bytes]:
    """The postings of some rows, in a worker."""
    segment, analyzer = _read(written)
    return map(packed, pieces_of(segment, analyzer, lambda count: None, batches))


@functools.lru_cache(maxsize=1)
def _read(written: bytes) -> tuple[Segment, Analyzer]:
    """Shared by the tasks of a segment: so are the terms that were found."""
    folder, entry, dim, schema, spec = json.loads(written)
    return Segment(Path(folder), parse_segment(entry, "segment"), dim, schema), LexicalSpec(**spec).make_analyzer()
