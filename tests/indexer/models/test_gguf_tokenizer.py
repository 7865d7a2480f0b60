"""Tokenizers in GGUF files: the splits by `tokenizer.ggml.pre`, merges by score, special tokens, and refusals.

The splits were compared with llama.cpp's on 431 texts each, with a vocabulary whose merges cross every border: equal
but for `qwen2`, which composes texts as its tokenizer.json does, and `tekken`, whose marks llama.cpp leaves out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.gguf.header import Gguf
from ragidx.indexer.models.gguf.tokenizer import SPLITS, read_tokenizer

from ...gguf_kit import BPE
from ...raising import message_of

PATH = Path("x.gguf")
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["a b"]


def bpe(pre: Any = "gpt-2", merges: list[str] | None = None, **keys: Any) -> Gguf:
    """The metadata of a byte-level BPE: special tokens, bytes, and what the merges make."""
    merges = MERGES if merges is None else merges
    tokens = ["<s>", "</s>", "<|im_start|>", "<think>", *BYTES, *(merge.replace(" ", "") for merge in merges)]
    types = np.array([3, 3, 3, 4] + [1] * (len(tokens) - 4))
    made = {"tokens": tokens, "token_type": types, "merges": merges, "bos_token_id": 0, "eos_token_id": 1}
    named = BPE | {f"tokenizer.ggml.{name}": value for name, value in (made | {"pre": pre} | keys).items()}
    return Gguf(PATH, {name: value for name, value in named.items() if value is not None}, {}, (PATH,))


def pieces(gguf: Gguf, text: str) -> list[str]:
    return read_tokenizer(gguf, "m")[0].encode(text, add_special_tokens=False).tokens


def told(gguf: Gguf) -> str:
    return message_of(ModelError, lambda: read_tokenizer(gguf, "m"))


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", "it|'s|Ġ1234|Ġ12|Ġa|1|Ċ|Ċ|b|.|ĊĠ|Ġc|ĠI|'|LL|ĠiPod"),
        ("smollm", "it|'s|Ġ|1|2|3|4|Ġ|1|2|Ġa|1|Ċ|Ċ|b|.|ĊĠ|Ġc|ĠI|'|LL|ĠiPod"),
        ("qwen2", "it|'s|Ġ|1|2|3|4|Ġ|1|2|Ġa|1|ĊĊ|b|.Ċ|Ġ|Ġc|ĠI|'LL|ĠiPod"),
        ("llama-bpe", "it|'s|Ġ|123|4|Ġ|12|Ġa|1|ĊĊ|b|.Ċ|Ġ|Ġc|ĠI|'LL|ĠiPod"),
        ("tekken", "it|'s|Ġ|1|2|3|4|Ġ|1|2|Ġa|1|ĊĊ|b|.Ċ|Ġ|Ġc|ĠI|'LL|Ġi|Pod"),
    ],
)
def test_a_text_is_split_as_its_kind_says(pre: str, words: str) -> None:
    splitter = read_tokenizer(bpe(pre), "m")[0].pre_tokenizer

    found = splitter.pre_tokenize_str("it's 1234 12 a1\n\nb.\n  c I'LL iPod")

    assert "|".join(word for word, _ in found) == words


@pytest.mark.parametrize("pre", SPLITS)
def test_every_kind_gives_back_what_it_reads(pre: str) -> None:
    backend = read_tokenizer(bpe(pre), "m")[0]
    text = "\x00 7 8  9 \u200d\ufeff\r\n\t🙂 नमस्ते don't"

    assert backend.decode(backend.encode(text, add_special_tokens=False).ids) == text


def test_qwen2_alone_composes_texts() -> None:
    assert pieces(bpe("qwen2"), "e\u0301") == pieces(bpe("qwen2"), "é") == ["Ã", "©"]
    assert pieces(bpe("gpt-2"), "e\u0301") != pieces(bpe("gpt-2"), "é")


def test_whole_words_are_taken_before_merges_in_llama_3() -> None:
    tokens = [*bpe().metadata["tokenizer.ggml.tokens"], "abab"]
    keys = {"tokens": tokens, "token_type": None}

    assert pieces(bpe("llama-bpe", **keys), "abab") == ["abab"]
    assert pieces(bpe("dbrx", **keys), "abab") == ["ab", "ab"]


# --- special tokens


def test_special_tokens_are_one_token_and_texts_keep_the_users_own() -> None:
    backend, special = read_tokenizer(bpe(), "m")

    assert special == {"bos": 0, "eos": 1, "pad": None, "unk": None}
    assert backend.encode("<|im_start|>ab<think>", add_special_tokens=False).tokens == [
        "<|im_start|>",
        "ab",
        "<think>",
    ]
    added = {number: token.special for number, token in backend.get_added_tokens_decoder().items()}
    assert added == {0: True, 1: True, 2: True, 3: False}


@pytest.mark.parametrize(
    ("pre", "keys", "expected"),
    [
        ("gpt-2", {}, ["ab"]),
        ("llama-bpe", {}, ["<s>", "ab"]),
        ("tekken", {}, ["<s>", "ab"]),
        ("dbrx", {}, ["ab"]),
        ("llama-bpe", {"add_bos_token": False}, ["ab"]),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, ["<s>", "ab", "</s>"]),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True, "eos_token_id": 0}, ["<s>", "ab", "<s>"]),
    ],
)
def test_bos_and_eos_come_as_the_file_says_else_as_llama_cpp_adds_them(
    pre: str, keys: dict[str, Any], expected: list[str]
) -> None:
    assert read_tokenizer(bpe(pre, **keys), "m")[0].encode("ab").tokens == expected


@pytest.mark.parametrize(("pooling", "eos"), [(3, True), (1, False), (None, False)])
def test_a_model_that_is_read_at_the_end_gets_eos_where_the_file_does_not_say(pooling: int | None, eos: bool) -> None:
    gguf = bpe()
    gguf.metadata.update({"general.architecture": "qwen3", "qwen3.pooling_type": pooling})

    assert read_tokenizer(gguf, "m")[0].encode("ab").tokens == ["ab", *(["</s>"] if eos else [])]
    gguf.metadata["tokenizer.ggml.add_eos_token"] = False
    assert read_tokenizer(gguf, "m")[0].encode("ab").tokens == ["ab"]


# --- sentencepiece


def spm(**keys: Any) -> Gguf:
    """Tokens with scores and no merges: `▁ab` (best), `bc`, `▁a`."""
    words = ["▁ab", "bc", "▁a", "a", "b", "c", "▁"]
    letters = [chr(code) for code in range(33, 127) if chr(code) not in "abc"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, *letters]
    n_words = len(words) + len(letters)
    made = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "token_type": np.array([2, 3, 3] + [6] * 256 + [1] * n_words),
        "scores": np.array([0.0] * 259 + [-float(n) for n in range(n_words)], np.float32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    named = {f"tokenizer.ggml.{name}": value for name, value in (made | keys).items()}
    return Gguf(PATH, {name: value for name, value in named.items() if value is not None}, {}, (PATH,))


def test_merges_come_in_the_order_of_the_scores() -> None:
    assert pieces(spm(), "abc abc") == ["▁a", "bc", "▁a", "bc"]  # bc before ▁a; then ▁ab cannot be made
    better = spm()
    better.metadata["tokenizer.ggml.scores"][260] = -50.0  # bc last

    assert pieces(better, "abc") == ["▁ab", "c"]


def test_characters_that_are_no_token_become_bytes() -> None:
    assert pieces(spm(), "é") == ["▁", "<0xC3>", "<0xA9>"]
    assert pieces(spm(), "a\n") == ["▁a", "<0x0A>"]


def test_a_space_is_put_before_texts_unless_the_file_says_no() -> None:
    assert read_tokenizer(spm(), "m")[0].encode("a").tokens == ["<s>", "▁a"]
    gemma = spm(add_space_prefix=False, add_bos_token=False)

    assert read_tokenizer(gemma, "m")[0].encode("a a").tokens == ["a", "▁a"]


# --- refusals


@pytest.mark.parametrize(
    ("gguf", "message"),
    {
        "kind": (bpe(model="t5"), "is of the kind 't5', which is not known"),
        "kind, an array": (bpe(model=np.array([1, 2])), "is of the kind 'an array of 2', which is not known"),
        "pre, an array": (bpe(np.array([1, 2])), "splits texts by 'an array of 2', which is not known"),
        "long": (bpe(tokens=["a" * 1025]), "has a token of 1,025 characters"),
        "no kind": (bpe(model=None), "is of the kind 'None', which is not known"),
        "pre": (bpe("deepseek-llm"), "splits texts by 'deepseek-llm', which is not known"),
        "no pre": (bpe(None), "does not say how it splits texts (`tokenizer.ggml.pre`)"),
        "no tokens": (bpe(tokens=None), "lacks its tokens (`tokenizer.ggml.tokens`)"),
        "twice": (bpe(tokens=["a", "b", "a"]), "has the token 'a' twice"),
        "types": (
            bpe(token_type=np.array([1])),
            "does not have one number in `tokenizer.ggml.token_type` for each token",
        ),
        "merge": (
            bpe(tokens=BYTES, token_type=None, merges=["a b c"]),
            "has the merge 'a b c', which is not of two tokens",
        ),
        "bos": (bpe(bos_token_id=9999), "has no token '9999', which it names as bos"),
        "flag": (bpe(add_bos_token="false"), "has `add_bos_token`, which is neither true nor false"),
        "no bos": (
            bpe(bos_token_id=None, add_bos_token=True),
            "puts BOS around texts and does not say which token that is",
        ),
    }.values(),
)
def test_what_cannot_be_built_is_told(gguf: Gguf, message: str) -> None:
    assert told(gguf).startswith(f"x.gguf: the tokenizer of 'm' {message}\n  hint: ")


def test_a_merge_of_unknown_tokens_is_told_in_the_librarys_words() -> None:
    gguf = bpe()
    gguf.metadata["tokenizer.ggml.merges"] = ["zz yy"]

    assert told(gguf).startswith("x.gguf: the tokenizer of 'm' cannot be built: ")


def test_a_tokenizer_that_loses_characters_is_told() -> None:
    letters = [letter for letter in BYTES if letter != "W"]
    message = told(bpe(tokens=["<s>", "</s>", "ab", *letters], token_type=None))

    assert message.startswith("x.gguf: the tokenizer of 'm' reads 'Who, in 1984,  signe' and gives back 'ho, in 1984,")


def test_a_special_token_that_cannot_be_read_whole_is_told() -> None:
    gguf = bpe("qwen2")
    gguf.metadata["tokenizer.ggml.tokens"][2] = ""

    assert told(gguf).startswith("x.gguf: the tokenizer of 'm' reads its special token '' as 0 others")
