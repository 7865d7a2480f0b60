"""The errors for a damaged file of an index, and for a folder that cannot hold one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ragidx.corpora.errors import IndexFormatError, check_machine, first_line, lone_surrogate, printable

PUT_BACK = "put it back from a copy, or build again with `rebuild=True`"


def damaged(path: Path, reason: str) -> IndexFormatError:
    """A file that is not as it was written; `reason` says how that shows."""
    return IndexFormatError(f"the file is damaged: {reason}", PUT_BACK, where=str(path))


@contextlib.contextmanager
def reading(path: Path, what: str = "") -> Iterator[None]:
    """Name the file where the block finds that it is damaged.

    Args:
        path: place of the file.
        what: words before the reason, in the message.

    Raises:
        IndexFormatError: it is damaged.
        MachineError: the machine cannot read it now.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as fault:  # MemoryError: a forged length
        check_machine(fault, path)
        reason = (isinstance(fault, OSError) and fault.strerror) or first_line(fault)
        raise damaged(path, f"{what}{reason}") from fault


def check_name(folder: Path) -> None:
    """Refuse a folder that FAISS and Arrow cannot open.

    Raises:
        IndexFormatError: its name is not UTF-8.
    """
    if lone_surrogate(str(folder)) is not None:
        hint = "rename the folder, or name another one with `index`"
        raise IndexFormatError("its name is not UTF-8", hint, where=printable(str(folder)))
