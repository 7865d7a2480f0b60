"""The face of a package: the names that others use of it, each imported from its module when it is first used.

    if TYPE_CHECKING:
        from ragidx.indexer.store.store import Store
    else:
        __getattr__ = face(__name__, {"Store": "store"})

So importing one module of a package loads no other one, and a type checker knows every name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def face(package: str, homes: Mapping[str, str], *, shown: str = "") -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: the name of the package.
        homes: the module of each name, seen from the package; with a dot before it, of the package around it.
        shown: what messages call the package; "": its name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {(shown or package)!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{homes[name]}", package), name)

    return load
