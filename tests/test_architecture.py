"""Imports point one way: corpora <- indexer <- retriever <- pipelines; nothing imports a leaf."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ragidx

ROOT = Path(ragidx.__file__).resolve().parent
ROOMS = ["corpora", "indexer", "retriever", "pipelines"]
LEAVES = {"ragidx.retriever.frameworks", "ragidx.pipelines.cli"}
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers"}


def _modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return {name for name in found if name.split(".")[0] == "ragidx"}


def _room(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_rooms_further_in(path: Path) -> None:
    own = ROOMS.index(path.relative_to(ROOT).parts[0])

    for name in _imports(path):
        room = _room(name)
        assert room is None or ROOMS.index(room) <= own, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_a_leaf(path: Path) -> None:
    module = "ragidx." + ".".join(path.relative_to(ROOT).with_suffix("").parts)

    for leaf in LEAVES:
        if not module.startswith((leaf, "ragidx.retriever.langchain")):
            assert not [name for name in _imports(path) if name.startswith(leaf)]


def test_a_module_is_not_named_after_a_package_that_it_imports() -> None:
    for path in _modules():
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert path.stem not in imported


def test_modules_stay_short_enough_to_read() -> None:
    long = {str(p.relative_to(ROOT)): n for p in _modules() if (n := len(p.read_text("utf-8").splitlines())) > 400}

    assert long == {}


@pytest.mark.parametrize(
    "code", ["import ragidx", "import ragidx.corpora.readers.registry", "import ragidx.indexer.store.store"]
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    heavy = HEAVY - ({"faiss"} if "store" in code else set())

    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(sorted({heavy!r} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"


def test_the_public_names_are_there() -> None:
    for name in ragidx.__all__:
        assert getattr(ragidx, name) is not None
    with pytest.raises(AttributeError, match="module 'ragidx' has no attribute 'nothing'"):
        ragidx.nothing  # noqa: B018
