"""Regular expressions of RE2 as LanceDB reads them: an expression of Rust that finds the same texts.

    a pattern that RE2 accepts -> a pattern of Rust's `regex`

The two languages differ in which characters have a meaning, so each one is written by its number; what is ASCII alone
in RE2, `\\d` or `\\b`, is written out. What depends on a version of Unicode, `\\pL` or letters beyond ASCII under
`(?i)`, is refused, and so are `\\C` (a byte) and `\\B`, which Rust has for bytes alone.
"""

from __future__ import annotations

import re

_CHARACTER = r"""\\x(?:\{(?P<long>[0-9A-Fa-f]+)\}|(?P<short>[0-9A-Fa-f]{2}))
      | \\(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})
      | \\(?P<escaped>.)
      | (?P<plain>.)"""
_TOKEN = re.compile(
    rf"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
      | (?P<name>\(\?P?<\w+>)
      | (?P<syntax>\(\?[imsU-]*[:)] | [()|^$.])
      | (?P<repeats>(?:\{{\d+(?:,\d*)?\}}|[*+?])\??)
      | (?P<begin>\[\^?)
      | {_CHARACTER}""",
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = re.compile(rf"(?P<posix>\[:\^?[a-z]+:\]) | {_CHARACTER}", re.VERBOSE | re.DOTALL)
_CONTROLS = dict(zip("atnvfr", (7, 9, 10, 11, 12, 13), strict=True))
_SETS = {"d": "[0-9]", "s": r"[\t\n\x0c\r ]", "w": "[0-9A-Za-z_]"}
_PLACES = {"A": r"\A", "z": r"\z", "b": r"(?-u:\b)"}


class UntranslatableError(ValueError):
    """A part of a pattern that Rust does not have, or that means something else there."""


def rust(pattern: str) -> str:
    """The pattern of Rust's `regex` that finds the same texts.

    Args:
        pattern: one that RE2 accepts.

    Raises:
        UntranslatableError: there is none; its text is the part.

    >>> print(rust(r"\\d+(?i:x)[^b-]"))
    [0-9]+(?i:\\x{78})[^\\x{62}\\x{2d}]
    """
    written, at = list[str](), 0
    while at < len(pattern):
        token = _match(_TOKEN, pattern, at)
        at = token.end()
        if token["begin"]:
            inside, at = _class(pattern, at)
            written.append(f"{token[0]}{inside}]")
        elif token["name"]:
            written.append("(?:")
        elif token["quoted"] is not None:
            written += [_number(ord(character)) for character in token["quoted"]]
        elif token["repeats"] and written and re.fullmatch(r"\(\?[a-zA-Z-]*\)", written[-1]):
            raise UntranslatableError(written[-1] + token[0])
        else:
            written.append(token["repeats"] or token["syntax"] or _PLACES.get(token["escaped"]) or _one(token))
    found = "".join(written)
    if re.search(r"\(\?[msU]*i", found) and (beyond := re.search(r"\\x\{(?![0-7]?\w\})\w+\}", found)):
        raise UntranslatableError(f"(?i) and {beyond[0]}")
    return found


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The inside of a class of characters, and where it ends; a ] at its begin is one of them."""
    written, first = "", at
    while pattern[at] != "]" or at == first:
        token = _match(_IN_CLASS, pattern, at)
        at = token.end()
        written += token["posix"] or _one(token)
        is_range = not token["posix"] and (token["escaped"] or "").lower() not in _SETS
        if is_range and pattern[at] == "-" and pattern[at + 1] != "]":
            token = _match(_IN_CLASS, pattern, at + 1)
            at = token.end()
            written += f"-{_one(token)}"
    return written, at + 1


def _match(what: re.Pattern[str], pattern: str, at: int) -> re.Match[str]:
    token = what.match(pattern, at)
    assert token is not None  # it takes any character
    return token


def _one(token: re.Match[str]) -> str:
    """One character, or a set of them that has a letter."""
    escaped = token["escaped"]
    if escaped is None:
        number = token["long"] or token["short"]
        return _number(int(number, 16) if number else int(token["octal"], 8) if token["octal"] else ord(token[0][0]))
    if escaped.lower() in _SETS:
        return _SETS[escaped.lower()].replace("[", "[^" if escaped.isupper() else "[")
    if escaped.isalnum() and escaped not in _CONTROLS:
        raise UntranslatableError(token[0])
    return _number(_CONTROLS.get(escaped) or ord(escaped))


def _number(character: int) -> str:
    if 0xD800 <= character < 0xE000:
        raise UntranslatableError(rf"\x{{{character:x}}}")  # half of a pair
    return rf"\x{{{character:x}}}"
