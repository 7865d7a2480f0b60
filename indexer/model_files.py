"""Small files of a model, read with an error that names them, and files kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
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


def keep(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file of a cache, whole or not at all: one that cannot be written costs time, nothing else."""
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
