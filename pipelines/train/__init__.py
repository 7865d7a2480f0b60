"""Training of what makes a model's vectors better. `ragidx.train.head` and its like are loaded when they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragidx.pipelines.train.heads import head
    from ragidx.pipelines.train.poolings import pooling
    from ragidx.pipelines.train.static_models import mini, questions

__all__ = ["head", "mini", "pooling", "questions"]

_HOMES = {"head": "heads", "mini": "static_models", "pooling": "poolings", "questions": "static_models"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragidx.train' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
