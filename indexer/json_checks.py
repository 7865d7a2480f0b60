"""Checks of untrusted JSON, made of smaller ones: a wrong value is a ValueError whose text says where and why.

    entry = record(FileEntry, bytes=integer(0, 2**53), sha256=string(SHA256.fullmatch))
    entry({"bytes": 1, "sha256": "0f..."}, "deletions")    FileEntry(bytes=1, sha256="0f...")

A check takes a value and its place, and returns what the value is in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

from ragidx.corpora.errors import SpecError

T = TypeVar("T")
Check: TypeAlias = Callable[[object, str], T]


def record(make: Callable[..., T], **checks: Check[Any]) -> Check[T]:
    """An object with just these fields, whose values `make` takes by their names."""

    def check(data: object, where: str) -> T:
        fields = mapping(data, where)
        if missing := sorted(checks.keys() - fields.keys()):
            refuse(where, f"{missing[0]!a} is missing")
        if unknown := sorted(fields.keys() - checks.keys()):
            refuse(where, f"{unknown[0]!a} is unknown")
        values = {name: checked(fields[name], f"{where}.{name}".lstrip(".")) for name, checked in checks.items()}
        try:
            return make(**values)
        except SpecError as fault:
            refuse(where, fault.message)

    return check


def table(name: Check[str], value: Check[T]) -> Check[dict[str, T]]:
    """An object with any number of fields."""
    return lambda data, where: {
        name(key, where): value(item, f"{where}.{key}") for key, item in mapping(data, where).items()
    }


def list_of(item: Check[T]) -> Check[tuple[T, ...]]:
    """A list."""

    def check(data: object, where: str) -> tuple[T, ...]:
        if not isinstance(data, list):
            refuse(where, "it is not a list")
        return tuple(item(value, f"{where}[{number}]") for number, value in enumerate(data))

    return check


def optional(check: Check[T]) -> Check[T | None]:
    """A value or null."""
    return lambda data, where: None if data is None else check(data, where)


def integer(least: int, most: int) -> Check[int]:
    """An integer between two bounds."""

    def check(data: object, where: str) -> int:
        if not isinstance(data, int) or isinstance(data, bool) or not least <= data <= most:
            refuse(where, f"{_short(data)} is not an integer from {least} to {most}")
        return data

    return check


def string(accepts: Callable[[str], object]) -> Check[str]:
    """A string that a function accepts."""

    def check(data: object, where: str) -> str:
        if not isinstance(data, str) or not accepts(data):
            refuse(where, f"{_short(data)} is not allowed there")
        return data

    return check


def flag(data: object, where: str) -> bool:
    """True or false."""
    return data if isinstance(data, bool) else refuse(where, f"{_short(data)} is neither true nor false")


def mapping(data: object, where: str) -> dict[str, Any]:
    """An object."""
    return data if isinstance(data, dict) else refuse(where, "it is not an object")


def share(data: object, where: str) -> float:
    """A number from 0 to 1."""
    if not isinstance(data, int | float) or isinstance(data, bool) or not 0 <= data <= 1:
        refuse(where, f"{_short(data)} is not a number from 0 to 1")
    return float(data)


def refuse(where: str, reason: str) -> NoReturn:
    """Raise the ValueError."""
    raise ValueError(f"{where}: {reason}" if where else reason)


def _short(data: object) -> str:
    text = ascii(data)
    return text if len(text) <= 60 else f"{text[:60]}..."
