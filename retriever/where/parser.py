"""The language of metadata conditions: text becomes a `Condition`, of no index yet.

    subject == "history" and (year >= 1900 or year is null) and not source in ("web", 'press')

    condition   either ("or" either)*          either   part ("and" part)*
    part        "not" part | "(" condition ")" | comparison
    comparison  field (== | != | < | <= | > | >=) literal
              | field ["not"] "in" "(" literal ("," literal)* ")"      | field "is" ["not"] "null"
              | field ("starts with" | "contains" | "matches") string    matches: a regular expression of RE2
    field       a word of letters, digits, `_`, `.`, `-`, or anything in backticks
    literal     "text" or 'text' with backslash escapes (\\\\ \\" \\' \\n \\r \\t \\uXXXX), 12, -1.5e3, true, false

Words of the language may be in capitals, names of fields are as in the schema. Each comparison keeps its place, for
messages of `binding`, which knows the types. What null does is in `answers`. Nothing is evaluated as code, and length,
depth and lists are bounded.
"""

from __future__ import annotations

import dataclasses
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from ragidx.corpora.errors import QueryError, lone_surrogate
from ragidx.retriever.where.conditions import KEYWORDS, WORD, Condition, Literal, TextPlace

MAX_CHARS = 10_000
MAX_DEPTH = 50
MAX_VALUES = 1_000

_SIGNS = ("==", "!=", "<", "<=", ">", ">=")
_INSTEAD = {"=": "==", "<>": "!=", "&&": "and", "||": "or", "!": "not"}
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "`": "`", "n": "\n", "r": "\r", "t": "\t"}
_COMPARISONS = "== != < <= > >=, in, not in, is null, is not null, starts with, contains, matches"
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
      | (?P<word>{WORD})
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


def parse(text: str) -> Condition:
    """The condition that `text` writes.

    Args:
        text: a condition as text: at most 10,000 characters, 50 deep, 1,000 values a list.

    Raises:
        QueryError: the text is not a condition. The message shows the place.

    >>> parse("YEAR >= 1900 AND not (open == true)")
    <ragidx.Condition YEAR >= 1900 and not open == true>
    """
    if not text.strip():
        raise QueryError("the condition is empty", "write one such as year >= 1900, or remove it", where="condition")
    if len(text) > MAX_CHARS:
        raise QueryError(
            f"the condition has {len(text):,} characters", f"at most {MAX_CHARS:,} are read", where="condition"
        )
    return _Parser(text).whole()


def condition(where: str | Condition) -> Condition:
    """A condition as a value: of a text what it writes, in the language of conditions; a value is itself.

    Raises:
        QueryError: it is no condition; of a text, the message shows the place.
    """
    if isinstance(where, str):
        return parse(where)
    if not isinstance(where, Condition):
        hint = "write a text such as 'year >= 1900', or compare a field: ragidx.field(\"year\") >= 1900"
        raise QueryError(f"{where!r:.80} is no condition", hint, where="condition")
    return where


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
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
            return ~self._part(depth + 1)
        if self._taken("("):
            inner = self._either(depth + 1)
            self._expect(")", "close the bracket")
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        token = self._take()
        field, sign = self._field(token), self._take()
        place = TextPlace(self._text, token.at, sign.at)
        if sign.says("is"):
            negated = self._taken("not")
            self._expect("null", "write is null or is not null")
            return _turned(Condition("is null", field, place=place), negated)
        if sign.says("not", "in"):
            negated = sign.says("not")
            if negated:
                self._expect("in", "write not before the field, or not in after it")
            return _turned(self._compared("in", field, place, self._values(field)), negated)
        if sign.says("starts"):
            self._expect("with", "write starts with")
            return self._compared("starts with", field, place, [self._literal(field)])
        if not sign.says(*_SIGNS, "contains", "matches"):
            hint = _instead(sign) or f"write one of {_COMPARISONS}"
            raise self._fault(sign, f"expected a comparison after {token.text}, found {sign.text}", hint)
        return self._compared(sign.text.lower(), field, place, [self._literal(field)])

    def _compared(self, op: str, field: str, place: TextPlace, values: list[_Token]) -> Condition:
        typed = place._replace(values=tuple((token.at, token.text) for token in values))
        return Condition(op, field, tuple(token.value for token in values), place=typed)

    def _field(self, token: _Token) -> str:
        if token.kind not in ("word", "field") or (token.kind == "word" and token.text.lower() in KEYWORDS):
            hint = _instead(token) or "a comparison begins with a field, as in year >= 1900"
            raise self._fault(token, f"expected a field, found {token.text}", hint)
        return str(token.value) if token.kind == "field" else token.text

    def _values(self, field: str) -> list[_Token]:
        self._expect("(", "put the values in brackets: in (1, 2)")
        values = [self._literal(field)]
        while self._taken(","):
            if len(values) == MAX_VALUES:
                hint = "split it into several lists, joined by or"
                raise self._fault(self._peek(), f"the list has more than {MAX_VALUES:,} values", hint)
            values.append(self._literal(field))
        self._expect(")", "separate values by commas, and close the bracket")
        return values

    def _literal(self, field: str) -> _Token:
        token = self._take()
        if token.says("true", "false"):
            return dataclasses.replace(token, value=token.says("true"))
        if token.kind not in ("text", "number"):
            raise self._fault(token, f"expected a value, found {token.text}", _value_hint(token, field))
        return token

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
        return fault_at(self._text, token.at, message, hint)


def _turned(one: Condition, negated: bool) -> Condition:
    return ~one if negated else one


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in "\"'`":
                raise fault_at(text, at, f"the {text[at]} is not closed", "close it, and write \\ before one inside")
            raise fault_at(
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
        raise fault_at(
            text, at, "the number is out of range", "the largest is about 1.8e308, in at most 100 characters"
        )
    return value if re.search(r"[.eE]", typed) else int(typed)


def _unescaped(text: str, at: int, typed: str) -> str:
    def escape(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            place = at + 1 + match.start()
            raise fault_at(text, place, f"unknown escape \\{code}", "write \\\\ for a backslash")
        return _ESCAPES[code]

    value = re.sub(r"\\(?:(u[0-9a-fA-F]{4})|(.))", escape, typed[1:-1], flags=re.DOTALL)
    if lone_surrogate(value) is not None:
        raise fault_at(text, at, "the text holds half of a surrogate pair", "write the character itself")
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


def fault_at(text: str, at: int, message: str, hint: str) -> QueryError:
    """The message, and below it the text around the place with a caret under it."""
    first = max(0, at - 50)
    shown = [c if c.isprintable() else " " for c in text[first : at + 30]]
    columns = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown[: at - first])
    return QueryError(
        f"{message}\n  {''.join(shown)}\n  {' ' * columns}^", hint, where=f"condition, character {at + 1}"
    )
