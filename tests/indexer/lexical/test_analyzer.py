"""Texts to terms: known forms first, then properties of any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.lexical.analyzer import MAX_TOKEN, Analyzer, tokens
from ragidx.indexer.lexical.stemming import stemmer

PLAIN = Analyzer()
ENGLISH = Analyzer(stemmer("english"))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("... -- !?", []),
        ("The end. Next", ["the", "end", "next"]),
        ("don't", ["don", "t"]),
        ("3.14", ["3.14", "3", "14"]),
        ("foo_bar.py", ["foo_bar.py", "foo", "bar", "py"]),
        ("parseHTTPResponse", ["parsehttpresponse", "parse", "http", "response"]),
        ("wait...what", ["wait...what", "wait", "what"]),
        ("_private", ["_private"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("ﬁne ①", ["fine", "1"]),
        ("naïve café", ["naïve", "café"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("한국어", ["한국어"]),
    ],
)
def test_the_terms_of_a_text(text: str, terms: list[str]) -> None:
    assert sorted(PLAIN(text)) == sorted(terms)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("我喜欢自然", ["我喜", "喜欢", "欢自", "自然"]),
        ("火", ["火"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("ﾀﾜｰ", ["タワ", "ワー"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("ພາສາ", ["ພາ", "າສ", "ສາ"]),
        ("ភាសា", ["ភា", "ាស", "សា"]),
        ("မြန်", ["မြ", "ြန", "န်"]),
        ("iPhone手机", ["iphone", "i", "phone", "手机"]),
        ("你好，世界。", ["你好", "世界"]),
    ],
)
def test_scripts_without_spaces_are_pairs_of_characters(text: str, terms: list[str]) -> None:
    assert sorted(PLAIN(text)) == sorted(terms)


def test_words_and_parts_are_stemmed_but_not_whole_paths() -> None:
    assert ENGLISH("running") == ENGLISH("Runs") == ["run"]
    assert ENGLISH("max_rows") == ["max_rows", "max", "row"]
    assert ENGLISH("rowCounts") == ["rowcount", "row", "count"]
    assert set(ENGLISH("rowcounts")) <= set(ENGLISH("rowCounts"))


def test_a_long_token_is_cut_and_still_found() -> None:
    assert PLAIN("x" * 100_000) == ["x" * MAX_TOKEN]


def test_a_question_without_words_has_no_terms() -> None:
    assert PLAIN("\u200b \u00ad \u2026 \U0001f600") == []


@given(st.text())
def test_any_text_has_terms_that_can_be_stored(text: str) -> None:
    for term in PLAIN(text):
        assert term
        assert len(term.encode("utf-8", "surrogatepass")) <= 4 * 3 * MAX_TOKEN


@pytest.mark.slow
@given(st.lists(st.text(alphabet="abcXYZ09_.é手 -", min_size=1), min_size=1))
def test_the_words_of_two_texts_are_those_of_both_together(parts: list[str]) -> None:
    apart = [term for part in parts for term in PLAIN(part)]

    assert sorted(PLAIN(" ".join(parts))) == sorted(apart)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_table_for_ascii_and_the_rule_for_unicode_agree(text: str) -> None:
    assert {term for token in tokens(text) for term in PLAIN.terms(token)} == {
        term for token in tokens(text + " é") for term in PLAIN.terms(token)
    } - {"é"}
