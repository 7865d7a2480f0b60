"""Imports point one way, between rooms and between the packages inside them; nothing imports a leaf; sizes are bounded.

The order is that of docs/design.md: a package may import those before it, never those behind it.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ragidx

ROOT = Path(ragidx.__file__).resolve().parent
TESTS = Path(__file__).resolve().parent
ROOMS = ["corpora", "indexer", "retriever", "pipelines"]
CLI = "pipelines.cli"
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers"}

# What each package may import of its own room; "" is the room's own modules.
MAY_IMPORT: dict[str, set[str]] = {
    "corpora": set(),
    "corpora.readers.office": {"corpora"},
    "corpora.readers": {"corpora", "corpora.readers.office"},
    "corpora.readers.packed": {"corpora", "corpora.readers", "corpora.readers.office"},
    "corpora.vectors": {"corpora", "corpora.readers"},
    "indexer": set(),
    "indexer.models.gguf": {"indexer"},
    "indexer.models": {"indexer", "indexer.models.gguf"},
    "indexer.prompts": {"indexer", "indexer.models", "indexer.models.gguf"},
    "indexer.filters": {"indexer", "indexer.models"},
    "indexer.encoders": {
        "indexer",
        "indexer.models",
        "indexer.models.gguf",
        "indexer.prompts",
        "indexer.filters",
    },
    "indexer.ann": {"indexer"},
    "indexer.lexical": {"indexer"},
    "indexer.store": {"indexer", "indexer.ann", "indexer.lexical"},
    "indexer.writing": {"indexer", "indexer.ann", "indexer.lexical", "indexer.store"},
    "retriever.where": set(),
    "retriever": {"retriever.where"},
}
# Of the pipelines each may import those above it, but `APART` from each other.
PIPELINES = [
    "pipelines.base",
    "pipelines.ingest.workers",
    "pipelines.ingest",
    "pipelines.integrations.engines",
    "pipelines.integrations",
    "pipelines.vectors",
    "pipelines.distribute",
    "pipelines.plan",
    "pipelines.maintain",
    "pipelines.experiments",
    "pipelines.experiments.evaluate.sources",
    "pipelines.experiments.evaluate",
    "pipelines.experiments.lens",
    "pipelines.experiments.train",
    "pipelines.experiments.train.decoders",
    "pipelines.experiments.tune",
    "pipelines.experiments.trials",
    "pipelines.doctor",
    "pipelines.integrations.frameworks",
    "pipelines.serve",
    "pipelines",  # the handle
    CLI,
]
APART = [("pipelines.experiments", "pipelines.integrations"), ("pipelines.integrations", "pipelines.experiments")]
HANDLE = "ragidx.pipelines.index"
FRAMEWORKS = "ragidx.pipelines.integrations.frameworks."

MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
NAMES = {"ragidx." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}


@functools.cache
def _faces() -> dict[str, str]:
    """The module of each name that a package shows."""
    return {
        f"{name.removesuffix('.__init__')}.{alias.name}": str(node.module)
        for name, path in NAMES.items()
        if name.endswith(".__init__")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@functools.cache
def _imports(path: Path) -> list[tuple[str, bool]]:
    """Modules of ragidx that a module imports, and whether it does so when it runs (not for types alone)."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    imports: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = str(node.module)
            wholes = [f"{module}.{alias.name}" for alias in node.names]
            found = [whole if whole in NAMES else _faces().get(whole, module) for whole in wholes]
        imports += ((name, id(node) not in for_types) for name in found if name.split(".")[0] == "ragidx")
    return imports


def _package(name: str) -> str:
    """The package of a module: the longest that the lists have, or the room."""
    parts = name.split(".")[1:]
    known = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(found for found in known if found in MAY_IMPORT or found in PIPELINES or found in ROOMS)


def _may_import(own: str) -> set[str]:
    if own not in PIPELINES:
        return MAY_IMPORT.get(own, set())
    above = PIPELINES[: PIPELINES.index(own)]
    return {one for one in above if not any(own.startswith(a) and one.startswith(b) for a, b in APART)}


def test_a_module_imports_only_what_its_package_may() -> None:
    for name, path in NAMES.items():
        own = _package(name)
        inner = set(ROOMS[: ROOMS.index(own.split(".")[0])])
        for imported in {imported for imported, _ in _imports(path)} - {"ragidx"}:
            package = _package(imported)
            is_shown = name.endswith(".__init__") and package.startswith(f"{own}.")  # a package's face has its names
            allowed = package in _may_import(own) | {own} or package.split(".")[0] in inner or is_shown
            assert allowed, f"{name} imports {imported}"


def test_the_handle_imports_the_packages_of_its_room_only_when_it_is_asked() -> None:
    tree = ast.parse(NAMES[HANDLE].read_text("utf-8"))

    at_once = {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}

    assert {name for name in at_once if name.startswith("ragidx.pipelines")} == set()


def test_a_framework_is_served_with_the_public_names_alone() -> None:
    adapters = {name: path for name, path in NAMES.items() if name.startswith(FRAMEWORKS)}

    assert {imported for path in adapters.values() for imported, _ in _imports(path)} - adapters.keys() == {"ragidx"}


def test_no_module_imports_itself_through_others() -> None:
    TopologicalSorter(
        {name: {i for i, runs in _imports(path) if runs and i in NAMES} for name, path in NAMES.items()}
    ).prepare()


def test_no_folder_imports_itself_through_others() -> None:
    graph: dict[str, set[str]] = {}
    for name, path in NAMES.items():
        inside = _folder(name)
        graph.setdefault(inside, set()).update({_folder(imported) for imported, _ in _imports(path)} - {inside})

    TopologicalSorter(graph).prepare()


def _folder(name: str) -> str:
    """Of a module; the face of a package is a place of its own."""
    return name if name.endswith(".__init__") or name not in NAMES else name.rpartition(".")[0]


def test_only_the_store_and_what_writes_it_know_segments() -> None:
    """Elsewhere a row is one number; the segments that a manifest counts may be described."""
    inside = ("ragidx.indexer.store.", "ragidx.indexer.writing.")
    reads = [
        f"{name}: {ast.unparse(node)}"
        for name, path in NAMES.items()
        if not name.startswith(inside)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr in ("segments", "dead")
    ]

    assert [read for read in reads if not read.endswith("manifest.segments")] == []


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {".".join(p.parent.relative_to(ROOT).parts) for p in MODULES if p.name == "__init__.py"}

    placed = {*MAY_IMPORT, *PIPELINES, *ROOMS}

    assert {p for p in packages if p not in placed and p.rpartition(".")[0] not in placed} == set()
    assert placed - packages == set()


def test_no_public_class_name_has_two_homes() -> None:
    """A framework's conventions name its adapters: those of several begin alike."""
    homes: dict[str, list[str]] = {}
    for name, path in NAMES.items():
        for node in ast.parse(path.read_bytes()).body:
            is_adapter = name.startswith(FRAMEWORKS) and isinstance(node, ast.ClassDef) and node.name[:6] == "Ragidx"
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_adapter:
                homes.setdefault(node.name, []).append(name)

    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


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


FACES = [
    path
    for path in [ROOT / "__init__.py", *MODULES]
    if path.name == "__init__.py" and "__all__ = [" in path.read_text("utf-8")
]


@pytest.mark.slow
@pytest.mark.parametrize("path", FACES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_face_shows_the_same_names_to_programs_and_to_type_checkers(path: Path) -> None:
    face = importlib.import_module(".".join(("ragidx", *path.parent.relative_to(ROOT).parts)))
    typed = {
        alias.name: importlib.import_module(str(node.module))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in face.__all__
    }

    assert [name for name in face.__all__ if not hasattr(face, name)] == []
    assert [name for name, home in typed.items() if getattr(face, name) is not getattr(home, name)] == []


def test_every_folder_of_tests_is_collected(pytestconfig: pytest.Config) -> None:
    skipped = pytestconfig.getini("norecursedirs")
    folders = {file.parent for file in (ROOT / "tests").rglob("test_*.py")}

    assert [folder for folder in folders if any(fnmatch.fnmatch(folder.name, pattern) for pattern in skipped)] == []


def test_modules_and_tests_stay_short_enough_to_read() -> None:
    paths = [*MODULES, *TESTS.rglob("*.py")]

    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    del lengths[ROOT / "pipelines" / "index.py"]  # the handle's members, with all their options

    most = {path: 450 if path.name.startswith("test_") else 400 for path in lengths}
    assert {path: lines for path, lines in lengths.items() if lines > most[path]} == {}


@pytest.mark.wheel
@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import ragidx",
        "import ragidx.corpora.readers.registry",
        "import ragidx.indexer.store.store",
        "import ragidx.pipelines.cli.query, ragidx.pipelines.index",
    ],
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    heavy = HEAVY - ({"faiss"} if "store" in code or "index" in code else set())
    if "query" in code:  # reads no file of a corpus
        heavy |= {"ragidx.corpora.readers.registry", "ragidx.corpora.sources", "pathspec"}

    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(sorted({heavy!r} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"


@pytest.mark.wheel
def test_the_public_names_are_there() -> None:
    for name in ragidx.__all__:
        assert getattr(ragidx, name) is not None
    with pytest.raises(AttributeError, match="module 'ragidx' has no attribute 'nothing'"):
        ragidx.nothing  # noqa: B018
