"""Postings that are damaged, missing or not those of their segment, with checksums that fit: each is one error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_operations import small_indexes
from fault_reader import plant, sign

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

from .postings_kit import FIRST, SECOND, Term, file_of, forge, make_index, terms_of


@pytest.fixture(scope="module")
def pristine(kit: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(kit, tmp_path_factory.mktemp("lexical-damage") / "index")


@pytest.fixture
def index(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "index")


def named(index: Path, name: str) -> str:
    """What `verify` says of this file, and of no other."""
    (line,) = verify(index)
    path, _, rest = line.partition(": the file is damaged: ")
    assert path == str(index / name)
    return rest.partition("; ")[0]


def test_the_file_holds_these_terms(index: Path) -> None:
    """Those of its heading, as `a > 0`, and of its text."""
    assert terms_of(index, FIRST) == [
        ("", [1, 1, 1], [4, 3, 4]),
        ("0", [1], [1]),
        ("1", [2], [1]),
        ("2", [3], [1]),
        ("a", [1, 1, 1], [1, 1, 1]),
        ("b", [1], [1]),
        ("c", [1, 1, 1], [1, 1, 1]),
        ("d", [3], [1]),
    ]
    forge(index, terms_of(index, FIRST))
    assert verify(index) == []


def test_a_missing_file_is_named(index: Path) -> None:
    (index / FIRST).unlink()

    with pytest.raises(IndexFormatError, match="the file is missing") as caught:
        Store.open(index)
    assert caught.value.where == str(index / FIRST)


@pytest.mark.parametrize("content", [b"", b"no arrow", file_of([("", [1], [1])])[:-20]])
def test_what_is_no_file_of_arrow_is_named_at_open(index: Path, content: bytes) -> None:
    plant(index, FIRST, content)

    with pytest.raises(IndexFormatError, match="the file is damaged") as caught:
        Store.open(index)
    assert caught.value.where == str(index / FIRST)
    named(index, FIRST)


def change_manifest(index: Path, change: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads((index / "manifest.json").read_bytes())
    change(data)
    sign(index, data)
    with pytest.raises(IndexFormatError) as caught:
        Store.open(index)
    return caught.value.message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda data: data["segments"][0]["files"].pop(Path(FIRST).name),
            "segment 00000001-0000: it has postings, or none, against the field 'lexical'",
        ),
        (
            lambda data: data.update(lexical=None),
            "segment 00000001-0000: it has postings, or none, against the field 'lexical'",
        ),
        (
            lambda data: data["segments"][0]["files"].update(
                {"lexical-00000009.arrow": data["segments"][0]["files"][Path(FIRST).name]}
            ),
            "segment 00000001-0000: 'lexical-00000009.arrow' is unknown",
        ),
        (
            lambda data: data["segments"][0]["files"].update(
                {"lexical-../x.arrow": data["segments"][0]["files"][Path(FIRST).name]}
            ),
            "segment 00000001-0000: 'lexical-../x.arrow' is unknown",
        ),
        (lambda data: data["lexical"].update(stemmer="../x"), "lexical.stemmer: '../x' is not allowed there"),
        (
            lambda data: data["lexical"].update(analyzer=0),
            "lexical.analyzer: 0 is not an integer from 1 to 9007199254740992",
        ),
        (lambda data: data["index"].pop("lexical"), "index: 'lexical' is missing"),
    ],
)
def test_a_manifest_against_its_postings_is_refused(
    index: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    assert change_manifest(index, change) == f"the manifest is damaged: {reason}"


@pytest.mark.parametrize(("name", "other"), [(FIRST, SECOND), (SECOND, FIRST)])
def test_postings_of_another_segment_are_named_at_open(index: Path, name: str, other: str) -> None:
    plant(index, name, (index / other).read_bytes())

    assert named(index, name) == "it was made of the texts of another segment"
    with pytest.raises(IndexFormatError, match="of the texts of another segment") as caught:
        Store.open(index)
    assert caught.value.where == str(index / name)


FORGED: dict[str, tuple[Callable[[list[Term]], list[Term]], str | None, str]] = {  # a term that cannot be asked for
    "terms unsorted": (lambda terms: [terms[0], *terms[:0:-1]], "c", "its terms are not sorted"),
    "a term twice": (lambda terms: [*terms, terms[-1]], "c", "its terms are not sorted"),
    "a row out of range": (
        lambda terms: [*terms[:-1], ("d", [4], [1])],
        "d",
        "the term 'd' has rows or counts that cannot be",
    ),
    "a row far out of range": (
        lambda terms: [*terms[:-1], ("d", [2**32 - 1], [1])],
        "d",
        "the term 'd' has rows or counts that cannot be",
    ),
    "a row twice": (lambda terms: [*terms[:-1], ("d", [3, 0], [1, 1])], "d", "the term 'd' has rows or counts"),
    "no count": (lambda terms: [*terms[:-1], ("d", [3], [0])], "d", "the term 'd' has rows or counts that cannot be"),
    "fewer counts than rows": (
        lambda terms: [*terms[:-1], ("d", [2, 1], [1])],
        "c",
        "a term has more rows than counts, or fewer",
    ),
    "no row": (lambda terms: [*terms[:-1], ("d", [], [])], "c", "a term has no row"),
    "no term": (lambda terms: [(None, *terms[0][1:]), *terms[1:]], "c", "a batch has empty cells"),
    "a higher count": (lambda terms: [*terms[:-1], ("d", [3], [2])], None, "its counts do not add up to the lengths"),
    "another row": (lambda terms: [*terms[:-1], ("d", [2], [1])], None, "its counts do not add up to the lengths"),
    "a term less": (lambda terms: terms[:-1], None, "its counts do not add up to the lengths of the rows"),
    "no lengths": (lambda terms: terms[1:], None, "it has no lengths of rows"),
    "lengths of fewer rows": (lambda terms: [("", [1], [4]), *terms[1:]], None, "its counts do not add up"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_file_with_a_checksum_that_fits_is_named(index: Path, forged: str) -> None:
    change, term, reason = FORGED[forged]

    forge(index, change(terms_of(index, FIRST)))

    assert named(index, FIRST).startswith(reason)
    if term is not None:
        with pytest.raises(IndexFormatError, match="the file is damaged") as caught:
            Store.open(index).segments[0].postings.find(term)
        assert caught.value.where == str(index / FIRST)


BATCHES: dict[str, tuple[Callable[[list[Term]], list[list[Term]]], str]] = {
    "unsorted across batches": (
        lambda terms: [terms[4:], terms[:4]],
        "the terms of batch 1 do not follow those before",
    ),
    "a term in two batches": (lambda terms: [terms[:5], terms[4:]], "the terms of batch 1 do not follow those before"),
    "a batch without a term": (
        lambda terms: [terms[:4], [(None, *terms[4][1:]), *terms[5:]]],
        "a batch has empty cells",
    ),
}


@pytest.mark.parametrize("forged", BATCHES)
def test_a_forged_file_of_many_batches_is_named(index: Path, forged: str) -> None:
    """And no term is answered wrongly: each has its own rows, or the file is named."""
    split, reason = BATCHES[forged]
    right = {term: np.cumsum(gaps) - 1 for term, gaps, _ in terms_of(index, FIRST)}

    forge(index, *split(terms_of(index, FIRST)))

    assert named(index, FIRST) == reason
    postings = Store.open(index).segments[0].postings
    assert postings is not None
    for term, rows in right.items():
        try:
            found = postings.find(str(term))
        except IndexFormatError as fault:
            assert fault.where == str(index / FIRST)  # noqa: PT017
        else:
            assert found is not None, term
            assert found.rows.tolist() == rows.tolist()


@pytest.mark.parametrize("damage", ["not finite", "cut", "empty"])
def test_moments_that_cannot_be_are_named_when_they_are_read(tmp_path: Path, kit: Any, damage: str) -> None:
    index, name = tmp_path / "index", "segments/00000001-0000/moments-00000001.bin"
    with small_indexes():
        kit.build(index, {"a": ["b", "c", "d"]})
    data = (index / name).read_bytes()
    damaged = {"not finite": data[:-8] + np.float64(np.inf).tobytes(), "cut": data[:-8], "empty": b""}
    plant(index, name, damaged[damage])

    named(index, name)
    with pytest.raises(IndexFormatError, match="the file is damaged") as caught:
        _ = Store.open(index).segments[0].moments
    assert caught.value.where == str(index / name)
