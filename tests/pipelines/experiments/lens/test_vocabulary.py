"""Tokens for people: one printable word each, whatever the tokenizer; and how often a corpus has each."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts.tokenizer import TextTokenizer, load_tokenizer
from ragidx.pipelines.experiments.lens import vocabulary
from ragidx.pipelines.experiments.lens.vocabulary import Vocabulary, text_of_bytes, visible

from ....raising import message_of

TinyModel = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_vocabulary(tiny_model: TinyModel) -> Vocabulary:
    """The vocabulary of a random model, whose byte-level tokenizer has 300 tokens."""
    files = locate(str(tiny_model("llama")))
    return Vocabulary(files, load_tokenizer(files))


def test_a_token_of_a_byte_level_tokenizer_is_shown_as_its_text(tiny_vocabulary: Vocabulary) -> None:
    tokenizer = load_tokenizer(tiny_vocabulary.files)

    shown = [tiny_vocabulary.shown(i) for i in tokenizer.ids([" the old é\n東"])[0]]

    assert shown == ["▁the", "▁o", "l", "d", "▁", "é", "\\n", "<0xE6>", "<0x9D>", "<0xB1>"]
    assert tiny_vocabulary.shown(0) == "<s>"


def test_a_token_of_another_tokenizer_is_shown_as_it_is_spelt(tiny_model: TinyModel) -> None:
    names = ["[UNK]", "▁the", "##ing", "<0x0A>", "a b", "\u202e"]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    tokenizer = TextTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"), model="words")

    found = Vocabulary(locate(str(tiny_model("llama"))), tokenizer)

    assert [found.shown(i) for i in range(6)] == ["[UNK]", "▁the", "##ing", "<0x0A>", "a▁b", "\\u202e"]


def test_rows_that_pad_a_head_beyond_the_tokenizer_have_a_number_and_no_count(tiny_model: TinyModel) -> None:
    files = locate(str(tiny_model("llama", vocab_size=320)))
    padded = Vocabulary(files, load_tokenizer(files))

    assert padded.shown(319) == "<row 319>"
    assert (padded.n_named, padded.head.shape[0]) == (300, 320)
    assert padded.count(["the river"])[0].shape == (320,)
    assert not padded.count(["the river"])[0][300:].any()


def test_tokens_that_a_head_has_no_row_for_are_not_counted(tiny_model: TinyModel) -> None:
    files = locate(str(tiny_model("llama", vocab_size=200)))
    short = Vocabulary(files, load_tokenizer(files))

    assert short.n_named == 200
    assert 0 < short.count(["the river flows"])[0].sum() < len(load_tokenizer(files).ids(["the river flows"])[0])


def test_counting_takes_every_token_once_and_no_special_one(tiny_vocabulary: Vocabulary) -> None:
    texts = ["the river", "", "the <s> river </s>", *["the"] * 600]
    tokenizer = load_tokenizer(tiny_vocabulary.files)

    counts, n_texts = tiny_vocabulary.count(iter(texts))

    wanted = np.bincount([i for ids in tokenizer.ids(texts) for i in ids], minlength=300)
    assert n_texts == 603
    assert counts.tolist() == wanted.tolist()
    assert counts[:3].tolist() == [0, 0, 0]


@pytest.mark.slow
@given(st.text())
def test_a_shown_token_is_one_word_that_a_terminal_prints(name: str) -> None:
    shown = visible(name)

    assert shown
    assert shown.split() == [shown]
    assert all(unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs") for letter in shown)


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_letters_of_bytes_give_every_text_back(text: str) -> None:
    letters = {byte: letter for letter, byte in vocabulary._letters_of_bytes().items()}

    assert len(letters) == 256
    assert text_of_bytes("".join(letters[byte] for byte in text.encode())) == text


@pytest.mark.slow
def test_a_model_without_an_unembedding_matrix_is_told_so(tiny_sentence_transformer: Path) -> None:
    files = locate(str(tiny_sentence_transformer))

    assert message_of(ModelError, lambda: Vocabulary(files, load_tokenizer(files))) == (
        f"{files.folder}: '{files.name}' has no unembedding matrix, so it has no spectrum\n"
        "  hint: the lens reads a decoder language model with its head in float16, bfloat16 or float32,"
        " such as `model=mini-decoder`"
    )


def test_top_names_the_tokens_of_each_vector(tiny_vocabulary: Vocabulary) -> None:
    rows: Any = np.eye(32)[:2]

    found = tiny_vocabulary.top(rows, 4)

    assert [len(of_vector) for of_vector in found] == [4, 4]
    for of_vector in found:
        assert [each.logit for each in of_vector] == sorted((each.logit for each in of_vector), reverse=True)
        assert [each.token for each in of_vector] == [tiny_vocabulary.shown(each.id) for each in of_vector]
