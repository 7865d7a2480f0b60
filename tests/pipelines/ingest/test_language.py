"""`ragidx build --language`: which language is named, when it is none, and what a change of the setting does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.corpora.language import language_finder
from ragidx.indexer.store import Store
from ragidx.indexer.store.generations import committed

TEXTS = {
    "en": "The lease was signed in Bergen on 3 May, and the rent is due on the first day of the month.",
    "de": "Der Vertrag wurde in Bergen unterzeichnet, und die Miete ist am ersten Tag des Monats fällig.",
    "ja": "契約は五月三日にベルゲンで署名された。家賃は毎月一日に支払われる。",
}
NONE = ["", "1234 5678", "Budget", "id,name\n1,foo\n2,bar", "\ud800"]


@pytest.fixture
def find() -> Callable[[str], str | None]:
    pytest.importorskip("py3langid", reason="needs the extra 'language'")
    return language_finder()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": code, "text": text} for code, text in TEXTS.items()]
    rows += [
        {
            "id": "own",
            "text": "Die Brücke über den Fluss ist alt, und niemand darf sie noch betreten.",
            "language": "Swiss",
        },
        {"id": "none", "text": "1234 5678"},
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def languages(index: Path) -> dict[str, object]:
    store = Store.open(index)
    rows = store.rows(range(store.n_rows))
    return {row.doc_id.partition("#")[2]: row.metadata.get("language") for row in rows}


def test_a_language_is_named_where_one_is_likely(find: Callable[[str], str | None]) -> None:
    assert {code: find(text) for code, text in TEXTS.items()} == {code: code for code in TEXTS}
    assert [find(text) for text in NONE] == [None] * len(NONE)


def test_the_beginning_of_a_text_decides(find: Callable[[str], str | None]) -> None:
    assert find(TEXTS["en"] * 11 + TEXTS["de"] * 100) == "en"


@pytest.mark.wheel
@pytest.mark.slow
def test_documents_get_their_language_and_keep_one_of_their_own(
    corpus: Path, tmp_path: Path, find: Callable[[str], str | None]
) -> None:
    ragidx.build(corpus, tmp_path / "index", language=True)

    expected = {**{code: code for code in TEXTS}, "own": "Swiss", "none": None}
    assert languages(tmp_path / "index") == expected
    (hit,) = ragidx.Index(tmp_path / "index").search("rent", 9, where='language == "de"')
    assert hit.doc_id.endswith("#de")


@pytest.mark.slow
def test_the_setting_is_kept_and_a_change_writes_all_documents_again_but_encodes_none(
    corpus: Path, tmp_path: Path, find: Callable[[str], str | None]
) -> None:
    index = tmp_path / "index"
    ragidx.build(corpus, index)
    added = ragidx.build(corpus, index, language=True).report
    same = ragidx.build(corpus, index).report
    with corpus.open("a") as stream:
        stream.write(json.dumps({"id": "more", "text": TEXTS["de"] + " Danach nicht."}) + "\n")
    more = ragidx.build(corpus, index).report
    named = languages(index)
    removed = ragidx.build(corpus, index, language=False).report

    assert (added.n_changed, added.n_encoded, added.n_chunks_reused) == (5, 0, 5)
    assert not same.committed
    assert (more.n_added, more.n_unchanged) == (1, 5)
    assert (named["en"], named["more"]) == ("en", "de")
    assert (removed.n_changed, removed.n_encoded) == (6, 0)
    assert committed(index).notes["language"] is False
    assert set(languages(index).values()) == {None, "Swiss"}


def test_without_the_package_the_extra_is_named_before_anything_is_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)

    with pytest.raises(RagidxError, match=r"`language` needs py3langid, .*\n.*'\.\[language\]'"):
        ragidx.build(corpus, tmp_path / "index", language=True)

    assert not (tmp_path / "index").exists()
