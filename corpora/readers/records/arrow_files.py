"""An Arrow IPC file or stream, record batch by record batch; Feather is the same file. Nothing of it is mapped.

    path -> schema, (record batch, share of the file behind it)

A mapped file that becomes shorter while it is read ends the process; a read that comes back short is an error. One
record batch is held at a time, with its packed form where it is packed. What is read may lie about its own lengths and
offsets: who takes values from a batch validates it first. Whether the file changed meanwhile is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragidx.corpora.limits import UnreadableError

_FILE_MARK = b"ARROW1"
_FEATHER_1_MARK = b"FEA1"


@contextmanager
def open_arrow(path: Path) -> Iterator[tuple[Any, Iterator[tuple[Any, float]]]]:
    """The schema of an Arrow IPC file or stream, and its record batches with the share of the file behind each, 0 to 1.

    Raises:
        UnreadableError: it is a Feather file of version 1.
        pyarrow.ArrowException, OSError: it is damaged, or ends before a record batch does.
    """
    with pa.OSFile(str(path)) as file:
        size, mark = file.size(), file.read(len(_FILE_MARK))
        file.seek(0)
        if mark.startswith(_FEATHER_1_MARK):
            raise UnreadableError("Feather version 1: write it again as version 2")
        if mark == _FILE_MARK:
            reader = pa.ipc.open_file(file)
            count = reader.num_record_batches
            yield reader.schema, ((reader.get_batch(i), (i + 1) / count) for i in range(count))
        else:
            reader = pa.ipc.open_stream(file)
            yield reader.schema, _streamed(reader, file, size)


def _streamed(reader: Any, file: Any, size: int) -> Iterator[tuple[Any, float]]:
    for batch in reader:
        yield batch, file.tell() / size
        del batch  # before the next is read: one at a time is held
