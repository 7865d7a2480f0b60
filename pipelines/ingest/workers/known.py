"""Which documents an index has: one file of digests that workers map, so that 1 % changed of a file cuts 1 % of it.

16 bytes a document, the digests of their ids, sorted; then 16 bytes each, their hashes; then 4 each, their owners
"""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.digests import as_digests, digest
from ragidx.pipelines.ingest.workers.chunks import Draft

RECORD = np.dtype([("document", "S16"), ("hash", "V16"), ("owner", "<i4")])


def written(known: NDArray[np.void]) -> IO[bytes]:
    """Records in a file without a name, which ends with the processes that have it open."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    order = np.argsort(known["document"], kind="stable")
    file.write(b"".join(known[name][order].tobytes() for name in RECORD.names or ()))
    file.flush()
    return file


class Known:
    """The file that `written` gives, open, mapped; where it has no bytes nothing is known."""

    def __init__(self, file: IO[bytes]) -> None:
        count = file.seek(0, 2) // RECORD.itemsize
        found = np.memmap(file, np.uint8, mode="r") if count else np.zeros(0, np.uint8)
        self._ids, self._hashes = found[: 16 * count].view("S16"), found[16 * count : 32 * count].view("V16")
        self._owners = found[32 * count :].view("<i4")

    def has(self, draft: Draft) -> bool:
        """Whether the index has this document as it is, of this source."""
        wanted = as_digests([digest(draft.id)])
        place = int(self._ids.searchsorted(wanted)[0])
        if place == len(self._ids) or self._ids[place : place + 1] != wanted:
            return False
        return self._hashes[place].tobytes() == draft.hash and int(self._owners[place]) == draft.owner
