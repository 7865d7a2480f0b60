"""Files become documents: one module a format, and the table of endings and readers.

A reader in another package (an entry point of the group `ragidx.readers`) needs the names below.
"""

from ragidx.corpora.limits import Limits, ReadOptions, UnreadableError
from ragidx.corpora.readers.registry import ENTRY_POINTS, READERS, Reader, documents
from ragidx.corpora.readers.source_file import SourceFile

__all__ = [
    "ENTRY_POINTS",
    "READERS",
    "Limits",
    "ReadOptions",
    "Reader",
    "SourceFile",
    "UnreadableError",
    "documents",
]
