"""Files of evaluation sets, line by line: found, packed or not, and read, with all faults reported together."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from ragidx.corpora.errors import CorpusError, check_machine

ENDINGS = ("", ".gz", ".zst")
"""Of packed files, which are read as they are."""

_FAULTS_SHOWN = 10

T = TypeVar("T")


class LineError(Exception):
    """One line cannot be read; `take_lines` collects these."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def is_file(path: Path) -> bool:
    """Whether there is such a file, packed or not."""
    return any(path.with_name(path.name + ending).is_file() for ending in ENDINGS)


def file_at(path: Path, *names: str) -> Path:
    """`path` itself, or the first of some names in it, packed or not."""
    wanted = [path / name for name in names] if path.is_dir() else [path]
    for candidate in (one.with_name(one.name + ending) for one in wanted for ending in ENDINGS):
        if candidate.exists() and not candidate.is_dir():
            return candidate
    if not path.is_dir():
        raise CorpusError("no such file", "check the path", where=str(path))
    there = sorted(one.name for one in path.iterdir() if one.is_file())[:_FAULTS_SHOWN]
    raise CorpusError(
        "no such file",
        f"name it {', '.join(names)}, with .gz or .zst behind or not; the folder holds {', '.join(there) or 'no file'}",
        where=str(wanted[0]),
    )


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines that are not blank; numbers start at 1."""
    import pyarrow as pa

    number = 0
    try:
        with io.BufferedReader(pa.input_stream(str(file))) as stream:  # unpacked by the ending
            for number, raw in enumerate(stream, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as fault:
        raise CorpusError("the line is not UTF-8", "write the file as UTF-8", where=f"{file}:{number}") from fault
    except OSError as fault:
        check_machine(fault, file)
        raise CorpusError(f"the file cannot be read: {fault}", "create the file again", where=str(file)) from fault


def take_lines(file: Path, what: str, lines: Iterable[tuple[int, T]], add: Callable[[T], None]) -> None:
    """Give each line, or row, to `add`.

    Raises:
        CorpusError: there is no line, or `add` refused some: at the end, with the first faults and their number.
    """
    faults: list[tuple[int, LineError]] = []
    number = 0
    for number, line in lines:
        try:
            add(line)
        except LineError as fault:
            faults.append((number, fault))
    if not number:
        raise CorpusError(f"the file holds no {what}", "check that it is the right one", where=str(file))
    if not faults:
        return
    line_number, first = faults[0]
    if len(faults) == 1:
        raise CorpusError(str(first), first.hint, where=f"{file}:{line_number}")
    shown = [f"\n  line {number}: {fault}" for number, fault in faults[:_FAULTS_SHOWN]]
    more = f"\n  and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
    raise CorpusError(f"{len(faults)} lines have faults{''.join(shown)}{more}", first.hint, where=str(file))
