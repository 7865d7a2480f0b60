"""Any changes of an index in any order, a killed one among them, against dictionaries of what it should hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import ragidx

WORDS = [
    "owl",
    "mill",
    "heron",
    "barn",
    "lease",
    "tower",
    "violin",
    "glacier",
    "orchard",
    "compass",
    "parrot",
    "tunnel",
]
IDS = st.sampled_from([f"d{number}" for number in range(8)])
FILES = st.sampled_from([f"f{number}.txt" for number in range(5)])
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join)
VALUES = st.one_of(st.none(), st.integers(-5, 5))
DOCUMENTS = st.dictionaries(IDS, st.tuples(TEXTS, VALUES), min_size=1, max_size=4)
Content = dict[str, tuple[str, object]]

KILLED = """
import sys
from pathlib import Path
import ragidx
from tests.indexer.faults import Killed
index, at, what = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with ragidx.Index(index) as opened, Killed(index, at):
    if what == "add":
        opened.add([ragidx.Document("killed", "the owl of the killed process")])
    elif what == "delete":
        opened.delete([one.id for one in opened.documents() if one.id.startswith("d")][:2])
    elif what == "build":
        opened.build()
    else:
        opened.compact(everything=True)
"""


def documents(given: Content) -> list[ragidx.Document]:
    return [
        ragidx.Document(name, text, {} if value is None else {"where": value}) for name, (text, value) in given.items()
    ]


def content(index: ragidx.Index) -> Content:
    found = [(one.id, (one.text, one.metadata.get("where"))) for one in index.documents()]
    assert len(dict(found)) == len(found)
    return dict(found)


class Changes(RuleBasedStateMachine):
    """An index of a folder and of a program's documents; `held` is what it should hold, `kept` that of generations."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.corpus, self.path = self.folder / "corpus", self.folder / "index"
        self.corpus.mkdir()
        self.files: dict[str, str] = {}

    @initialize(text=TEXTS)
    def build_it(self, text: str) -> None:
        self.write("f0.txt", text)
        self.index = ragidx.build(self.corpus, self.path, filter=ragidx.FilterSpec(dim=32))
        self.held: Content = {name: (text, None) for name, text in self.files.items()}
        self.kept = {self.index.generation: dict(self.held)}
        self.other = ragidx.Index(self.path)
        self.seen = dict(self.held)

    def changed(self) -> None:
        self.kept[self.index.generation] = dict(self.held)

    @rule(name=FILES, text=TEXTS)
    def write(self, name: str, text: str) -> None:
        self.files[name] = text
        (self.corpus / name).write_text(text)

    @precondition(lambda self: len(self.files) > 1)
    @rule(name=FILES)
    def remove(self, name: str) -> None:
        if self.files.pop(name, None) is not None:
            (self.corpus / name).unlink()

    @rule(rebuild=st.booleans())
    def build(self, rebuild: bool) -> None:
        self.index.build(rebuild=rebuild, allow_removal=True)
        self.held = {name: one for name, one in self.held.items() if not name.endswith(".txt")}
        self.held |= {name: (text, None) for name, text in self.files.items()}
        self.changed()

    @rule(given=DOCUMENTS)
    def add(self, given: Content) -> None:
        self.index.add(documents(given))
        self.held |= given
        self.changed()

    @rule(names=st.sets(IDS, min_size=1))
    def delete(self, names: set[str]) -> None:
        self.index.delete(sorted(names), missing="skip")
        self.held = {name: one for name, one in self.held.items() if name not in names}
        self.changed()

    @rule(given=DOCUMENTS, names=st.sets(IDS), compact=st.booleans())
    def batch(self, given: Content, names: set[str], compact: bool) -> None:
        with self.index.batch(compact=compact) as batch:
            batch.delete(sorted(names), missing="skip")
            batch.add(documents(given))
        self.held = {name: one for name, one in self.held.items() if name not in names} | given
        self.changed()

    @rule(everything=st.booleans())
    def compact(self, everything: bool) -> None:
        self.index.compact(everything=everything)
        self.changed()

    @rule(dim=st.integers(8, 40))
    def shrink(self, dim: int) -> None:
        if dim < self.index.info().dim:
            self.index.shrink(dim)
            self.changed()

    @rule(back=st.integers(1, 4))
    def roll_back(self, back: int) -> None:
        kept = [one.generation for one in self.index.history()]
        generation = kept[-1 - min(back, len(kept) - 1)]
        if generation != self.index.generation:
            self.index.rollback(generation)
            self.held = dict(self.kept[generation])
            self.changed()

    @rule(at=st.integers(0, 60), what=st.sampled_from(["add", "delete", "build", "compact"]))
    def be_killed(self, at: int, what: str) -> None:
        before = self.index.generation
        root = Path(ragidx.__file__).resolve().parent
        places = os.pathsep.join([str(root), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(self.path), str(at), what],
            env=os.environ | {"PYTHONPATH": places},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, -9), done.stderr
        self.index.refresh()
        if self.index.generation == before:
            return
        expected = dict(self.held)
        if what == "add":
            expected["killed"] = ("the owl of the killed process", None)
        elif what == "delete":
            gone = [name for name in self.held if name not in content(self.index)]
            assert 1 <= len(gone) <= 2
            assert all(name.startswith("d") for name in gone)
            expected = {name: one for name, one in self.held.items() if name not in gone}
        elif what == "build":
            expected = {name: one for name, one in self.held.items() if not name.endswith(".txt")}
            expected |= {name: (text, None) for name, text in self.files.items()}
        self.held = expected
        self.changed()

    @rule()
    def refresh(self) -> None:
        assert content(self.other) == self.seen
        self.other.refresh()
        self.seen = dict(self.held)

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = ragidx.Index(self.path)

    @rule(word=st.sampled_from(WORDS))
    def find(self, word: str) -> None:
        having = {name for name, (text, _) in self.held.items() if word in text.split()}
        ranked = self.index.rank_documents([word], 50, mode="lexical")
        assert {name for name, _ in ranked[0]} == having
        near = self.index.rank_documents([word], 50, mode="dense")
        assert {name for name, _ in near[0]} == set(self.held)

    @invariant()
    def it_holds_what_it_should(self) -> None:
        if hasattr(self, "held"):
            assert content(self.index) == self.held
            assert self.index.count() == len(self.held)

    def teardown(self) -> None:
        if hasattr(self, "held"):
            assert self.index.verify() == []
            with ragidx.Index(self.path) as opened:
                assert content(opened) == self.held
            self.index.close()
            self.other.close()
        shutil.rmtree(self.folder)


@pytest.mark.slow
def test_an_index_holds_what_any_changes_leave() -> None:
    run_state_machine_as_test(
        Changes,
        settings=settings(
            max_examples=int(os.environ.get("RAGIDX_TEST_EXAMPLES", "8")),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
