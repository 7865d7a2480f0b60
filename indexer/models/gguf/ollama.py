"""Ollama's own store on this machine: a name such as `ollama:qwen3:0.6b` to the GGUF file it means. Only read, and
without Ollama's server.

    ROOT/manifests-v2/HOST/NAMESPACE/MODEL/TAG    newer: a link to a blob;   ROOT/manifests/...    older: a file
    ROOT/blobs/sha256-HEX                         manifests and layers, each under the sha256 of its content

A manifest is untrusted: what it names is a blob of the same root or nothing. Of its layers only the model is used;
template, system prompt and parameters are for chats.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import ModelError
from ragidx.indexer.model_files import expanded, read_object

PREFIX = "ollama:"
_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HOST_PART = re.compile(r"[A-Za-z0-9_.-]{1,128}(:\d{1,5})?")
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_LAYER = "application/vnd.ollama.image."
_LIST = "application/vnd.ollama.manifest.list.v2+json"
_RUNNERS = ("ollama", "llamacpp")  # the other one, mlx, has its weights in another form
_MANIFEST_BYTES = 1 << 22


@dataclass(frozen=True)
class Pulled:
    """A model in the store."""

    name: str  # as Ollama writes it, such as `qwen3:0.6b`
    full: str  # with host and namespace
    root: Path  # the store
    manifest: Path


def blob_of(name: str) -> Path:
    """The GGUF file of `ollama:[host/][namespace/]model[:tag]`, compared without case, as Ollama does.

    Raises:
        ModelError: no such model, more than one, no weights in GGUF, an adapter, or a damaged store.
    """
    wanted = _pattern(name)
    refused: list[Path] = []
    known = list(pulled(refused))
    matches = [model for model in known if wanted.fullmatch(model.full)]
    if not matches:
        raise _missing(name, [model.name for model in known], refused)
    if len({model.full.lower() for model in matches}) > 1:
        full = " or ".join(f"{PREFIX}{model.full}" for model in matches)
        raise ModelError(f"'{name}' is more than one model", f"name one: {full}", where="`model`")
    return _model_layer(matches[0], name)


def pulled(refused: list[Path] | None = None) -> Iterator[Pulled]:
    """The models in the stores of this machine; of one that has a newer and an older manifest the newer first.

    Folders that may not be read are added to `refused`.
    """
    for root in _roots():
        for folder in ("manifests-v2", "manifests"):
            for path in _files(root / folder, 4, [] if refused is None else refused):
                host, namespace, model, tag = path.parts[-4:]
                if all(map(_PART.fullmatch, (namespace, model, tag))) and _HOST_PART.fullmatch(host):
                    full = f"{host}/{namespace}/{model}:{tag}"
                    name = full.removeprefix(f"{_HOST}/")
                    yield Pulled(name.removeprefix(f"{_NAMESPACE}/"), full, root, path)


def _roots() -> list[Path]:
    """Where Ollama keeps its models: as its variable says, else the user's store and that of the service on Linux."""
    named = os.environ.get("OLLAMA_MODELS")
    if named:
        return [expanded(named)]
    service = [Path("/usr/share/ollama/.ollama/models")] if sys.platform == "linux" else []
    return [expanded("~/.ollama/models"), *service]


def _pattern(name: str) -> re.Pattern[str]:
    """What the full name of a model looks like that a user means."""
    *before, last = name.removeprefix(PREFIX).split("/")
    model, _, tag = last.partition(":")  # the colon of a port is in the host
    parts = [*before[-1:], model, tag or _TAG]
    good = all(_PART.fullmatch(part) and part.strip(".") for part in parts) and len(before) <= 2
    if not good or (len(before) == 2 and not _HOST_PART.fullmatch(before[0])):
        raise ModelError(
            f"'{name}' is no name of a model in Ollama",
            f"write it as 'ollama list' does, such as {PREFIX}qwen3:0.6b",
            where="`model`",
        )
    host = re.escape(before[0]) if len(before) == 2 else r"[^/]+"
    namespace = before[-1] if before else _NAMESPACE
    return re.compile(rf"{host}/{re.escape(namespace)}/{re.escape(model)}:{re.escape(tag or _TAG)}", re.IGNORECASE)


def _files(folder: Path, depth: int, refused: list[Path]) -> Iterator[Path]:
    """The files so many folders deep, in order of their names."""
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:
        refused.append(folder)
        return
    except OSError:
        return
    for entry in entries:
        if depth > 1 and entry.is_dir():
            yield from _files(entry, depth - 1, refused)
        elif depth == 1 and entry.is_file():
            yield entry


def _missing(name: str, known: list[str], refused: list[Path]) -> ModelError:
    if refused:
        return ModelError(
            f"'{name}' was not found, and this user may not read {refused[0]}",
            "allow it, or copy the model's file and name that",
            where="`model`",
        )
    short = name.removeprefix(PREFIX)
    near = difflib.get_close_matches(short, known, n=1)
    guess = f"; did you mean '{PREFIX}{near[0]}'?" if near else ""
    return ModelError(
        f"'{name}' is not among the models that Ollama has pulled{guess}",
        f"run 'ollama pull {short}', or see 'ragidx models'; searched: {' and '.join(map(str, _roots()))}",
        where="`model`",
    )


def _model_layer(model: Pulled, name: str) -> Path:
    again = f"run 'ollama pull {model.name}' again"
    manifest = _manifest(model.manifest, model.root, again)
    if manifest.get("mediaType") == _LIST or "manifests" in manifest:
        entries = [entry for entry in _dicts(manifest.get("manifests")) if entry.get("runner") in _RUNNERS]
        if not entries:
            raise _no_gguf(name)
        manifest = _manifest(_blob(entries[0], model, again), model.root, again)
    stored = reversed(_dicts(manifest.get("layers")))
    layers = {str(layer.get("mediaType")).removeprefix(_LAYER): layer for layer in stored}
    if "adapter" in layers:
        raise ModelError(
            f"'{name}' is a model with a LoRA adapter on top, which cannot be read from GGUF",
            "name the model without it, or safetensors with `adapters`",
            where="`model`",
        )
    if "model" not in layers:
        raise _no_gguf(name)
    return _blob(layers["model"], model, again)


def _no_gguf(name: str) -> ModelError:
    return ModelError(
        f"'{name}' has no weights in GGUF: it runs in the cloud, or in Ollama's MLX runner",
        "pull a tag with GGUF weights, or name the folder with the model's safetensors",
        where="`model`",
    )


def _manifest(path: Path, root: Path, again: str) -> dict[str, Any]:
    real = path.resolve()
    inside = any(real.is_relative_to((root / part).resolve()) for part in ("blobs", "manifests-v2", "manifests"))
    if not inside or not real.is_file() or real.stat().st_size > _MANIFEST_BYTES:
        raise ModelError("it leads to no manifest of Ollama's store", again, where=str(path))
    return read_object(real, again)


def _blob(entry: dict[str, Any], model: Pulled, again: str) -> Path:
    """The file that an entry of a manifest names by its digest."""
    digest = entry.get("digest")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise ModelError(
            f"it names a file by {ascii(digest)[:60]}, which is no sha256", again, where=str(model.manifest)
        )
    folder = (model.root / "blobs").resolve()
    path = (folder / f"sha256-{match[1].lower()}").resolve()
    if path.parent != folder or not path.is_file():
        raise ModelError(f"the file {path.name} of '{model.name}' is missing", again, where=str(folder))
    return path


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
