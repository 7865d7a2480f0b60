"""Files become documents: one module a format, and the table that says which ending is read by which.

The names below are what a reader of another package needs (an entry point of the group `ragidx.readers`).
"""

from ragidx.corpora.readers.registry import (
    ENTRY_POINTS,
    READERS,
    Limits,
    Reader,
    ReadOptions,
    SourceFile,
    UnreadableError,
    documents,
    read,
)

__all__ = [
    "ENTRY_POINTS",
    "READERS",
    "Limits",
    "ReadOptions",
    "Reader",
    "SourceFile",
    "UnreadableError",
    "documents",
    "read",
]
