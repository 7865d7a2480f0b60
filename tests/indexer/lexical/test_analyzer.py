"""Texts to terms: known forms first, then properties of any text."""

from __future__ import annotations

import unicodedata

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
        ("foo_bar.py", ["foobar.py", "foo", "bar", "py"]),
        ("parseHTTPResponse", ["parsehttpresponse", "parse", "http", "response"]),
        ("wait...what", ["wait", "what"]),
        ("_private __init__", ["private", "init"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("snake_case", ["snakecase", "snake", "case"]),
        ("ERR_TLS_0x1F", ["errtls0x1f", "err", "tls", "0x1f", "0x1", "f"]),
        ("v1.2.3", ["v1.2.3", "v1", "2", "3"]),
        ("AR-7; AR 7", ["ar7", "ar", "7", "ar", "7"]),
        ("2026-07-01", ["2026-07-01", "2026", "07", "01"]),
        ("C++17, C#; in .NET!", ["c++", "c", "17", "c#", "c", "in", ".net", "net"]),
        ("a+b #tag --flag x.-y ...more", ["a", "b", "tag", "flag", "x", "y", "more"]),
        ("wi fi, sci fi; of it", ["wi", "fi", "sci", "fi", "wifi", "scifi", "of", "it"]),
        ("Wi\u2011Fi", ["wifi", "wi", "fi"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("ﬁne ①", ["fine", "1"]),
        ("naïve café", ["naïve", "naive", "café", "cafe"]),
        ("Łódź æther", ["łódź", "lodz", "æther", "aether"]),
        ("İstanbul ISPARTA ısparta", ["istanbul", "isparta", "ısparta", "isparta"]),
        ("việt tường", ["việt", "tường"]),
        ("Αθήνα ΑΘΗΝΑ", ["αθήνα", "αθηνα", "αθηνα"]),
        ("ёлка йод за\u0301мок", ["ёлка", "елка", "йод", "за\u0301мок", "замок"]),
        ("हिन्दी भाषा ज़मीन", ["हिन्दी", "भाषा", "ज\u093cमीन", "जमीन"]),
        ("한국어 서울 KBS는", ["한국", "국어", "한국어", "서울", "서울", "kbs", "는", "는"]),
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
    assert ENGLISH("max_rows") == ["maxrow", "max", "row"]
    assert ENGLISH("node.js") == ["node.js", "node", "js"]
    assert ENGLISH("rowCounts") == ["rowcount", "row", "count"]
    assert set(ENGLISH("rowcounts")) <= set(ENGLISH("rowCounts"))


def test_a_long_token_is_cut_and_still_found() -> None:
    assert PLAIN("x" * 100_000) == ["x" * MAX_TOKEN]
    assert PLAIN("-".join(["x"] * 500) + ".end")[-1] == "end"
    assert len(PLAIN("我喜欢自然" * 100)) == len(ENGLISH("대한민국가" * 100)) == 499


def test_a_question_without_words_has_no_terms() -> None:
    assert PLAIN("\u200b \u00ad \u2026 \U0001f600") == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("wifi", "wi fi"),
        ("wifi", "Wi-Fi"),
        ("wi-fi", "wi fi"),
        ("e-mail", "email"),
        ("get user name", "getUserName"),
        ("getusername", "get_user_name"),
        ("get-user-name", "getUserName"),
        ("resume", "résumé"),
        ("manutencao", "manutenção"),
        ("Unternehmen", "Unter\u00adnehmen"),
        ("می\u200cخواهم", "میخواهم"),
        ("علی", "علي"),
        ("בָּיִת", "בית"),
        ("كِتَاب", "كتاب"),
        ("بازار", "بـــازار"),
    ],
)
def test_two_spellings_find_each_other(one: str, other: str) -> None:
    for analyzer in (PLAIN, ENGLISH):
        assert set(analyzer(one)) & set(analyzer(other))


@pytest.mark.parametrize(
    ("language", "question", "sentence"),
    [
        ("none", "도서관", "시험 기간에는 도서관에서 공부한다."),
        ("none", "물", "아이가 물을 마신다."),
        ("none", "길이", "줄의 길이는 같다."),
        ("none", "ตลาด", "ตอนเช้าป้าไปขายผักที่ตลาด"),
        ("none", "ຕະຫຼາດ", "ຕອນເຊົ້າປ້າໄປຂາຍຜັກຢູ່ຕະຫຼາດ"),
        ("none", "ផ្សារ", "ពេលព្រឹកមីងទៅលក់បន្លែនៅផ្សារ"),
        ("none", "ဈေး", "အဒေါ်က ဈေးမှာ ရောင်းတယ်။"),
        ("none", "མཚོ", "མཚོའི་ནང་གི་ཉ་མང་པོ་ཤི་འདུག"),
        ("turkish", "müze", "Cumartesi günleri müzeye giriş ücretsizdir."),
        ("turkish", "muze", "Cumartesi günleri müze kapalı."),
        ("english", "قهوة", "أشرب قهوتي بلا سكر."),
        ("arabic", "متحف", "الدخول للمتحف مجاني."),
        ("english", "מפתח", "לא מצאתי את המפתחות בכיס."),
        ("english", "पंखा", "पंखे की आवाज़ से नींद नहीं आई।"),
    ],
)
def test_a_noun_finds_its_sentence(language: str, question: str, sentence: str) -> None:
    analyzer = Analyzer(stemmer(language))

    assert set(analyzer(question)) & set(analyzer(sentence))


def test_no_format_character_is_part_of_a_word() -> None:
    formats = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf"]

    assert PLAIN("on" + "".join(formats) + "ce") == ["once"]


ANY = st.text() | st.text(alphabet="aé\u0301İiſßﬁ가각ᄀ\u1161נָאًلا\u0e33ก\u0323ữ\u093cज.-_+#7 \u200d\u00ad\ufe0f")
UNSEEN = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\ufe0f"


@given(ANY)
def test_every_unicode_form_of_a_text_has_the_same_terms(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert sorted(ENGLISH(unicodedata.normalize(form, text))) == sorted(ENGLISH(text))


@given(ANY)
def test_every_word_of_a_text_finds_it(text: str) -> None:
    found = set(ENGLISH(text))

    for word in text.split():
        assert set(ENGLISH(word)) <= found


@given(ANY, st.lists(st.tuples(st.integers(0, 40), st.sampled_from(UNSEEN)), max_size=5))
def test_characters_that_nobody_sees_change_nothing(text: str, put_in: list[tuple[int, str]]) -> None:
    other = text
    for place, unseen in put_in:
        other = other[:place] + unseen + other[place:]

    assert sorted(ENGLISH(other)) == sorted(ENGLISH(text))


@given(st.text())
def test_any_text_has_terms_that_can_be_stored(text: str) -> None:
    for term in PLAIN(text):
        assert term
        assert len(term.encode("utf-8", "surrogatepass")) <= 4 * 3 * MAX_TOKEN


@pytest.mark.slow
@given(st.lists(st.text(alphabet="abcXYZ09_.é手 -", min_size=1), min_size=1))
def test_the_words_of_two_texts_are_those_of_both_together(parts: list[str]) -> None:
    apart = [term for part in (*parts, *["between"] * len(parts)) for term in PLAIN(part)]

    assert sorted(PLAIN("".join(f"{part} between " for part in parts))) == sorted(apart)  # short neighbours are joined


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_table_for_ascii_and_the_rule_for_unicode_agree(text: str) -> None:
    assert {term for token in tokens(text) for term in PLAIN.terms(token)} == {
        term for token in tokens(text + " ж") for term in PLAIN.terms(token)
    } - {"ж"}
