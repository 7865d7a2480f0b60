"""Types of the columns of a delimited file: numbers or truth values where all of its cells are written as such.

    rows -> Columns -> of a cell: bool, int, float, or its text

A column has a type only where the text of each cell comes back from its value: whole numbers and fractions as Python
writes them (`1.5`, not `1.50`), fractions that all have the same number of digits (`12.50`, `3.99`), or two words for
truth. With one other cell all cells are text, each as it is written: `1.10` beside `1.9.2` is no number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ragidx.corpora.readers.fields import BOOLS, exact_number
from ragidx.corpora.records import Scalar

_FIXED = re.compile(r"-?(?:0|[1-9][0-9]{0,14})\.([0-9]{1,15})")
_EXACT: Final = "exact"


class Columns:
    """The types of the columns of one file: first all rows are added, then cells are typed.

    Args:
        names: names of the columns; an empty name: the column is not kept.

    Attributes:
        broken: the line on which a column stopped being one of numbers or truth values, by its name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._forms: dict[str, frozenset[str]] = {}  # those that all cells have; missing: no cell yet
        self._open = [(place, name) for place, name in enumerate(names) if name]
        self.broken: dict[str, int] = {}

    def add(self, row: Sequence[str], line: int) -> None:
        """See the cells of a row, and on which line it begins."""
        closed = False
        for place, name in self._open:
            if place < len(row) and (cell := row[place].strip()):
                found = forms(cell)
                before = self._forms.get(name)
                after = self._forms[name] = found if before is None else found & before
                closed = closed or not after
                if before and not after:
                    self.broken[name] = line
        if closed:
            self._open = [(place, name) for place, name in self._open if self._forms.get(name, True)]

    @property
    def are_text(self) -> bool:
        """Whether no column can have a type."""
        return not self._open

    def scalar(self, name: str, value: object) -> Scalar:
        """The value of a cell."""
        text = str(value)
        bare = text.strip()
        if not bare:
            return None
        if not self._forms.get(name):
            return text
        if bare in BOOLS:
            return BOOLS[bare]
        number = exact_number(bare)
        return number if number is not None else float(bare) if _FIXED.fullmatch(bare) else text


def forms(cell: str) -> frozenset[str]:
    """The ways of writing values that a cell has; none: it is text.

    >>> [sorted(forms(cell)) for cell in ("7", "1.5", "1.50", "TRUE", "007", "1e3")]
    [['exact'], ['exact', 'fixed 1'], ['fixed 2'], ['bool TRUE'], [], []]
    """
    if cell in BOOLS:
        return frozenset({"bool " + ("TRUE" if cell.isupper() else "True" if cell.istitle() else "true")})
    found = set()
    if exact_number(cell) is not None:
        found.add(_EXACT)
    if (fixed := _FIXED.fullmatch(cell)) and f"{float(cell):.{len(fixed[1])}f}" == cell:
        found.add(f"fixed {len(fixed[1])}")
    return frozenset(found)
