"""Files become documents: one module a format, and the table of endings and readers.

A reader in another package (an entry point of the group `ragidx.readers`) needs the names below.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.corpora.limits import Limits, ReadOptions, UnreadableError
    from ragidx.corpora.readers.registry import ENTRY_POINTS, READERS, Reader, documents
    from ragidx.corpora.readers.source_file import SourceFile
else:
    from ragidx.corpora.faces import face

    _HOMES = {
        ".limits": ("Limits", "ReadOptions", "UnreadableError"),
        "registry": ("ENTRY_POINTS", "READERS", "Reader", "documents"),
        "source_file": ("SourceFile",),
    }
    __getattr__ = face(__name__, {name: home for home, names in _HOMES.items() for name in names})

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
