"""Checks of untrusted JSON: a wrong value is a ValueError whose text says where and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def fields_of(data: object, where: str, names: set[str]) -> dict[str, Any]:
    """An object with just these fields."""
    found = mapping(data, where)
    if missing := sorted(names - set(found)):
        refuse(where, f"{missing[0]!a} is missing")
    if unknown := sorted(set(found) - names):
        refuse(where, f"{unknown[0]!a} is unknown")
    return found


def mapping(data: object, where: str) -> dict[str, Any]:
    """An object."""
    return data if isinstance(data, dict) else refuse(where, "it is not an object")


def list_of(data: object, where: str) -> list[Any]:
    """A list."""
    return data if isinstance(data, list) else refuse(where, "it is not a list")


def integer(data: object, where: str, least: int, most: int) -> int:
    """An integer between two bounds."""
    if not isinstance(data, int) or isinstance(data, bool) or not least <= data <= most:
        refuse(where, f"{short(data)} is not an integer from {least} to {most}")
    return data


def string(data: object, where: str, accepts: Callable[[str], object]) -> str:
    """A string that a function accepts."""
    if not isinstance(data, str) or not accepts(data):
        refuse(where, f"{short(data)} is not allowed there")
    return data


def short(data: object) -> str:
    """A value as messages show it."""
    text = ascii(data)
    return text if len(text) <= 60 else f"{text[:60]}..."


def refuse(where: str, reason: str) -> NoReturn:
    """Raise the ValueError."""
    raise ValueError(f"{where}: {reason}")


def share(data: object, where: str) -> float:
    """A number from 0 to 1."""
    if not isinstance(data, int | float) or isinstance(data, bool) or not 0 <= data <= 1:
        refuse(where, f"{short(data)} is not a number from 0 to 1")
    return float(data)
