"""Imports point one way, between rooms and between the packages inside them; nothing imports a leaf; sizes are bounded.

The order is that of docs/design.md: a package may import those to its left, never those to its right.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragidx

ROOT = Path(ragidx.__file__).resolve().parent
TESTS = Path(__file__).resolve().parent
ROOMS = ["corpora", "indexer", "retriever", "pipelines"]
LEAVES = ("ragidx.retriever.frameworks", "ragidx.pipelines.cli")
OLD_ADDRESSES = {"ragidx.retriever.langchain"}  # names that programs import; each is an import of the new one
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers"}

# What each package may import of its own room; "" is the room's own modules.
MAY_IMPORT: dict[str, set[str]] = {
    "corpora": set(),
    "corpora.readers": {"corpora"},
    "corpora.vectors": {"corpora", "corpora.readers"},
    "indexer": set(),
    "indexer.models": {"indexer"},
    "indexer.prompts": {"indexer", "indexer.models"},
    "indexer.filters": {"indexer", "indexer.models"},
    "indexer.encoders": {"indexer", "indexer.models", "indexer.prompts", "indexer.filters"},
    "indexer.ann": {"indexer"},
    "indexer.lexical": {"indexer"},
    "indexer.store": {"indexer", "indexer.ann", "indexer.lexical"},
    "indexer.writing": {"indexer", "indexer.ann", "indexer.lexical", "indexer.store"},
    "retriever.where": set(),
    "retriever": {"retriever.where"},
    "retriever.frameworks": {"retriever", "retriever.where"},
    "pipelines.ingest": {"pipelines"},
    "pipelines.evaluate": {"pipelines"},
    "pipelines.vectors": {"pipelines", "pipelines.ingest"},
    "pipelines.plan": {"pipelines", "pipelines.ingest"},
    "pipelines.sweep": {"pipelines", "pipelines.ingest", "pipelines.evaluate"},
    "pipelines.maintain": {"pipelines", "pipelines.ingest"},
    "pipelines.lens": {"pipelines"},
    "pipelines.doctor": {"pipelines"},
    "pipelines.train": {"pipelines"},
    "pipelines.train.mini": {"pipelines.train"},
}
BASE_OF_PIPELINES = {
    "ragidx.pipelines.demo": {"pipelines.ingest", "pipelines.evaluate"}
}  # the demo ties what the packages hold


def _modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


MODULES = _modules()
NAMES = {"ragidx." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}


@functools.cache
def _imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Modules of ragidx that a module imports, and whether it does so when it runs (not for types alone)."""
    return tuple(_read_imports(path))


def _read_imports(path: Path) -> Iterator[tuple[str, bool]]:
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = str(node.module)
            found = [whole if (whole := f"{module}.{alias.name}") in NAMES else module for alias in node.names]
        yield from ((name, id(node) not in for_types) for name in found if name.split(".")[0] == "ragidx")


def _package(name: str) -> str:
    """The package of a module, as MAY_IMPORT names it: the longest that it lists, or the room."""
    parts = name.split(".")[1:]
    known = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next(found for found in known if found in MAY_IMPORT or found in ROOMS)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_imports_only_what_its_package_may(name: str) -> None:
    own = _package(name)
    room = own.split(".")[0]
    if name.startswith(LEAVES[1]) or name in OLD_ADDRESSES:
        return
    may = MAY_IMPORT.get(own, set()) | BASE_OF_PIPELINES.get(name, set()) | {own}

    for imported, _ in _imports(NAMES[name]):
        if imported == "ragidx":
            continue
        package = _package(imported)
        outer = package.split(".")[0]
        if outer == room:
            assert package in may, f"{name} imports {imported}"
        else:
            assert ROOMS.index(outer) < ROOMS.index(room), f"{name} imports {imported}"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_imports_a_leaf(name: str) -> None:
    for leaf in LEAVES:
        if not name.startswith(leaf) and name not in OLD_ADDRESSES:
            assert not [imported for imported, _ in _imports(NAMES[name]) if imported.startswith(leaf)]


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: {i for i, runs in _imports(path) if runs and i in NAMES} for name, path in NAMES.items()}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for imported in graph[name]:
                walk(imported, (*trail, name))
            done.add(name)

    for name in graph:
        walk(name, ())


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {".".join(p.parent.relative_to(ROOT).parts) for p in MODULES if p.name == "__init__.py"}

    placed = {*MAY_IMPORT, *ROOMS, "pipelines.cli"}

    assert {p for p in packages if p not in placed and p.rpartition(".")[0] not in placed} == set()
    assert placed - packages == ({"pipelines.train.mini"} if not (ROOT / "pipelines/train/mini").exists() else set())


def test_no_folder_holds_more_than_fifteen_modules() -> None:
    held: dict[str, int] = {}
    for path in MODULES:
        if path.name != "__init__.py" and path.parent.name != "cli":
            folder = str(path.parent.relative_to(ROOT))
            held[folder] = held.get(folder, 0) + 1

    assert {folder: count for folder, count in held.items() if count > 15} == {}


@pytest.mark.slow
def test_a_module_is_not_named_after_a_package_that_it_imports() -> None:
    for path in MODULES:
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert path.stem not in imported


def test_every_folder_of_tests_is_collected(pytestconfig: pytest.Config) -> None:
    skipped = pytestconfig.getini("norecursedirs")
    folders = {file.parent for file in (ROOT / "tests").rglob("test_*.py")}

    assert [folder for folder in folders if any(fnmatch.fnmatch(folder.name, pattern) for pattern in skipped)] == []


def test_modules_and_tests_stay_short_enough_to_read() -> None:
    paths = [*MODULES, *TESTS.rglob("*.py")]

    long = {path.name: lines for path in paths if (lines := len(path.read_text("utf-8").splitlines())) > 400}

    assert long == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "code", ["import ragidx", "import ragidx.corpora.readers", "import ragidx.indexer.store.store"]
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
