"""Postings at the edges: stemmers that are not installed, a full disk, writers that were killed."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from fault_reader import sign

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.ann.prefixes import is_prefix_of
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import blocks
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.ingest.options import index_options

from .postings_kit import make_index


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    return make_index(kit, tmp_path / "index")


def test_a_stemmer_that_is_not_known_is_refused_before_anything_is_encoded(tmp_path: Path, kit: Any) -> None:
    with pytest.raises(SpecError, match="unknown stemmer 'klingon'"):
        kit.writer(tmp_path / "index", index=IndexOptions("flat", lexical="klingon"))

    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("stemmer", ["klingon", "auto", "off"])
def test_a_spec_of_a_stemmer_that_is_not_known_ends_in_one_error(stemmer: str) -> None:
    """Of another version of the stemmers, for example: a search and a build end in an error of ragidx."""
    with pytest.raises(RagidxError):
        LexicalSpec(stemmer, "3.1.0", 1).make_analyzer()


@pytest.mark.parametrize("stemmer", ["klingon", "auto"])
def test_a_build_on_a_stemmer_that_is_not_known_ends_in_one_error(index: Path, kit: Any, stemmer: str) -> None:
    data = read_manifest(index).to_json()
    data["lexical"]["stemmer"], data["index"]["lexical"] = stemmer, "auto"
    sign(index, data)

    with pytest.raises(RagidxError):
        kit.build(index, {"new": ["x"]}, index=IndexOptions("flat"))


def test_the_lexical_option_of_an_index_is_kept_where_no_other_is_asked_for() -> None:
    """A build, a reindex and a shrink of an index ask `index_options` for what it has."""
    own = IndexOptions("flat", lexical="english")

    assert index_options(own, None) == own


def test_a_disk_that_fills_where_terms_are_sorted_ends_in_one_error(tmp_path: Path) -> None:
    """The temporary file is written at `flush` and `close`, too, and these are not in `atomic.writing`."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(RagidxError, match="cannot write"):
            write_postings(
                tmp_path / "x.arrow", blocks([(f"word{number} twice", "") for number in range(50)], Analyzer())
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_copy_that_another_process_just_removed_is_no_copy(index: Path, kit: Any) -> None:
    store = Store.open(index)
    store.search(kit.queries(1), 1, dim=3)
    path, *_ = index.glob("segments/00000001-0000/prefix-*")
    path.unlink()

    assert not is_prefix_of(path, store.segments[0].exact_index)


def test_what_a_killed_writer_of_postings_left_is_removed(index: Path, kit: Any) -> None:
    left = index / "segments" / "00000001-0000" / ".lexical-00000003.arrow.1-abcd.tmp"
    left.write_bytes(b"runs")

    kit.writer(index, index=IndexOptions("flat", lexical="none")).close()

    assert not left.exists()
    assert verify(index) == []
