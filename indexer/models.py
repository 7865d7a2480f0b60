"""Which model a name means, and what can be known of it without loading it: its folder, its kind, its weights.

A name is `mini` (the bundled model), a folder, or a hub id. Weights are read from safetensors only.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import ModelError
from ragidx.indexer.presets import published_presets

BUNDLED = ("mini",)
_SETTINGS = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "vocab.json", "vocab.txt", "merges.txt"),
)
_WORTH_KEEPING = 1 << 28


@dataclass(frozen=True)
class ModelFiles:
    """A model whose files are on this machine.

    Attributes:
        name: as the user wrote it.
        folder: where its files are.
        config: its config.json; empty where it has none (a sentence-transformers model in sub-folders).
        sentence_transformers: whether it brings its own modules (modules.json).
    """

    name: str
    folder: Path
    config: dict[str, Any]
    sentence_transformers: bool

    @property
    def family(self) -> str:
        """The architecture's `model_type`, such as `llama`."""
        return str(self.config.get("model_type", ""))

    @property
    def hidden(self) -> int | None:
        """The hidden width that the config names; None where it names none."""
        config = self.config.get("text_config") or self.config
        width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model")
        return int(width) if width else None

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, in order of their names."""
        return sorted(self.folder.glob("**/*.safetensors" if self.sentence_transformers else "*.safetensors"))

    def preset(self) -> dict[str, Any]:
        """What is known to work best for this model: its preset.json, else by its hub id; empty if nothing is."""
        path = self.folder / "preset.json"
        return _json(path) if path.is_file() else published_presets().get(self.name, {})


def locate(model: str, *, revision: str | None = None) -> ModelFiles:
    """The files of a model; a hub id is downloaded if it is not in the hub's cache.

    Raises:
        ModelError: no such folder or id, no weights, weights in pickle files only, no config.
    """
    if model in BUNDLED:
        folder = Path(str(resources.files("ragidx.indexer") / "models" / model))
    elif Path(model).expanduser().is_dir():
        folder = Path(model).expanduser().resolve()
    elif model.count("/") == 1 and not model.startswith((".", "/", "~")):
        folder = _from_hub(model, revision)
    else:
        near = difflib.get_close_matches(model, BUNDLED, n=1)
        raise ModelError(
            f"no model '{model}': neither a bundled one, nor a folder, nor an id of the form owner/name"
            + (f"; did you mean '{near[0]}'?" if near else ""),
            "`ragidx models` lists what is bundled and shows what else can be named",
            where="--model",
        )
    return _checked(model, folder)


def weights_fingerprint(files: ModelFiles) -> str:
    """sha256 (hex) over the model's weight files, config and tokenizer: what its vectors depend on.

    Hashing a large model takes seconds, so the digest of a large file is kept in the user's cache folder by the file's
    size, time and inode.
    """
    digest = hashlib.sha256()
    for path in _decisive(files):
        digest.update(f"{path.relative_to(files.folder).as_posix()}\0{_file_digest(path)}\0".encode())
    return digest.hexdigest()


def _decisive(files: ModelFiles) -> list[Path]:
    if files.sentence_transformers:
        settings = files.folder.rglob("*.json")
    else:
        settings = (files.folder / name for name in _SETTINGS)
    return sorted({path for path in [*settings, *files.weight_files] if path.is_file()})


def _file_digest(path: Path) -> str:
    state = path.stat()
    kept = Path.home() / ".cache" / "ragidx" / "digests"
    key = hashlib.sha256(f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ino}".encode()).hexdigest()
    if state.st_size >= _WORTH_KEEPING and (kept / key).is_file():
        return (kept / key).read_text("ascii")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if state.st_size >= _WORTH_KEEPING:
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
            kept.mkdir(parents=True, exist_ok=True, mode=0o700)
            (kept / key).write_text(digest, "ascii")
    return digest


def _checked(model: str, folder: Path) -> ModelFiles:
    modules = (folder / "modules.json").is_file()
    config = folder / "config.json"
    if not config.is_file() and not modules:
        raise ModelError(
            f"the folder of '{model}' has no config.json, so it holds no model",
            "name the folder that `save_pretrained` wrote",
            where=str(folder),
        )
    files = ModelFiles(model, folder, _json(config) if config.is_file() else {}, modules)
    if not files.weight_files:
        pickled = sorted(path.name for ending in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.rglob(ending))
        if pickled:
            raise ModelError(
                f"'{model}' has its weights in pickle files only ({pickled[0]}), which can run code when they are read",
                "convert them to safetensors, once, where you trust them: "
                "AutoModelForCausalLM.from_pretrained(...).save_pretrained(folder)",
                where=str(folder),
            )
        raise ModelError(
            f"the folder of '{model}' has no weights (*.safetensors)", "download or copy them again", where=str(folder)
        )
    return files


def _from_hub(model: str, revision: str | None) -> Path:
    """The snapshot folder of a hub id."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*/*.json", "*/*.safetensors"]
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except RepositoryNotFoundError as fault:
        raise ModelError(
            f"no model '{model}' on the hub", "check the spelling; private models need a token", where="--model"
        ) from fault
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as fault:
        raise ModelError(
            f"'{model}' is not on this machine, and the hub cannot be reached",
            "name a local folder, or run once with a network; the bundled model needs none: --model mini",
            where="--model",
        ) from fault


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as fault:
        raise ModelError(
            f"not readable as JSON: {fault}", "download or copy the model again", where=str(path)
        ) from fault
    if not isinstance(data, dict):
        raise ModelError("not a JSON object", "download or copy the model again", where=str(path))
    return data
