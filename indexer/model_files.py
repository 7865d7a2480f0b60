"""Small files of a model, read with an error that names them; the user's home, and files kept in the user's cache."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import ModelError, check_machine

AGAIN = "download or copy the model again"


def read_json(path: Path, hint: str = AGAIN) -> Any:
    """What a JSON file holds.

    Raises:
        ModelError: it cannot be read, is not JSON, or is nested too deep.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        check_machine(fault, path)
        raise ModelError(f"not readable as JSON: {fault}", hint, where=str(path)) from fault


def read_object(path: Path, hint: str = AGAIN) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        ModelError: as `read_json`, or it holds something else.
    """
    found = read_json(path, hint)
    if not isinstance(found, dict):
        raise ModelError("not a JSON object", hint, where=str(path))
    return found


def expanded(name: str | os.PathLike[str]) -> Path:
    """A path with the home that its ~ means; as it stands where no such home is known.

    `Path.expanduser` raises then: in a container a user may have neither HOME nor an entry in the table of users.
    """
    return Path(os.path.expanduser(name))  # noqa: PTH111


def cache_of(program: str) -> Path | None:
    """The folder of a program in the user's caches, which may not be there; None where the user has no home.

    It is in XDG_CACHE_HOME, else in `.cache` of the home. A relative path is none.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"), program)
    return folder if folder.is_absolute() else None


def named_cache() -> Path | None:
    """Where the environment puts the cache of ragidx, if that is a whole path; it may not be writable."""
    named = os.environ.get("RAGIDX_CACHE")
    return (Path(named) if Path(named).is_absolute() else None) if named else cache_of("ragidx")


def user_cache(kind: str = "") -> Path | None:
    """The folder of ragidx's cache for a kind of files, which may not be there yet; None: nothing is kept.

    RAGIDX_CACHE, else `ragidx` in XDG_CACHE_HOME, else `.cache/ragidx` in the user's home. One that is relative, or
    that this process cannot write to, is none.
    """
    folder = named_cache()
    if folder is None:
        return None
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    return folder / kind if os.access(there, os.W_OK | os.X_OK) and there.is_dir() else None


def keep(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file of a cache, whole or not at all: one that cannot be written costs time, nothing else."""
    import tempfile  # most commands write none

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
