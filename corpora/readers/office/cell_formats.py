"""How a number of a workbook is shown: by the format code of its cell.

    format code -> function: number as it is stored -> text

Dates and times come in ISO form, whatever the order in which the code has them: `3/11/25` is two days. All else comes
as a person sees it, in the English form: decimals, thousands, percents, currencies and units. A code that asks for more
(conditions, fractions, exponents) gives the plain number, with up to 15 digits, as office programs compute.
Source: ECMA-376, part 1, 18.8.30 and 18.8.31.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final, NamedTuple, TypeAlias

Formatter: TypeAlias = Callable[[str], str]

_DATES = dict.fromkeys((*range(14, 18), *range(27, 37), *range(50, 59)), "yyyy-mm-dd")
BUILT_IN: Final[Mapping[int, str]] = {
    **{1: "0", 2: "0.00", 9: "0%", 10: "0.00%"},
    **dict.fromkeys((3, 5, 6, 37, 38, 41, 42), "#,##0"),  # some with the currency of each machine
    **dict.fromkeys((4, 7, 8, 39, 40, 43, 44), "#,##0.00"),
    **_DATES,
    **{18: "h:mm", 19: "h:mm:ss", 20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm"},
    **{45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss.0"},
}
"""Codes that a workbook names by their number alone, those of dates in any form; a number that is missing is plain."""

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|[_*].'
    r"|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[(?P<elapsed>h+|m+|s+)\]|\[(?P<condition>[<>=][^\]]*)\]|\[[^\]]*\]"
    r"|(?P<general>general|standard|@)|(?P<halves>am/pm|a/p)|(?P<exponent>e[+-])|(?P<end>;)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_DIGITS = "0#?"
_WHOLE = re.compile(r"-?[0-9]+")
_DAY_S = 86_400


class _Token(NamedTuple):
    kind: str  # of `_TOKEN`; `literal` for what is written as it is
    text: str


def plain(value: str) -> str:
    """A number without a format: whole ones with all their digits, others with up to 15.

    >>> plain("0.30000000000000004"), plain("12.0"), plain("493517700123456789"), plain("1e-7"), plain("x")
    ('0.3', '12', '493517700123456789', '1E-07', 'x')
    """
    if not (value.isdecimal() or _WHOLE.fullmatch(value)):
        try:
            shown = format(float(value), ".15g").upper()
        except ValueError:
            return value
        value = shown if shown[-1].isdigit() else value  # not nan, inf
    return value if value.strip("-0") else value[-1:]  # not -0


@functools.lru_cache(maxsize=1024)
def formatter(code: str, *, from_1904: bool = False) -> Formatter:
    """The function that shows numbers by a code; what is no number it gives back as it is.

    Args:
        code: the format code as it is stored, with `;` between its sections; empty: plain numbers.
        from_1904: whether the workbook counts days from 1904.

    >>> formatter('#,##0.00 "EUR"')("1234567.5"), formatter("0.0%")("0.185"), formatter("00000")("815")
    ('1,234,567.50 EUR', '18.5%', '00815')
    >>> formatter("d/m/yy")("45964"), formatter("[h]:mm")("1.2958333333"), formatter(";;;")("7")
    ('2025-11-03', '31:06', '7')
    """
    sections: list[list[_Token]] = [[]]
    for found in _TOKEN.finditer(code):
        kind, text = found.lastgroup or "", found[found.lastgroup or 0]
        if kind == "end":
            sections.append([])
        elif kind:  # neither a space of some width, nor a colour
            sections[-1].append(_Token("literal" if kind in ("quoted", "escaped", "currency") else kind, text))
    tokens = sections[0]
    if any(token.kind == "elapsed" or (token.kind == "other" and token.text in "yYmMdDhHsS") for token in tokens):
        return functools.partial(_time, tokens=tokens, from_1904=from_1904)
    if any(token.kind in ("condition", "exponent") for section in sections for token in section):
        return plain
    return functools.partial(_number, sections=[_section(tokens) for tokens in sections])


class _Section(NamedTuple):
    """One section of the code of a number."""

    tokens: list[_Token]
    n_places: int  # for digits before the point
    least_digits: int  # before the point
    n_decimals: int
    least_decimals: int
    grouped: bool
    power: int  # of ten, that the number is multiplied by
    bare: bool  # nothing of it is shown


def _section(tokens: list[_Token]) -> _Section | None:
    """None: it shows a number in a way that is not known here."""
    marks = "".join(token.text for token in tokens if token.kind == "other" and token.text in f"{_DIGITS}.,")
    shape = re.fullmatch(r"([0#?,]*?)(,*)(?:\.([0#?]*)(,*))?", marks)
    if shape is None or ("other", "/") in tokens:
        return None
    whole, scale, decimals, more = (group or "" for group in shape.groups())
    digits = whole.replace(",", "")
    return _Section(
        tokens,
        n_places=len(digits),
        least_digits=len(digits) - digits.find("0") if "0" in digits else 0,
        n_decimals=len(decimals),
        least_decimals=decimals.rfind("0") + 1,
        grouped="," in whole.strip(","),
        power=2 * tokens.count(_Token("other", "%")) - 3 * len(scale + more),
        bare=not any(token.text.strip() for token in tokens),
    )


def _number(value: str, *, sections: list[_Section | None]) -> str:
    try:
        number = Decimal(plain(value))
    except InvalidOperation:
        return value
    if not number.is_finite():
        return value
    at = 2 if not number and len(sections) > 2 else 1 if number < 0 and len(sections) > 1 else 0
    section = sections[at]
    if section is None or section.bare:
        return plain(value)
    try:
        whole, decimals = _rounded(abs(number), section)
    except InvalidOperation:  # too many digits
        return plain(value)
    sign = "-" if number < 0 and at == 0 and (whole + decimals).strip("0") else ""
    return " ".join(f"{sign}{_filled(section, whole, decimals, plain(value.lstrip('-')))}".split())


def _rounded(number: Decimal, section: _Section) -> tuple[str, str]:
    """The digits before and behind the point."""
    rounded = number.scaleb(section.power).quantize(Decimal(1).scaleb(-section.n_decimals), ROUND_HALF_UP)
    whole, _, decimals = format(rounded, "f").partition(".")
    shown = decimals.rstrip("0").ljust(section.least_decimals, "0")
    digits = whole.lstrip("0").zfill(section.least_digits)
    return (f"{int(digits):,}" if section.grouped and len(digits) > 3 and digits[0] != "0" else digits), shown


def _filled(section: _Section, whole: str, decimals: str, general: str) -> str:
    """The section with the digits in their places: the first place takes all that the others have no room for."""
    n_places = 1 if section.grouped else section.n_places
    places = list(whole.rjust(n_places, "\0"))
    places[: len(places) - n_places + 1] = ["".join(places[: len(places) - n_places + 1])]
    out, behind = [], False
    for kind, text in section.tokens:
        if kind == "general":
            out.append(general)
        elif kind != "other" or text not in f"{_DIGITS}.,":
            out.append(text)
        elif text == ".":
            out += [*places, f".{decimals}" if decimals else ""]
            places, behind = [], True
        elif text != "," and not behind and places:
            out.append(places.pop(0))
    return "".join(out).replace("\0", "")


def _time(value: str, *, tokens: list[_Token], from_1904: bool) -> str:
    codes = "".join(token.text for token in tokens if token.kind == "other").lower()
    elapsed = next((token.text[0].lower() for token in tokens if token.kind == "elapsed"), "")
    n_decimals = len(found[1]) if (found := re.search(r"s\.(0+)", codes)) else 0
    try:
        seconds = round(Decimal(plain(value)) * _DAY_S, n_decimals)
        if seconds < 0:
            return plain(value)
        days, rest = divmod(seconds, _DAY_S)
        date = _date(int(days), from_1904=from_1904) if not elapsed else ""
    except (InvalidOperation, OverflowError, ValueError):
        return plain(value)
    has_time = re.search("[hs]", codes)
    if elapsed or (has_time and not re.search("[yd]", codes)):
        return _clock(seconds if elapsed else rest, elapsed or "h", codes + elapsed)
    return f"{date} {_clock(rest, 'h', codes)}" if has_time else date


def _date(days: int, *, from_1904: bool) -> str:
    """The day of a number; 1900 has 366 days there."""
    first = datetime.date(1904, 1, 1) if from_1904 else datetime.date(1899, 12, 31 if 0 < days < 60 else 30)
    return (first + datetime.timedelta(days=days)).isoformat()


def _clock(seconds: Decimal, largest: str, codes: str) -> str:
    """Hours, minutes and seconds, the largest of them without a bound."""
    minutes, rest = divmod(seconds, 60)
    shown_s = f"{int(rest):02}{format(rest % 1, 'f')[1:]}"
    if largest == "s":
        return format(seconds, "f")
    if largest == "m":
        return f"{minutes}:{shown_s}"
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours:02}:{minutes:02}"
    return f"{clock}:{shown_s}" if "s" in codes else clock
