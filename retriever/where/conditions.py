"""Conditions as values: a tree of comparisons, which a program writes by `field`, and the parser makes of text.

    (field("year") >= 1990) & field("lang").is_in(["de", "fr"])        year >= 1990 and lang in ("de", "fr")

A condition is of no index. `binding` checks it against the fields of one, `answers` says which rows it allows, and
engines translate it. What Python would answer to `and`, `or`, `not`, a chain or missing brackets is an error.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from ragidx.corpora.errors import QueryError, lone_surrogate

Literal: TypeAlias = bool | int | float | str | datetime
Value: TypeAlias = Literal | date
"""What a field can be compared with; a date is its first moment."""

T = TypeVar("T")

KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")  # no field names, unless in backticks
WORD = r"[^\W\d][\w.-]*"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_JOIN = 'join conditions by & and |, negate by ~, each in brackets: (field("a") >= 1) & ~(field("b") == 2)'


class TextPlace(NamedTuple):
    """Where a comparison is in a text: the places of its field and its sign, and its values as they were typed."""

    text: str
    field: int
    sign: int
    values: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Condition:
    """A condition on metadata, made by `ragidx.field`; `&`, `|` and `~` combine conditions. Equal by value.

    As text it is what `where` takes too, in the language of conditions.

    Attributes:
        op: `and` and `or` of the parts, `not` of the one part; a comparison, `in`, `is null`, `starts with`,
            `contains`, `matches` or `passes`.
        field: name of the field that is compared; None for `and`, `or` and `not`.
        values: values that it is compared with: one, or those of `in`.
        parts: the conditions inside.
    """

    op: str
    field: str | None = None
    values: tuple[Literal, ...] = ()
    parts: tuple[Condition, ...] = ()
    test: Callable[[Any], bool] | None = None  # of the op `passes`
    place: TextPlace | None = None  # in the text that it was read from
    depth: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max((part.depth for part in self.parts), default=-1))

    def __and__(self, other: Condition) -> Condition:
        return _joined("and", self, other)

    def __or__(self, other: Condition) -> Condition:
        return _joined("or", self, other)

    def __invert__(self) -> Condition:
        return Condition("not", parts=(self,))

    def __rand__(self, other: object) -> NoReturn:
        raise _unjoined(other)

    __ror__ = __rand__

    def __bool__(self) -> bool:
        raise QueryError(
            "a condition is neither true nor false, as and, or, not and a < b < c ask", _JOIN, where="condition"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self._nodes() == other._nodes()

    def __hash__(self) -> int:
        return hash(self._nodes())

    def __repr__(self) -> str:
        return f"<ragidx.Condition {self}>"

    def __str__(self) -> str:
        """The condition as text, which is read as the same condition."""
        return self.fold(_written)

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the condition reads."""
        return frozenset(field for _, field, *_ in self._nodes() if field is not None)

    def fold(self, make: Callable[[Condition, list[T]], T]) -> T:
        """What `make` says of the whole, which it is asked of each condition inside with what it said of its parts.

        Without recursion: a condition that a program makes may be deeper than Python calls.
        """
        done: list[T] = []
        todo = [(self, False)]
        while todo:
            node, is_ready = todo.pop()
            if node.parts and not is_ready:
                todo.append((node, True))
                todo += [(part, False) for part in reversed(node.parts)]
            else:
                first = len(done) - len(node.parts)
                done[first:] = [make(node, done[first:])]
        return done[0]

    def _nodes(self) -> tuple[tuple[Any, ...], ...]:
        found: list[tuple[Any, ...]] = []
        self.fold(lambda node, _: found.append((node.op, node.field, node.values, len(node.parts), node.test)))
        return tuple(found)


class Field:
    """A field of the metadata, by its name as conditions have it. Compared with a value it is a `Condition`."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]  # two fields are not compared
    __array_ufunc__: Final = None  # so that `numpy.int64(1990) <= field("year")` is a condition, too

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise QueryError(f"{name!r:.80} names no field", 'give its name, as field("year")', where="condition")
        self.name = name

    def __repr__(self) -> str:
        return f"field({self.name!r})"

    def __eq__(self, value: Value) -> Condition:  # type: ignore[override]
        return self._compared("==", value)

    def __ne__(self, value: Value) -> Condition:  # type: ignore[override]
        return self._compared("!=", value)

    def __lt__(self, value: Value) -> Condition:
        return self._compared("<", value)

    def __le__(self, value: Value) -> Condition:
        return self._compared("<=", value)

    def __gt__(self, value: Value) -> Condition:
        return self._compared(">", value)

    def __ge__(self, value: Value) -> Condition:
        return self._compared(">=", value)

    def is_in(self, values: Iterable[Value]) -> Condition:
        """Whether it is one of some values; of a list of texts, whether one of its items is."""
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise _fault(self.name, f"{values!r:.80} is no list of values", 'give several: is_in(["a", "b"])')
        literals = tuple(dict.fromkeys((type(one), one) for one in (self._literal(value) for value in values)))
        if not literals:
            return self.is_null() & ~self.is_null()
        return Condition("in", self.name, tuple(one for _, one in literals))

    def contains(self, text: str) -> Condition:
        """Whether a text has a part, or a list of texts an item."""
        return self._compared("contains", text)

    def starts_with(self, text: str) -> Condition:
        """Whether a text begins with another."""
        return self._compared("starts with", text)

    def matches(self, pattern: str) -> Condition:
        """Whether a regular expression of RE2 is found anywhere in a text."""
        return self._compared("matches", pattern)

    def is_null(self) -> Condition:
        """Whether there is no value; `~` of it: whether there is one."""
        return Condition("is null", self.name)

    def passes(self, test: Callable[[Any], bool]) -> Condition:
        """Whether a function says yes to the value; it is asked of each different one, and of no null."""
        return Condition("passes", self.name, test=test)

    def __bool__(self) -> bool:
        raise self._alone()

    def __and__(self, other: object) -> NoReturn:
        raise self._alone()

    __or__ = __rand__ = __ror__ = __and__

    def __invert__(self) -> NoReturn:
        raise self._alone()

    def __contains__(self, item: object) -> bool:
        raise _fault(self.name, "Python's `in` makes no condition", f"write {self!r}.contains(...) or .is_in([...])")

    def _alone(self) -> QueryError:
        return _fault(self.name, "a field without a comparison is no condition", f"write {self!r} == True; {_JOIN}")

    def _compared(self, op: str, value: object) -> Condition:
        return Condition(op, self.name, (self._literal(value),))

    def _literal(self, value: Any) -> Literal:
        """A value in the type that it counts as."""
        if hasattr(value, "dtype") and getattr(value, "ndim", 0) == 0:  # a number of numpy
            value = value.item()
        if isinstance(value, int):
            return value if isinstance(value, bool) else int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        if isinstance(value, str) and lone_surrogate(value) is None:
            return str.__str__(value)
        if isinstance(value, date):
            return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        raise _fault(self.name, f"is compared with {value!r:.80}", self._hint(value))

    def _hint(self, value: object) -> str:
        if value is None:
            return f"write {self!r}.is_null(), or ~{self!r}.is_null()"
        if isinstance(value, Field | Condition):
            return f"a field is compared with a value; {_JOIN}"
        if isinstance(value, str):
            return "the text holds half of a surrogate pair: write the character itself"
        return "give a text, a finite number, true, false or a time; one of several by is_in([1, 2])"


def field(name: str) -> Field:
    """A field of the metadata, to be compared.

        index.search("who signed?", where=(ragidx.field("year") >= 1990) & ragidx.field("lang").is_in(["de", "fr"]))

    Args:
        name: name of the field, as `Index.schema` has it.

    Raises:
        QueryError: by a comparison: nothing can be compared with the value.

    >>> print((field("year") >= 1990) & ~field("tags").contains("draft"))
    year >= 1990 and not tags contains "draft"
    """
    return Field(name)


def _joined(op: str, left: Condition, right: object) -> Condition:
    if not isinstance(right, Condition):
        raise _unjoined(right)
    parts = [one.parts if one.op == op else (one,) for one in (left, right)]
    return Condition(op, parts=(*parts[0], *parts[1]))


def _unjoined(other: object) -> QueryError:
    return QueryError(f"{other!r:.80} beside & or | is no condition", _JOIN, where="condition")


def _fault(name: str, message: str, hint: str) -> QueryError:
    return QueryError(message, hint, where=f"condition, field {name!r:.80}")


def _written(node: Condition, inner: list[str]) -> str:
    if node.parts:
        looser = {"and": ("and", "or"), "or": ("or",), "not": ("and", "or")}[node.op]
        texts = [f"({text})" if part.op in looser else text for part, text in zip(node.parts, inner, strict=True)]
        return f"not {texts[0]}" if node.op == "not" else f" {node.op} ".join(texts)
    name, values = shown_field(str(node.field)), [shown_value(value) for value in node.values]
    return f"{name} in ({', '.join(values)})" if node.op == "in" else " ".join([name, node.op, *values])


def shown_field(name: str) -> str:
    """A field as text has it.

    >>> shown_field("year"), shown_field("section title")
    ('year', '`section title`')
    """
    is_word = re.fullmatch(WORD, name) and name.lower() not in KEYWORDS
    return name if is_word else _quoted(name, "`")


def shown_value(value: Literal) -> str:
    """A value as text has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return _quoted(value if isinstance(value, str) else value.isoformat(), '"')


def _quoted(text: str, mark: str) -> str:
    return mark + "".join(_ESCAPED.get(one, f"\\{mark}" if one == mark else one) for one in text) + mark
