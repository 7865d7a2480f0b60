"""The modules of a sentence-transformers folder: where their weights are, and that none of them is a pickle.

    modules.json    a list of {"type": a class, "path": a folder in the model's, "" for the model's own}

The library reads `pytorch_model.bin` wherever a module has no `model.safetensors`. Only for the
transformer itself can that be switched off, so this module finds such files before anything is loaded.
"""

from __future__ import annotations

from pathlib import Path

from ragidx.corpora.errors import ModelError
from ragidx.indexer.model_files import AGAIN, read_json, read_object

MODULES = "modules.json"

_SETTINGS = "sentence_bert_config.json"
_PICKLED, _SAFE = "pytorch_model.bin", "model.safetensors"


def check_modules(folder: Path, name: str) -> None:
    """Check that no module of a model's folder has pickled weights.

    Raises:
        ModelError: a module would be read from a pickle file, or modules.json is not what the library writes.
    """
    for kind, path in _modules(folder):
        place = folder / path
        files = [place / _PICKLED] if place == folder else sorted(place.rglob(_PICKLED))  # a router has modules inside
        pickled = next((file for file in files if file.is_file() and not _is_safe(file.parent, kind)), None)
        if pickled is not None:
            raise ModelError(
                f"'{name}' has pickled weights in {pickled.relative_to(folder).as_posix()}, which can run code when "
                "they are read",
                "save it with safetensors, once, where you trust it: "
                "SentenceTransformer(...).save_pretrained(folder, safe_serialization=True)",
                where=str(folder),
            )


def check_bare_text(folder: Path, name: str) -> None:
    """Check that the library gives texts to the model as they are, as it is done here.

    Raises:
        ModelError: it puts each text into the chat template first.
    """
    for _, path in _modules(folder):
        file = folder / path / _SETTINGS
        modalities = read_object(file).get("modality_config") if file.is_file() else None
        if isinstance(modalities, dict) and "message" in modalities:
            raise ModelError(
                f"sentence-transformers puts each text of '{name}' into the chat template, which ragidx does not",
                "remove 'message' from 'modality_config' in that file if the model was trained on the text alone; else "
                "name the decoder itself, and its `method`",
                where=str(file),
            )


def _is_safe(place: Path, kind: str) -> bool:
    """Whether a module with pickled weights has others that are read instead."""
    return (place / _SAFE).is_file() or (kind.endswith(".Transformer") and any(place.glob("*.safetensors")))


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Class and folder of each module."""
    try:
        found = [(str(entry["type"]), str(entry["path"])) for entry in read_json(folder / MODULES)]
    except (TypeError, KeyError) as fault:
        raise ModelError("it is not a list of modules", AGAIN, where=str(folder / MODULES)) from fault
    for _, path in found:
        if Path(path).is_absolute() or ".." in Path(path).parts or "\0" in path:
            raise ModelError(
                f"the module {path!r} is not inside the model's folder", "copy it there", where=str(folder / MODULES)
            )
    return found
