"""The failures a user can act on. Every room raises these; the command line prints them and exits with `exit_code`.

A message says what happened, `where` says where (file:line, option, row), the hint what to do next.
Subclasses are named by what the user would do next, never by the module that raises them.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_CONDITIONS = {  # ENFILE first: the system's words for EMFILE are in its own
    errno.ENFILE: ("too many open files on this machine", "close other programs, and run it again"),
    errno.EMFILE: ("too many open files", "allow more with 'ulimit -n', and run it again"),
    errno.ENOMEM: ("not enough memory", "close other programs or allow more memory, and run it again"),
}
_UNMAPPED = "failed to map segment"  # what the loader says of a library for which no memory is left
_NO_TEMPORARY = "No usable temporary directory found"  # what `tempfile` says; then a list of folders
_ASKED = re.compile(r"size (\d+) failed|allocate [\d.]+ [PE]iB|capacity too large")
_MOST_UNPACKED = 256  # times its size on the disk, a file of 64 KiB at least
_LIE_BYTES = 1 << 36  # nothing is read that takes as much at once: a damaged file asks for it


class RagidxError(Exception):
    """A failure the user can act on.

    Args:
        message: what happened, with the values in it.
        hint: what to do next; may be empty.
        where: file:line, option or row; may be empty.

    >>> print(RagidxError("the field 'text' is missing", "name it with `text_field`", where="q.jsonl:17"))
    q.jsonl:17: the field 'text' is missing
      hint: name it with `text_field`
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "", *, where: str = "") -> None:
        super().__init__(message, hint, where)
        self.message = message
        self.hint = hint
        self.where = where

    def __reduce__(self) -> tuple[object, ...]:
        """It pickles: a task on another machine may raise it."""
        return functools.partial(type(self), where=self.where), (self.message, self.hint), self.__dict__

    def __str__(self) -> str:
        """One block: `where: message`, then the hint on a line of its own."""
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n  hint: {self.hint}" if self.hint else head


class CorpusError(RagidxError):
    """Look at the corpus: a file or a record cannot be read."""


class ModelError(RagidxError):
    """Look at the model: it cannot be loaded, or does not do what the method needs."""


class SpecError(RagidxError):
    """Change an option: a value is unknown or out of range, or two of them exclude each other."""


class IndexFormatError(RagidxError):
    """Look at the index folder: it is not an index, is damaged, or has another format."""


class QueryError(RagidxError):
    """Change the query or its condition."""


class BusyError(RagidxError):
    """Wait: another process is writing."""


class MachineError(RagidxError):
    """Look at the machine: it allows no more open files, or has no memory left. No file is damaged."""


class EngineError(RagidxError):
    """Look at the engine that has the rows: it does not answer, or refuses what was asked of it."""


class DefectError(RagidxError):
    """Report it: a library that ragidx uses panicked."""


def is_panic(fault: BaseException) -> bool:
    """Whether a library in Rust panicked: each has a class of its own for that, which is no `Exception`."""
    return type(fault).__name__ == "PanicException"


@contextlib.contextmanager
def panics_of(library: str, where: object = "", *, bare: bool = False) -> Iterator[None]:
    """Turn a panic of a library in Rust into an error, which `except Exception` does not let pass.

    Args:
        library: name of the library; of several, all names.
        where: the document or file that the library was given, for the message.
        bare: an exception of the class `Exception` itself is one, too: tokenizers raises it for what it cannot encode.

    Raises:
        DefectError: it panicked.
    """
    try:
        yield
    except BaseException as fault:
        if not (is_panic(fault) or (bare and type(fault) is Exception)):
            raise
        hint = "report it, and leave this file out meanwhile"
        raise DefectError(f"a defect in {library}: {first_line(fault)}", hint, where=str(where)) from fault


def machine_error(fault: BaseException, where: object = "") -> MachineError | None:
    """The error for a failure that is a condition of the machine, or was caused by one; None for any other.

    Libraries in other languages keep of such a failure only the system's words.

    Args:
        fault: the failure to be looked at.
        where: the file, as it is shown; the size of a path bounds the memory it can need.

    >>> print(machine_error(OSError(errno.EMFILE, "Too many open files")))
    too many open files
      hint: allow more with 'ulimit -n', and run it again
    """
    link: BaseException | None = fault
    while link is not None:
        if isinstance(link, FileNotFoundError) and _NO_TEMPORARY in str(link):
            message = "no folder for temporary files can be written"
            return MachineError(message, "name one that can: TMPDIR=DIR ragidx ...", where=str(where))
        code = _condition(link)
        if code is not None:
            is_lie = isinstance(where, Path) and _asks_too_much(link, where)
            return None if is_lie else MachineError(*_CONDITIONS[code], where=str(where))
        link = link.__cause__
    return None


def check_machine(fault: BaseException, where: object = "") -> None:
    """Before a failure is taken for a fault of a file; the arguments are those of `machine_error`.

    Raises:
        MachineError: it is a condition of the machine.
    """
    if (error := machine_error(fault, where)) is not None:
        raise error from fault


def _asks_too_much(fault: BaseException, path: Path) -> bool:
    """Whether more memory was asked for than a file of this size can hold unpacked: then the file is damaged."""
    asked = _ASKED.search(str(fault)) if isinstance(fault, MemoryError) else None
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return asked is not None and asked[1] is not None and int(asked[1]) > _MOST_UNPACKED * max(size, 1 << 16)


def _condition(fault: BaseException) -> int | None:
    """The errno of a condition of the machine."""
    limits = sys.modules.get("ragidx.corpora.limits")  # importing it now would need a file, and there may be no more
    if limits is not None and isinstance(fault, limits.UnreadableError):
        return None  # its text quotes the file; what the system said is its cause
    text = str(fault)
    if isinstance(fault, MemoryError):
        asked = _ASKED.search(text)
        is_lie = asked is not None and (asked[1] is None or int(asked[1]) >= _LIE_BYTES)
        return None if is_lie else errno.ENOMEM
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault.errno if fault.errno in _CONDITIONS else None
    if _UNMAPPED in text:
        return errno.ENOMEM
    return next((code for code in _CONDITIONS if os.strerror(code) in text), None)


def first_line(fault: BaseException) -> str:
    """What a library says of a failure, in one line of 200 characters at most; its class where it says nothing.

    >>> first_line(ValueError("no such thing\\nat line 3")), first_line(MemoryError())
    ('no such thing', 'MemoryError')
    """
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0][:200]


def unknown_name(what: str, name: str, known: Iterable[str]) -> SpecError:
    """The error for an unknown name: it gives the nearest known name and lists all of them.

    >>> print(unknown_name("method", "ecco", ["classical", "echo"]))
    unknown method 'ecco'; did you mean 'echo'?
      hint: known: classical, echo
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"; did you mean '{near[0]}'?" if near else ""
    return SpecError(f"unknown {what} '{name}'{guess}", f"known: {', '.join(names)}")


def install(extra: str) -> str:
    """What to type for an extra."""
    return f"pip install '.[{extra}]' in a checkout of ragidx"


def missing_extra(what: str, packages: Sequence[str], extra: str) -> RagidxError:
    """The error for what needs packages that are not installed, and the extra that brings them.

    >>> print(missing_extra("`method=echo` needs", ["torch", "transformers"], "models"))
    `method=echo` needs torch and transformers, which are not installed
      hint: pip install '.[models]' in a checkout of ragidx
    """
    named = " and ".join(filter(None, (", ".join(packages[:-1]), packages[-1])))
    return RagidxError(f"{what} {named}, which {'are' if len(packages) > 1 else 'is'} not installed", install(extra))


def an(word: str) -> str:
    """A word behind its article.

    >>> an("int"), an("list")
    ('an int', 'a list')
    """
    return f"{'an' if word[:1].lower() in 'aeio' else 'a'} {word}"


def lone_surrogate(text: str) -> int | None:
    """The place of the first lone surrogate in a string; None if there is none.

    Arguments that are not UTF-8 have them, and JSON may; no tokenizer and no file can hold them.

    >>> lone_surrogate("caf\\udce9"), lone_surrogate("café")
    (3, None)
    """
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as fault:
        return fault.start
    return None


def printable(text: str) -> str:
    """A string as messages show it, which a terminal can print: half of a surrogate pair becomes a question mark.

    >>> printable("caf\\ud83d")
    'caf?'
    """
    return text.encode("utf-8", "replace").decode()
