"""The failures a user can act on. Every room raises these; the command line prints them and exits with `exit_code`.

A message says what happened, `where` says where (file:line, option, row), the hint what to do next.
Subclasses are named by what the user would do next, never by the module that raises them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RagidxError(Exception):
    """A failure the user can act on.

    Args:
        message: what happened, with the values in it.
        hint: what to do next; may be empty.
        where: file:line, option or row; may be empty.

    >>> print(RagidxError("the field 'text' is missing", "name it with --text-field", where="q.jsonl:17"))
    q.jsonl:17: the field 'text' is missing
      hint: name it with --text-field
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "", *, where: str = "") -> None:
        super().__init__(message, hint, where)
        self.message = message
        self.hint = hint
        self.where = where

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


def lone_surrogate(text: str) -> int | None:
    """The place of the first lone surrogate in a string; None if there is none.

    Arguments that are not UTF-8 have them, and JSON may; no tokenizer and no file can hold them.

    >>> lone_surrogate("caf\\udce9"), lone_surrogate("café")
    (3, None)
    """
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        return fault.start
    return None
