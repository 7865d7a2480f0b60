"""For tests of readers: one call that reads a corpus and collects what was left out."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ragidx.corpora.left_out import Left
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.registry import documents
from ragidx.corpora.records import Document, Skip
from ragidx.corpora.sources import sources

DEFAULTS = ReadOptions()


@dataclass
class Reading:
    """What came out of a corpus."""

    documents: list[Document] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [document.id for document in self.documents]

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        return [(skip.where, skip.reason) for skip in self.skips]

    @property
    def kinds(self) -> dict[str, int]:
        """What was left out, by kind."""
        return {one.kind: sum(other.count for other in self.left if other.kind == one.kind) for one in self.left}


def reading(corpus: Path | str, options: ReadOptions = DEFAULTS, **globs: list[str]) -> Reading:
    """All documents of a corpus, all skips, and what was left out."""
    found = Reading()

    def note(one: Skip | Left) -> None:
        (found.left if isinstance(one, Left) else found.skips).append(one)

    found.documents += documents(corpus, options, on_skip=note, **globs)
    return found


def walk(corpus: Path | str, **globs: list[str]) -> tuple[list[str], dict[str, str]]:
    """Names of the files found, and the reason by what was left out."""
    skips: list[Skip] = []
    names = [source.name for source in sources(corpus, on_skip=skips.append, **globs)]
    return names, {skip.where: skip.reason for skip in skips}


def plant(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


ReadBytes = Callable[..., Reading]


@pytest.fixture
def read_bytes(tmp_path: Path) -> ReadBytes:
    """Write a file of a name with some bytes, and read it as a corpus of one file."""

    def write_and_read(name: str, data: bytes | str, options: ReadOptions = DEFAULTS) -> Reading:
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return reading(path, options)

    return write_and_read


@pytest.fixture
def read_stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Reading]:
    """Read standard input that holds some bytes."""

    def feed_and_read(data: bytes) -> Reading:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return reading("-")

    return feed_and_read
