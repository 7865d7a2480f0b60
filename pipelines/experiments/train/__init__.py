"""Training of what makes a model's vectors better. `ragidx.train.head` and its like are loaded when they are used."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from ragidx.corpora.errors import missing_extra
from ragidx.corpora.faces import face

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.train.decoders.contrastive import contrastive, simcse
    from ragidx.pipelines.experiments.train.decoders.export import export
    from ragidx.pipelines.experiments.train.decoders.mntp import mntp
    from ragidx.pipelines.experiments.train.heads import head
    from ragidx.pipelines.experiments.train.poolings import pooling
    from ragidx.pipelines.experiments.train.static_models import mini, questions

__all__ = ["contrastive", "export", "head", "mini", "mntp", "pooling", "questions", "simcse"]

_HOMES = {
    "contrastive": "decoders.contrastive",
    "export": "decoders.export",
    "head": "heads",
    "mini": "static_models",
    "mntp": "decoders.mntp",
    "pooling": "poolings",
    "questions": "static_models",
    "simcse": "decoders.contrastive",
}
_DECODERS = ("torch", "transformers", "sentence_transformers", "peft", "accelerate", "datasets")
_NEED = {"contrastive": _DECODERS, "export": _DECODERS[:3], "mntp": _DECODERS, "simcse": _DECODERS}
_named = face(__name__, _HOMES, shown="ragidx.train")


def __getattr__(name: str) -> Any:
    missing = [package for package in _NEED.get(name, ()) if importlib.util.find_spec(package) is None]
    if missing:
        raise missing_extra(f"`train.{name}` needs", missing, "train" if len(_NEED[name]) > 3 else "models")
    return _named(name)
