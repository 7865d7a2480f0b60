"""The language of metadata conditions: text and a schema become a Condition.

    subject == "history" and (year >= 1900 or year is null) and not source in ("web", 'press')

    condition   either ("or" either)*          either   part ("and" part)*
    part        "not" part | "(" condition ")" | comparison
    comparison  field (== | != | < | <= | > | >=) literal
              | field ["not"] "in" "(" literal ("," literal)* ")"      | field "is" ["not"] "null"
              | field ("starts with" | "contains" | "matches") string    matches: a regular expression of RE2
    field       a word of letters, digits, `_`, `.`, `-`, or anything in backticks
    literal     "text" or 'text' with backslash escapes (\\\\ \\" \\' \\n \\r \\t \\uXXXX), 12, -1.5e3, true, false

Words of the language may be in capitals, names of fields are as in the schema. Literals are checked against the field's
type here, so that a mistake is reported with its place before anything is read. What null does is in `conditions`.
Nothing is evaluated as code, and length, depth and lists are bounded.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from ragidx.corpora.errors import QueryError, lone_surrogate
from ragidx.corpora.records import with_nfc
from ragidx.retriever.where.conditions import COMPARISONS, Condition, Literal

MAX_CHARS = 10_000
MAX_DEPTH = 50
MAX_VALUES = 1_000

_KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")  # no field names, unless in backticks
_KINDS = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "string": "text",
    "list": "a list of texts",
    "timestamp": "a time",
}
_NOT_OF_LISTS = (*COMPARISONS, "in", "not", "starts", "matches")
_WRITTEN_AS = {"list": "string", "timestamp": "string"}  # what a value that is compared with the field is written as
_LIST_HINT = "use contains, with one whole item; is null or is not null"
_TIME_HINT = 'write it as "2024", "2024-01-31" or "2024-01-31T12:00:00"; without a zone it is in UTC'
_TYPE_HINTS = {
    "timestamp": _TIME_HINT,
    "string": 'write it in quotes: "{}"',
    "list": 'write it in quotes: "{}"',
    "bool": "compare it with true or false",
}
_INSTEAD = {"=": "==", "<>": "!=", "&&": "and", "||": "or", "!": "not"}
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "`": "`", "n": "\n", "r": "\r", "t": "\t"}
_COMPARISONS = "== != < <= > >=, in, not in, is null, is not null, starts with, contains, matches"
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<word>[^\W\d][\w.-]*)
      | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?!\w))
      | (?P<quoted>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `(?:[^`\\]|\\.)*`)
      | (?P<sign>==|!=|<=|>=|<>|&&|\|\||[<>=!(),])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, field (in backticks), text, number, sign, end
    text: str  # as it was typed; what a message shows
    at: int
    value: Literal = ""  # of text, field and number

    def says(self, *words: str) -> bool:
        return self.kind in ("word", "sign") and self.text.lower() in words


def parse(text: str, schema: Mapping[str, str]) -> Condition:
    """The condition that `text` writes.

    Args:
        text: at most 10,000 characters, 50 deep, 1,000 values a list.
        schema: field -> "bool", "int", "float", "string", "list" or "timestamp", built-in fields included.

    Raises:
        QueryError: the text is not a condition, names an unknown field, or compares it with a value of another type.
            The message shows the place.

    >>> parse("YEAR_ >= 1900", {"YEAR_": "int"})
    Condition(op='>=', field='YEAR_', values=(1900,), parts=())
    """
    if not text.strip():
        raise QueryError("the condition is empty", "write one such as year >= 1900, or remove it", where="condition")
    if len(text) > MAX_CHARS:
        raise QueryError(
            f"the condition has {len(text):,} characters", f"at most {MAX_CHARS:,} are read", where="condition"
        )
    return _Parser(text, schema).whole()


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str, schema: Mapping[str, str]) -> None:
        self._text = text
        self._schema = schema
        self._tokens = _tokens(text)
        self._next = 0

    def whole(self) -> Condition:
        condition = self._either(0)
        token = self._take()
        if token.kind != "end":
            hint = _instead(token) or "join comparisons with and / or, and put text in quotes"
            raise self._fault(token, f"expected and, or, or the end, found {token.text}", hint)
        return condition

    def _either(self, depth: int) -> Condition:
        return self._joined("or", lambda: self._joined("and", lambda: self._part(depth)))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._taken(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Condition(word, parts=tuple(parts))

    def _part(self, depth: int) -> Condition:
        token = self._peek()
        if depth > MAX_DEPTH:
            raise self._fault(
                token, f"the condition is more than {MAX_DEPTH} deep", "remove brackets that change nothing"
            )
        if self._taken("not"):
            return _not(self._part(depth + 1))
        if self._taken("("):
            inner = self._either(depth + 1)
            self._expect(")", "close the bracket")
            return inner
        return _in_both_forms(self._comparison())

    def _comparison(self) -> Condition:
        token = self._take()
        field = self._field(token)
        kind = self._schema[field]
        sign = self._take()
        if sign.says("is"):
            negated = self._taken("not")
            self._expect("null", "write is null or is not null")
            return _not(Condition("is null", field)) if negated else Condition("is null", field)
        if kind == "list" and sign.says(*_NOT_OF_LISTS):
            raise self._fault(sign, f"{sign.text} does not apply to {field!r}, a list of texts", _LIST_HINT)
        if sign.says("not"):
            self._expect("in", "write not before the field, or not in after it")
            return _not(Condition("in", field, self._values(field, kind)))
        if sign.says("in"):
            return Condition("in", field, self._values(field, kind))
        if sign.says("starts", "contains", "matches"):
            return self._text_test(sign, field, kind)
        if not sign.says(*COMPARISONS):
            hint = _instead(sign) or f"write one of {_COMPARISONS}"
            raise self._fault(sign, f"expected a comparison after {token.text}, found {sign.text}", hint)
        if kind == "bool" and sign.text not in ("==", "!="):
            raise self._fault(sign, f"{sign.text} does not apply to {field!r}, a truth value", "use == or !=")
        return Condition(sign.text, field, (self._literal(field, kind),))

    def _text_test(self, sign: _Token, field: str, kind: str) -> Condition:
        test = sign.text.lower()
        if test == "starts":
            self._expect("with", "write starts with")
            test = "starts with"
        if kind == "list":
            return Condition("has item", field, (self._literal(field, kind),))
        if kind != "string":
            raise self._fault(sign, f"{test} reads text, and {field!r} is {_KINDS[kind]}", "use == != < <= > >= or in")
        token = self._peek()
        value = str(self._literal(field, kind))
        if test == "matches":
            try:
                pc.match_substring_regex(pa.array([""]), value)
            except pa.ArrowInvalid as fault:
                reason = str(fault).removeprefix("Invalid regular expression: ")
                hint = "write it in RE2's syntax, which has no backreferences and no lookaround"
                raise self._fault(token, f"the regular expression is broken: {reason}", hint) from fault
        return Condition(test, field, (value,))

    def _field(self, token: _Token) -> str:
        name = str(token.value) if token.kind == "field" else token.text
        if token.kind not in ("word", "field") or (token.kind == "word" and token.text.lower() in _KEYWORDS):
            hint = _instead(token) or "a comparison begins with a field, as in year >= 1900"
            raise self._fault(token, f"expected a field, found {token.text}", hint)
        if name not in self._schema:
            known = sorted(self._schema)
            near = difflib.get_close_matches(name, known, n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            hint = f"fields: {', '.join(known[:30])}{f' and {len(known) - 30} more' if len(known) > 30 else ''}"
            raise self._fault(token, f"unknown field {name!r}{guess}", hint)
        return name

    def _values(self, field: str, kind: str) -> tuple[Literal, ...]:
        self._expect("(", "put the values in brackets: in (1, 2)")
        values = [self._literal(field, kind)]
        while self._taken(","):
            if len(values) == MAX_VALUES:
                hint = "split it into several lists, joined by or"
                raise self._fault(self._peek(), f"the list has more than {MAX_VALUES:,} values", hint)
            values.append(self._literal(field, kind))
        self._expect(")", "separate values by commas, and close the bracket")
        return tuple(values)

    def _literal(self, field: str, kind: str) -> Literal:
        token = self._take()
        value = token.value
        if token.says("true", "false"):
            value, written = token.text.lower() == "true", "bool"
        elif token.kind in ("text", "number"):
            written = "string" if token.kind == "text" else "float"
        else:
            raise self._fault(token, f"expected a value, found {token.text}", _value_hint(token, field))
        if _KINDS[written] != _KINDS[_WRITTEN_AS.get(kind, kind)]:
            message = f"{field!r} is {_KINDS[kind]}, and {token.text} is {_KINDS[written]}"
            hint = _TYPE_HINTS.get(kind, "compare it with a number, without quotes")
            raise self._fault(token, message, hint.replace("{}", token.text))
        if kind == "timestamp":
            return self._time(token, field)
        if kind != "float" or isinstance(value, datetime):
            return value
        try:
            number = float(value)
        except OverflowError as fault:
            raise self._fault(token, f"{token.text} is out of range", "the field holds 64-bit numbers") from fault
        if number != value:
            message = (
                f"{field!r} has fractions, and rounds whole numbers past 2**53: none of its values is {token.text}"
            )
            raise self._fault(token, message, f"the nearest that it can hold is {number!r}")
        return number

    def _time(self, token: _Token, field: str) -> datetime:
        try:
            value = datetime.fromisoformat(_whole_date(str(token.value)))
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except (ValueError, OverflowError) as fault:
            message = f"{field!r} is a time, and {token.text} is none in ISO form"
            raise self._fault(token, message, _TIME_HINT) from fault

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _taken(self, word: str) -> bool:
        if self._peek().says(word):
            self._take()
            return True
        return False

    def _expect(self, word: str, hint: str) -> None:
        token = self._take()
        if not token.says(word):
            raise self._fault(token, f"expected {word}, found {token.text}", hint)

    def _fault(self, token: _Token, message: str, hint: str) -> QueryError:
        return _fault(self._text, token.at, message, hint)


def _not(inner: Condition) -> Condition:
    return Condition("not", parts=(inner,))


def _in_both_forms(one: Condition) -> Condition:
    """A comparison that is true of a text's Unicode form NFC as well, for engines, which compare what they hold."""
    if one.op == "not":
        return _not(_in_both_forms(one.parts[0]))
    values = with_nfc(value for value in one.values if isinstance(value, str))
    if all(value in one.values for value in values):
        return one
    if one.op == "!=":
        return _not(Condition("in", one.field, tuple(values)))
    if one.op in ("==", "in"):
        return Condition("in", one.field, tuple(values))
    if one.op in ("starts with", "contains"):
        return Condition("or", parts=tuple(Condition(one.op, one.field, (value,)) for value in values))
    return one


def _whole_date(text: str) -> str:
    """A year or a month is its first day."""
    return text + "-01-01"[len(text) - 4 :] if re.fullmatch(r"\d{4}(-\d\d)?", text, re.ASCII) else text


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in "\"'`":
                raise _fault(text, at, f"the {text[at]} is not closed", "close it, and write \\ before one inside")
            raise _fault(
                text, at, f"{text[at]!r} has no meaning here", "put text in quotes, odd field names in backticks"
            )
        kind, typed = str(match.lastgroup), match[0]
        if kind == "quoted":
            value = _unescaped(text, at, typed)
            tokens.append(_Token("field" if typed[0] == "`" else "text", typed, at, value))
        elif kind == "number":
            tokens.append(_Token(kind, typed, at, _number(text, at, typed)))
        elif kind != "space":
            tokens.append(_Token(kind, typed, at))
        at = match.end()
    return [*tokens, _Token("end", "the end", len(text))]


def _number(text: str, at: int, typed: str) -> int | float:
    value = float(typed)
    if len(typed) > 100 or not math.isfinite(value):
        raise _fault(text, at, "the number is out of range", "the largest is about 1.8e308, in at most 100 characters")
    return value if re.search(r"[.eE]", typed) else int(typed)


def _unescaped(text: str, at: int, typed: str) -> str:
    def escape(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            place = at + 1 + match.start()
            raise _fault(text, place, f"unknown escape \\{code}", "write \\\\ for a backslash")
        return _ESCAPES[code]

    value = re.sub(r"\\(?:(u[0-9a-fA-F]{4})|(.))", escape, typed[1:-1], flags=re.DOTALL)
    if lone_surrogate(value) is not None:
        raise _fault(text, at, "the text holds half of a surrogate pair", "write the character itself")
    return value


def _instead(token: _Token) -> str:
    other = _INSTEAD.get(token.text) if token.kind == "sign" else None
    return f"write {other}" if other else ""


def _value_hint(token: _Token, field: str) -> str:
    if token.says("null"):
        return f"write {field} is null"
    if token.kind == "word":
        return f'write text in quotes: "{token.text}"'
    return _instead(token) or "a value is a text in quotes, a number, true or false"


def _fault(text: str, at: int, message: str, hint: str) -> QueryError:
    """The message, and below it the text around the place with a caret under it."""
    first = max(0, at - 50)
    shown = [c if c.isprintable() else " " for c in text[first : at + 30]]
    columns = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown[: at - first])
    return QueryError(
        f"{message}\n  {''.join(shown)}\n  {' ' * columns}^", hint, where=f"condition, character {at + 1}"
    )
