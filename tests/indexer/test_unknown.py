"""Texts that a tokenizer does not know: shares by characters, scripts, tokenizers that know every text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece

import ragidx
from ragidx.indexer.token_table import TokenTable, plain
from ragidx.indexer.unknown import UnknownTokens, script_of

from .test_token_table import table

BUNDLED = Path(ragidx.__file__).parent / "indexer" / "models" / "mini" / "tokenizer.json"
UNKNOWN = {
    "Thai": "ผู้ดูแลประภาคารจุดตะเกียงทุกคืนก่อนที่เรือจะกลับเข้าฝั่ง",
    "Khmer": "អ្នកថែរក្សាប៉មភ្លើង អុជចង្កៀងរៀងរាល់យប់",
    "Myanmar": "မီးပြတိုက်စောင့်သည် ညတိုင်း မီးအိမ်ကို ထွန်းသည်",
    "Lao": "ຜູ້ດູແລປະພາຄານ ຈຸດຕະກຽງ ທຸກຄືນ",
    "symbols": "🎉🎉🎊🥳👏🏽",
    "Latin": "dGhlIGtlZXBlciBsaWdodHMgdGhlIGxhbXAgZXZlcnkgbmlnaHQ" * 3,  # base64, a word of 153 characters
}
KNOWN = (
    "The keeper lights the lamp every night 🎉",
    "Смотритель маяка зажигает лампу",
    "Ο φαροφύλακας ανάβει τη λάμπα",
    "ÜBER DEN WOLKEN, née à Lyon\u200b",
    "\u200b",
    "",
)


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    return plain(Tokenizer.from_file(str(BUNDLED)))


@pytest.fixture(scope="module")
def tokens(backend: Tokenizer) -> UnknownTokens:
    found = UnknownTokens.of(backend)
    assert found.numbers == {backend.token_to_id("[UNK]")}
    return found


def covered(backend: Tokenizer, tokens: UnknownTokens, text: str) -> bool:
    return tokens.covers(text, backend.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("script", UNKNOWN)
def test_the_bundled_tokenizer_does_not_know_these(script: str, backend: Tokenizer, tokens: UnknownTokens) -> None:
    assert covered(backend, tokens, UNKNOWN[script])
    assert script_of(UNKNOWN[script]) == script


@pytest.mark.parametrize("text", KNOWN)
def test_the_bundled_tokenizer_knows_these(text: str, backend: Tokenizer, tokens: UnknownTokens) -> None:
    assert not covered(backend, tokens, text)


@pytest.mark.parametrize(("text", "expected"), [("mill ขคฆฉ", False), ("mil ขคฆฉ", True), ("mill  \n ขคฆฉจ", True)])
def test_half_of_the_characters_is_no_more_than_half(
    text: str, expected: bool, backend: Tokenizer, tokens: UnknownTokens
) -> None:
    assert covered(backend, tokens, text) is expected


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["mill", "ab", "été", "ข", "ขค", "🎉", "a" * 101, "2024"]), max_size=8))
def test_characters_are_counted_word_by_word(backend: Tokenizer, tokens: UnknownTokens, words: list[str]) -> None:
    n_unknown = sum(len(word) for word in words if len(word) > 100 or (not word[0].isascii() and word != "été"))

    assert covered(backend, tokens, " ".join(words)) is (2 * n_unknown > sum(map(len, words)))


def test_of_a_text_that_is_cut_the_first_tokens_count(backend: Tokenizer, tokens: UnknownTokens) -> None:
    ids = backend.encode(text := "mill mill ขคฆฉจฉชซฌ mill mill", add_special_tokens=False).ids

    assert [tokens.covers(text, ids[:n]) for n in (1, 2, 3, 4, 5)] == [False, False, True, False, False]


def test_a_tokenizer_that_falls_back_to_bytes_knows_every_text() -> None:
    every = {f"<0x{number:02X}>": number for number in range(256)} | {"<unk>": 256}
    bytes_ = Tokenizer(BPE(every, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    level = Tokenizer(BPE({one: number for number, one in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    level.pre_tokenizer = pre_tokenizers.ByteLevel()

    assert not UnknownTokens.of(bytes_, 256).numbers
    assert not UnknownTokens.of(level).numbers


def test_the_unknown_token_of_other_kinds_of_tokenizer() -> None:
    pieces = Tokenizer(Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁mill", -2.0), ("a", -3.0)], 0))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words = Tokenizer(WordLevel({"<u>": 0, "mill": 1}, unk_token="<u>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    silent = Tokenizer(WordPiece({"[UNK]": 0, "𓀀": 1, "##𒀀": 2, "𒀀": 3}, unk_token="[UNK]"))
    silent.pre_tokenizer = pre_tokenizers.Whitespace()

    assert not UnknownTokens.of(silent).numbers  # it never gives one
    for backend, named in ((pieces, 0), (words, None)):
        tokens = UnknownTokens.of(backend, named)
        assert [covered(backend, tokens, text) for text in ("mill", "mill กขค", "mill ขคฆฉจ")] == [False, False, True]


def test_tokens_that_a_model_has_nothing_for_are_unknown_to_it(backend: Tokenizer) -> None:
    numbers = [backend.token_to_id(token) for token in ("godzilla", "##zilla")]
    unknown = UnknownTokens.of(backend, without_row=numbers)

    assert covered(backend, unknown, "godzilla films")
    assert not covered(backend, unknown, "the godzilla films")


def test_a_table_of_questions_gives_unknown_ones_no_vector() -> None:
    made: TokenTable = table()

    assert made.vectors(["new river", "new rivers", "new"]).any(axis=1).tolist() == [False, False, True]
    assert made.vectors(["new new rivers", "new york is wide"]).any(axis=1).tolist() == [True, True]
