"""Pieces: sums that are those of whole texts, whatever the tokenizer does with white space, and the places between."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from ragidx.corpora.chunking import pieces as module
from ragidx.corpora.chunking.levels import BLOCK, DEFINITION, GLUE, INSIDE, LINE, SENTENCES, SUBCLAUSE, WORD, Levels
from ragidx.corpora.chunking.pieces import Counter
from ragidx.corpora.headings import sections

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPACES_AND_MARKS = st.sampled_from([" ", "\n", "\r\n", "!\n", "\t", "  ", "a", "。"])
TAUGHT = [module._TRIED, "Words. \n\nMore words;\n and a b c (d)\n", "! \n\n!\n\n; \n"] * 20


def numbers(ids: bytes) -> list[int]:
    return np.frombuffer(ids, "<u4").tolist()


@functools.cache
def tokenizer(kind: str) -> tokenizers.Tokenizer:
    """As in BERT, GPT-2, Llama 3, Llama 2; a tokenizer whose words are joined by an added token."""
    if kind in ("bert", "joined"):
        found = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        found.normalizer = normalizers.BertNormalizer()
        found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[UNK]"], show_progress=False)
        found.train_from_iterator(TAUGHT, trainer)
        if kind == "joined":
            found.add_tokens([tokenizers.AddedToken("the lease", normalized=False)])
        return found
    found = tokenizers.Tokenizer(models.BPE())
    if kind == "llama2":
        found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        found.train_from_iterator(TAUGHT, trainers.BpeTrainer(vocab_size=600, show_progress=False))
        return found
    parts = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "gpt2")
    found.pre_tokenizer = bytes_ if kind == "gpt2" else pre_tokenizers.Sequence([parts, bytes_])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(
        TAUGHT, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    )
    return found


counter_of = functools.cache(lambda kind: Counter(tokenizer(kind)))


def places(text: str, *, markdown: bool = False) -> list[tuple[str, int]]:
    """The last word before each place, and its level."""
    counter = Counter(tokenizer("bert"))
    found = counter.pieces(text, 0)
    levels = Levels(text, sections(text) if markdown else []).of(found, 0, len(text))
    words = [text[:end].rsplit(maxsplit=1)[-1] for end in found.ends.tolist()]
    return list(zip(words, levels.tolist(), strict=True))


@pytest.mark.parametrize(("kind", "pattern"), [("bert", 0), ("gpt2", 1), ("llama3", 2)])
def test_the_pattern_is_the_one_whose_sums_are_right(kind: str, pattern: int) -> None:
    counter = Counter(tokenizer(kind))

    assert counter.exact
    assert counter._pattern is module._PATTERNS[pattern]


@pytest.mark.parametrize("kind", ["llama2", "joined"])
def test_a_tokenizer_whose_pieces_do_not_add_up_counts_whole_texts(kind: str) -> None:
    counter = Counter(tokenizer(kind))
    text = "Ask for the lease of\nthe house."

    found = counter.pieces(text, 0)

    assert not counter.exact
    assert found.tokens[-1] == counter.counts([text])[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama3"])
@settings(deadline=None, max_examples=150)
@given(text=st.lists(st.text(max_size=8) | SPACES_AND_MARKS).map("".join))
def test_the_sum_of_pieces_is_the_count_of_the_whole_or_the_pieces_are_doubtful(kind: str, text: str) -> None:
    counter, text = counter_of(kind), text.strip()
    if not text:
        return

    found = counter.pieces(text, 0)

    assert found.ends[-1] == len(text)
    assert found.doubts[-1] or found.tokens[-1] == counter.counts([text])[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama2", "joined"])
@settings(deadline=None, max_examples=150)
@given(texts=st.lists(st.lists(st.text(max_size=8) | SPACES_AND_MARKS).map("".join), max_size=4))
def test_the_ids_of_texts_are_those_of_the_tokenizer(kind: str, texts: list[str]) -> None:
    whole = tokenizer(kind).encode_batch(texts, add_special_tokens=False)

    assert [numbers(ids) for ids in counter_of(kind).ids(texts)] == [one.ids for one in whole]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@settings(deadline=None, max_examples=100)
@given(words=st.lists(st.text(max_size=8) | SPACES_AND_MARKS, max_size=30), data=st.data())
def test_the_ids_of_pieces_in_a_row_are_those_of_the_text_between(
    kind: str, words: list[str], data: st.DataObject
) -> None:
    text = "".join(words).strip() or "."
    found = counter_of(kind).pieces(text, 0, ids=True)
    last = data.draw(st.integers(0, len(found.ends) - 1))
    first = data.draw(st.integers(0, last))

    ids = found.span_ids(first, last)

    start = int(found.ends[first - 1]) if first else 0
    whole = tokenizer(kind).encode(text[start : found.ends[last]].strip(), add_special_tokens=False)
    assert ids is None or numbers(ids) == whole.ids
    assert (ids is None) == (kind != "bert" or bool(found.doubts[last + 1] > found.doubts[first]))


def test_words_that_are_known_are_not_tokenised_again() -> None:
    counter = Counter(tokenizer("bert"))
    texts = ["(The lease)...  ends,\nit does.", "", "the \u2028lease", f"a {'long' * 40} word"]
    first = counter.ids(texts)
    counter.tokenizer = tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))  # which knows nothing

    again = counter.ids(texts)

    whole = tokenizer("bert").encode_batch(texts, add_special_tokens=False)
    assert [numbers(ids) for ids in first] == [one.ids for one in whole]
    assert again[:2] == first[:2]
    assert again[2:] != first[2:]


def test_a_long_word_is_cut_behind_full_stops_and_never_inside_a_cluster() -> None:
    sentence = "日本語の文章です。"
    counter = Counter(tokenizer("bert"))

    stops = counter.pieces(sentence * 20, 5)
    marks = counter.pieces("e\u0301\u0302" * 60, 0)

    assert {end % len(sentence) for end in (stops.ends - 5).tolist()} == {0}
    assert {end % 3 for end in marks.ends.tolist()} == {0}
    assert stops.doubts[-1] == len(stops.ends)
    assert stops.glued[:-1].all()


def test_more_pieces_than_the_cache_holds_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(f"w{number}" for number in range(200))
    whole = Counter(tokenizer("bert")).pieces(text, 0)
    monkeypatch.setattr(module, "_CACHED", 10)
    counter = Counter(tokenizer("bert"))

    twice = [counter.pieces(text, 0) for _ in range(2)]

    assert [found.tokens.tolist() for found in twice] == [whole.tokens.tolist()] * 2
    assert len(counter._known.numbers) <= 210


def test_in_plain_text_lines_come_before_sentences_and_definitions_before_all() -> None:
    text = "See Dr. Ada, p. 3. She said\nno (really.) Why\n\nso\n@cached\ndef f():\n    pass\nclass A:"

    assert places(text) == [
        ("See", WORD), ("Dr.", WORD), ("Ada,", SUBCLAUSE), ("p.", WORD), ("3.", SENTENCES), ("She", WORD),
        ("said", LINE), ("no", WORD), ("(really.)", SENTENCES), ("Why", BLOCK), ("so", DEFINITION), ("@cached", LINE),
        ("def", WORD), ("f():", LINE), ("pass", DEFINITION), ("class", WORD), ("A:", SUBCLAUSE),
    ]  # fmt: skip


def test_a_full_stop_before_a_small_letter_ends_no_sentence() -> None:
    assert places("at 3 p.m. on Monday. Then")[2:5] == [("p.m.", WORD), ("on", WORD), ("Monday.", SENTENCES)]


def test_in_markdown_line_breaks_inside_a_paragraph_are_less_than_sentences_and_headings_are_most() -> None:
    text = "# A\n\n## B\nSoft\nbreak. End\n\n* item\n  * inner\n\n```py\nx = 1\n\ny\n```\n### C\nText"

    assert places(text, markdown=True) == [
        ("#", WORD), ("A", GLUE), ("##", WORD), ("B", GLUE), ("Soft", SUBCLAUSE), ("break.", SENTENCES),
        ("End", BLOCK), ("*", WORD), ("item", SENTENCES), ("*", WORD), ("inner", BLOCK),
        ("```py", SENTENCES), ("x", WORD), ("=", WORD), ("1", LINE), ("y", SENTENCES), ("```", 11),
        ("###", WORD), ("C", GLUE), ("Text", WORD),
    ]  # fmt: skip


def test_a_place_inside_a_word_or_before_a_mark_is_the_worst_but_one() -> None:
    assert places("ab \u0301c")[0] == ("ab", INSIDE)
    assert {level for _, level in places("a" * 200)[:-1]} == {INSIDE}
