"""Which documents an index has: one file of digests that workers map, so that 1 % changed of a file cuts 1 % of it.

16 bytes a document, the digests of their ids, sorted; then 16 bytes each, their hashes
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.digests import as_digests, digest

RECORD = np.dtype([("document", "S16"), ("hash", "V16")])


def written(known: NDArray[np.void]) -> IO[bytes]:
    """Records in a file without a name, which ends with the processes that have it open."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    order = np.argsort(known["document"], kind="stable")
    file.write(known["document"][order].tobytes() + known["hash"][order].tobytes())
    file.flush()
    return file


class Known:
    """The file, mapped.

    Args:
        file: that `written` gives, open; of no bytes: nothing is known.
    """

    def __init__(self, file: IO[bytes]) -> None:
        count = file.seek(0, 2) // RECORD.itemsize
        found = np.memmap(file, "S16", mode="r") if count else np.zeros(0, "S16")
        self._ids, self._hashes = found[:count], found[count:].view("V16")

    def hash(self, doc_id: str) -> bytes | None:
        """Of a document; None: the index has none of this id."""
        wanted = as_digests([digest(doc_id)])
        place = int(self._ids.searchsorted(wanted)[0])
        if place == len(self._ids) or self._ids[place : place + 1] != wanted:
            return None
        found: bytes = self._hashes[place].tobytes()
        return found


def records(known: Iterable[tuple[str, bytes]]) -> NDArray[np.void]:
    """Ids and hashes as records."""
    return np.array([(digest(doc_id), doc_hash) for doc_id, doc_hash in known], RECORD)
