"""Locating a model by its name, without loading it: its folder, its kind, its weights.

A name is `mini` (the bundled model), a folder, a hub id, or one of a GGUF file: the file, `ollama:NAME`, `smollm2`. A
folder may hold a LoRA adapter in place of a model: then its base is the model. Weights are read from safetensors and
GGUF only.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import ModelError
from ragidx.indexer.devices import check_models
from ragidx.indexer.model_files import AGAIN, expanded, read_object
from ragidx.indexer.models.gguf import ollama
from ragidx.indexer.models.gguf.files import SMOLLM2, named_gguf, only_gguf, read_model
from ragidx.indexer.models.gguf.header import Gguf
from ragidx.indexer.models.lora_config import CONFIG as ADAPTER_CONFIG
from ragidx.indexer.models.lora_config import WEIGHTS as ADAPTER_WEIGHTS
from ragidx.indexer.models.lora_config import is_adapter, read_config
from ragidx.indexer.models.modules import MODULES, check_modules
from ragidx.indexer.models.presets import preset_called, published_presets

BUNDLED = ("mini", "mini-decoder")
SERVED = "openai:"  # before the name of a model that a server has, by the protocol of OpenAI's embeddings

TRAINED_POOLING = "training/pooling.safetensors"
"""Of a model that was trained together with its pooling."""

_WIDTHS = ("word_embed_proj_dim", "hidden_size", "n_embd", "d_model")  # fields of a config, the first that is there
_PRESET = {
    **{"method": str, "template": str, "pooling": str, "attention": str, "layer": int, "filter": dict},
    "instruction": str,  # of queries
    "weight": float,  # of the vectors in hybrid search
    "masked": bool,  # trained on masked tokens, so that a word is read one place before
}


@dataclass(frozen=True)
class ModelFiles:
    """A model whose files are on this machine, or on a server."""

    name: str  # as the user wrote it
    folder: Path
    config: dict[str, Any]  # config.json; empty where it has none (a sentence-transformers model in sub-folders)
    sentence_transformers: bool  # whether it brings its own modules (modules.json)
    adapters: tuple[Path, ...] = ()  # folders of LoRA adapters, in the order in which they are merged
    pooler: Path | None = None  # the weights of a trainable pooling
    names: tuple[str, ...] = ()  # of the model and its base, by the user and in the files of model and adapters
    # The header, if the model is in a GGUF file: the config is made from it, and nothing else of the folder counts.
    gguf: Gguf | None = field(default=None, repr=False)
    served: str = ""  # the name that a server knows it by, which then has its files; empty: they are here

    @property
    def tokenizer_folder(self) -> Path:
        """The folder of the tokenizer: an adapter may bring its own."""
        return next((f for f in reversed(self.adapters) if (f / "tokenizer.json").is_file()), self.folder)

    @property
    def family(self) -> str:
        """The architecture's `model_type`, such as `llama`."""
        return str(self.config.get("model_type", ""))

    @property
    def hidden(self) -> int | None:
        """The hidden width that the config names; None where it names none."""
        inner = self.config.get("text_config")
        config = inner if inner and isinstance(inner, dict) else self.config
        width = next((config[name] for name in _WIDTHS if config.get(name)), None)
        return width if isinstance(width, int) else None

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, in order of their names."""
        found = self.folder.glob("**/*.safetensors" if self.sentence_transformers else "*.safetensors")
        return sorted(path for path in found if path.name != ADAPTER_WEIGHTS)

    def preset(self) -> dict[str, Any]:
        """The preset of this model: its preset.json, else by its hub id or the name in its GGUF file; empty without."""
        if self.gguf is not None:
            return preset_called(self.gguf.single("general.name"), self.hidden)
        path = self.folder / "preset.json"
        if not path.is_file():
            return published_presets().get(self.name, {})
        found = read_object(path)
        for name, kind in _PRESET.items():
            if name in found and type(found[name]) is not kind:
                shown = ascii(found[name])[:60]
                raise ModelError(f"'{name}' is {shown}, not of the type {kind.__name__}", AGAIN, where=str(path))
        return found


def locate(
    model: str,
    *,
    revision: str | None = None,
    adapters: Sequence[str] = (),
    pooler: str | None = None,
    served: bool = False,
) -> ModelFiles:
    """The files of a model; a hub id is downloaded if it is not in the hub's cache.

    Args:
        model: a bundled name, a folder, a hub id, a GGUF file, `ollama:NAME`, or `smollm2`. A folder with an adapter
            and no model means the base that it names, with this adapter first.
        revision: revision of a hub id.
        adapters: folders or hub ids of LoRA adapters, in the order in which they are merged.
        pooler: the safetensors file of a trainable pooling.
        served: whether `openai:NAME` is taken too, a model that a server has, of which there are no files.

    Raises:
        ModelError: no such folder or id, no weights, weights in pickle files only, no config, an adapter of another
            base, a model and an adapter in one folder, or a GGUF file that cannot be read as a decoder.
    """
    if model.startswith(SERVED):
        return _served(model, files_needed=not served)
    gguf = named_gguf(model)
    folder = _folder(model, revision, "`model`") if gguf is None else gguf.parent
    if gguf is None and not _has_model(folder) and not is_adapter(folder):
        gguf = only_gguf(folder, model)
    if gguf is not None:
        if adapters:
            raise ModelError(
                f"'{model}' is a GGUF file, which takes no adapter",
                "name the folder with the model's safetensors, or a file into which the adapter was merged",
                where="`adapters`",
            )
        return dataclasses.replace(_from_gguf(model, gguf), pooler=_pooler_file(pooler), names=(model,))
    folders = [folder] if is_adapter(folder) else []
    if folders and _has_model(folder):
        raise ModelError(
            f"'{model}' holds a model and an adapter, and it is not clear which is meant",
            f"move {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} to a folder of their own, and name it with `adapters`",
            where=str(folder),
        )
    files = _checked(model, _base_of(folder, model) if folders else folder)
    names = [model, str(files.config.get("_name_or_path") or ""), *(name for it in folders for name in _names(it))]
    if isinstance(adapters, str):
        raise TypeError("expected a list of adapters, got one string")
    for name in adapters:
        folders.append(_folder(name, None, "`adapters`"))
        if folders[-1] in folders[:-1]:
            raise ModelError(f"the adapter '{name}' is named twice", "name it once", where="`adapters`")
        _check_adapter(folders[-1], name, files.folder, names)
        names += [name, *_names(folders[-1])]  # an adapter on top may call the model by the name of the one below
    if folders and files.sentence_transformers:
        raise ModelError(
            f"'{model}' is a sentence-transformers model, which takes no adapter",
            "merge the adapter into its weights, or name the plain decoder as `model`",
            where="`adapters`",
        )
    known = tuple(dict.fromkeys(name for name in names if name))
    own = files.folder / TRAINED_POOLING
    if pooler is None and files.gguf is None and files.preset().get("pooling") == "trainable" and own.is_file():
        pooler = str(own)
    return dataclasses.replace(files, adapters=tuple(folders), pooler=_pooler_file(pooler), names=known)


def _served(model: str, *, files_needed: bool) -> ModelFiles:
    name, where = model.removeprefix(SERVED), "`model`"
    if files_needed:
        message = f"'{model}' is a model of a server, and its files are needed here"
        raise ModelError(message, "name its folder or its hub id", where=where)
    if not name.strip() or not name.isprintable():
        hint = f"write `model={SERVED}NAME`, by its name there"
        raise ModelError(f"{model!a} names no model of a server", hint, where=where)
    return ModelFiles(model, Path(model), {}, sentence_transformers=False, served=name)


def _pooler_file(pooler: str | None) -> Path | None:
    weights = None if pooler is None else expanded(pooler).resolve()
    if weights is not None and not weights.is_file():
        raise ModelError(
            "there is no such file", "name the safetensors file of the pooling", where=f"`pooler={pooler}`"
        )
    return weights


def _from_gguf(model: str, path: Path) -> ModelFiles:
    from ragidx.indexer.models.gguf.architectures import config_of, weights_of  # which import NumPy
    from ragidx.indexer.models.gguf.tensors import check_readable

    gguf = read_model(path)
    config = config_of(gguf)
    for tensor in {weight.tensor.kind: weight.tensor for weight in weights_of(gguf)}.values():
        check_readable(tensor)
    return ModelFiles(model, gguf.path.parent, config, sentence_transformers=False, gguf=gguf)


def _folder(name: str, revision: str | None, option: str) -> Path:
    """The folder that a name means."""
    if name in BUNDLED:
        return Path(str(resources.files("ragidx.indexer") / "models" / name))
    if _is_folder(name):
        return expanded(name).resolve()
    if name.endswith(".safetensors") and expanded(name).is_file():
        raise ModelError(f"'{name}' is a file of weights alone", "name the folder that it is in", where=option)
    if _is_id(name):
        return _from_hub(name, revision, option)
    if option == "`adapters`":
        raise ModelError(
            f"no adapter '{name}': neither a folder, nor an id of the form owner/name",
            "name the folder that holds its adapter_config.json",
            where=option,
        )
    known = {it.name.lower().removesuffix(":latest"): f"{ollama.PREFIX}{it.name}" for it in ollama.pulled()}
    known |= {short: short for short in (*BUNDLED, SMOLLM2)}
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.65)  # at 0.6 'ollama' is near 'smollm2'
    raise ModelError(
        f"no model '{name}': neither bundled, nor a GGUF file, a folder or an id of the form owner/name"
        + (f"; did you mean '{known[near[0]]}'?" if near else ""),
        "`ragidx models` lists what is bundled and shows what else can be named",
        where=option,
    )


def _is_folder(name: str) -> bool:
    try:
        return expanded(name).is_dir()
    except (OSError, RuntimeError, ValueError):  # too long a name, no such user after ~, a null character
        return False


def _is_id(name: str) -> bool:
    """Whether a name has the form of a hub id, owner/name."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII) is not None


def _has_model(folder: Path) -> bool:
    return any(path.name != ADAPTER_WEIGHTS for path in folder.glob("*.safetensors"))


def _base_of(adapter: Path, name: str) -> Path:
    """The folder of the model that an adapter names as its base: a folder beside the adapter's, or a hub id."""
    base = read_config(adapter).base
    beside = adapter.parent / Path(base).name  # a name from a file leads nowhere else
    if beside.parent == adapter.parent and beside.name != ".." and beside != adapter and _is_folder(str(beside)):
        return beside
    if _is_id(base):
        return _from_hub(base, None, "`model`")
    missing = f"its base model '{base}' is not beside it" if base else "its config names no base model"
    raise ModelError(
        f"'{name}' is an adapter, and {missing}",
        "name the base with `model` and the adapter with `adapters`",
        where=str(adapter),
    )


def _names(adapter: Path) -> list[str]:
    """What an adapter's folder calls the model under it."""
    config = adapter / "config.json"
    return [read_config(adapter).base, str(read_object(config).get("_name_or_path") or "") if config.is_file() else ""]


def _check_adapter(folder: Path, name: str, model: Path, names: Sequence[str]) -> None:
    """An adapter of another base would give vectors that mean nothing; where both bases have published names, these
    must agree, or the model's folder be called like the base. Whether the weights fit is seen when they are merged.
    """
    if not is_adapter(folder):
        raise ModelError(
            f"'{name}' has no {ADAPTER_CONFIG}, so it is not an adapter",
            "name the folder that `save_pretrained` of a PEFT model wrote",
            where="`adapters`",
        )
    base = read_config(folder).base  # may be empty: then the user knows that both fit
    published = [other for other in names if _is_id(other) and not _is_folder(other)]
    if _is_id(base) and published and base not in published and Path(base).name != model.name:
        raise ModelError(
            f"the adapter '{name}' belongs to '{base}', the model is '{published[0]}'",
            f"use `model={base}` with it",
            where="`adapters`",
        )


def _checked(model: str, folder: Path) -> ModelFiles:
    modules = (folder / MODULES).is_file()
    config = folder / "config.json"
    if not config.is_file() and not modules:
        raise ModelError(
            f"the folder of '{model}' has no config.json, so it holds no model",
            _hint(model, "name the folder that `save_pretrained` wrote"),
            where=str(folder),
        )
    files = ModelFiles(model, folder, read_object(config) if config.is_file() else {}, modules)
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
            f"the folder of '{model}' has no weights (*.safetensors)",
            _hint(model, "download or copy them again"),
            where=str(folder),
        )
    if modules:
        check_modules(folder, model)
    return files


def _hint(model: str, of_folder: str) -> str:
    """What to do about a folder without a model; ids on the hub often hold GGUF files, which are not all downloaded."""
    if not _is_id(model) or _is_folder(model):
        return of_folder
    return f"if it has GGUF files, download one, and name the file: hf download {model} FILE.gguf"


def _from_hub(model: str, revision: str | None, option: str) -> Path:
    """The snapshot folder of a hub id; `option` is what the user named it with.

    Nothing is downloaded without the extra `models`, since no model on the hub can run without it.
    """
    check_models(f"the model '{model}'" if option == "`model`" else f"{option} {model}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    keep = "name a folder that can be written: HF_HOME=DIR ragidx ..."
    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*/*.json", "*/*.safetensors"]
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except (RepositoryNotFoundError, HFValidationError) as fault:
        raise ModelError(
            f"no model '{model}' on the hub", "check the spelling; private models need a token", where=option
        ) from fault
    except RuntimeError as fault:
        if "home directory" not in str(fault):
            raise
        raise ModelError(f"there is no home to keep '{model}' in", keep, where=option) from fault
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as fault:
        if kept := getattr(fault, "filename", None):  # it is about a file, and not about the network
            reason = getattr(fault, "strerror", None) or fault
            raise ModelError(f"'{model}' cannot be kept at {kept}: {reason}", keep, where=option) from fault
        bundled = "; the bundled model needs none: `model=mini`" if option == "`model`" else ""
        raise ModelError(
            f"'{model}' is not on this machine, and the hub cannot be reached",
            f"name its folder with {option}, or run once with a network{bundled}",
            where=option,
        ) from fault
