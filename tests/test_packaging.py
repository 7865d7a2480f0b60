"""What is installed is what is here: every module and data file is in the package, within its size."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

import ragidx

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("corpora", "indexer", "retriever", "pipelines")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

pytestmark = pytest.mark.wheel


def test_the_tests_run_against_the_wheel_where_they_should() -> None:
    named = os.environ.get("RAGIDX_TEST_WHEEL")
    if not named:
        pytest.skip("this run is against the source")
    assert Path(ragidx.__file__).is_relative_to(ROOT / named)


def test_every_package_of_the_tree_is_installed() -> None:
    here = {p.parent.relative_to(ROOT) for room in ROOMS for p in (ROOT / room).rglob("__init__.py")}
    package = Path(ragidx.__file__).parent

    missing = {str(path) for path in here if not (package / path / "__init__.py").is_file()}

    assert len(here) > 20
    assert missing == set()


def test_every_module_imports() -> None:
    every = (name for _, name, _ in pkgutil.walk_packages(ragidx.__path__, "ragidx."))
    names = [name for name in every if name.split(".")[1] in ROOMS]

    assert len(names) > 180
    for name in names:
        package = name.rpartition(".")[2]  # the extra `test` has no mteb, and ray is not for every Python
        if not (package in ("mteb", "ray") and importlib.util.find_spec(package) is None):
            importlib.import_module(name)


@pytest.mark.parametrize("folder", ["corpora/sample", "indexer/models/mini", "indexer/models/mini-decoder"])
def test_every_data_file_is_in_the_package(folder: str) -> None:
    room, _, inner = folder.partition("/")
    here = {str(p.relative_to(ROOT / folder)) for p in (ROOT / folder).rglob("*") if p.is_file()}

    packed = Path(str(resources.files(f"ragidx.{room}") / inner))

    assert {str(p.relative_to(packed)) for p in packed.rglob("*") if p.is_file()} == here
    assert len(here) > 5


def test_the_bundled_model_stays_below_24_mb() -> None:
    folder = Path(str(resources.files("ragidx.indexer") / "models" / "mini"))

    assert sum(path.stat().st_size for path in folder.iterdir()) <= 24_000_000


def test_types_are_shipped() -> None:
    assert (Path(ragidx.__file__).parent / "py.typed").is_file()


def test_every_dependency_has_a_pin() -> None:
    pins = {
        re.split("[=<>]", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(each for listed in extras.values() for each in listed)]

    names = {re.split(r"[\[=<>; ]", name)[0].lower().replace("_", "-") for name in wanted} - {"ragidx"}

    assert names <= pins


def test_the_sample_is_as_large_as_promised() -> None:
    from ragidx.corpora.evalsets import load_qrels, load_queries
    from ragidx.corpora.left_out import RULE, Left, class_of
    from ragidx.corpora.readers.registry import documents
    from ragidx.corpora.records import Skip

    sample = Path(str(resources.files("ragidx.corpora") / "sample"))
    said: list[Skip | Left] = []
    found = {d.id: d for d in documents(sample / "documents", on_skip=said.append)}
    qrels = load_qrels(sample)

    assert {class_of(one.kind) for one in said if isinstance(one, Left)} == {RULE}  # all is read that a person sees
    assert all(isinstance(one, Left) for one in said)
    assert len(found) >= 120
    assert len(load_queries(sample)) == 60
    assert qrels.keys() == load_queries(sample).keys()
    assert {doc_id for judged in qrels.values() for doc_id in judged} <= found.keys()
    assert {grade for judged in qrels.values() for grade in judged.values()} == {1, 2}
    assert all(150 <= len(re.findall(r"\w+", d.text)) <= 650 for d in found.values())
