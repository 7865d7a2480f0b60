"""Names in Unicode form NFD, as a Mac gives them, find what files have in NFC; a program's ids are as it gave them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.field_settings import setting_for
from ragidx.corpora.ignore import IgnoreRules
from ragidx.corpora.records import known_form
from ragidx.pipelines.maintain.delete import delete

NFC = "Übung.md"
NFD = unicodedata.normalize("NFD", NFC)


@pytest.fixture
def index(tmp_path: Path) -> ragidx.Index:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / NFD).write_text("The ferry comes in at nine.")
    (folder / "other.md").write_text("The mill stands on the hill.")
    return ragidx.build(folder, tmp_path / "index")


def test_documents_and_chunks_are_found_by_either_form(index: ragidx.Index) -> None:
    (document,) = index.get([NFD])
    (chunk,) = index.chunks(document=NFD)

    assert document.id == chunk.doc_id == NFC
    assert [one.id for one in index.chunks([unicodedata.normalize("NFD", chunk.id)])] == [chunk.id]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (f'file.name == "{NFD}"', 1),
        (f'file.name != "{NFD}"', 1),
        (f'doc_id == "{NFD}"', 1),
        (f'doc_id not in ("{NFD}", "x")', 1),
        (f'file.path starts with "{NFD[:3]}"', 1),
        (f'not doc_id contains "{NFD[:3]}"', 1),
        (f'file.name == "{NFC}" and file.ext == ".md"', 1),
    ],
)
def test_conditions_on_names_find_either_form(index: ragidx.Index, where: str, found: int) -> None:
    assert index.count(where) == found


def test_a_deletion_takes_either_form(index: ragidx.Index) -> None:
    index.add([ragidx.Document(NFD, "The pilot waits.")])

    report = delete(index.path, ids=[unicodedata.normalize("NFD", NFC)])

    assert report.documents == [NFD]
    assert delete(index.path, ids=[NFD]).documents == [NFC]


def test_globs_are_compared_in_one_form() -> None:
    assert IgnoreRules([NFD]).check(NFC)
    assert setting_for((f"{NFD}=body",), NFC) == "body"


def test_a_name_that_is_known_as_it_is_stays_so() -> None:
    assert known_form(NFD, {NFC, NFD}.__contains__) == NFD
    assert known_form(NFD, {NFC}.__contains__) == NFC
    assert known_form(NFD, set().__contains__) == NFD
