"""Files of precomputed vectors that a worker reads, since Parquet and Arrow have parsers that a hostile file can break.

sizes of the files -> Reader, as `corpora.vectors` takes one
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Skip
from ragidx.corpora.vectors.files import HINT, Reader, VectorRows
from ragidx.pipelines.ingest.workers.spread import Spread, events, is_death

_BYTES_A_BYTE = 4  # of memory for a file: one record batch may be all of it, packed


@contextlib.contextmanager
def vector_reader(sizes: Sequence[int], options: ReadOptions) -> Iterator[Reader]:
    """What reads files in one worker, which starts with the first of them.

    The largest of the `sizes`, in bytes, decides how much memory it may have.
    """
    most = Limits().worker_memory_bytes + _BYTES_A_BYTE * max(sizes, default=0)
    options = dataclasses.replace(options, limits=Limits(worker_memory_bytes=most))
    spread = Spread(options, Layouts(), lambda skip: None)
    with spread.pool(1) as pool:

        def read(file: SourceFile, vector_field: str | None, dim: int | None, named: bool) -> Iterator[VectorRows]:
            number = spread.begin(file.source, pool, [vector_field, dim, named])
            for event in events(file.source, pool, number):
                if isinstance(event, VectorRows):
                    yield event
                elif isinstance(event, Skip):
                    if is_death(event, file.source):
                        raise CorpusError(event.reason, HINT, where=file.source.name)
                    file.on_skip(event)

        yield read
