"""Rendering: which tokens the model reads, for hostile and random texts and words, with every template."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.indexer.prompts.rendering import render, render_words
from ragidx.indexer.prompts.templates import load_template
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.prompts.words import positions_of_words

from .rendering_kit import BARE, PIECES, TEMPLATES, TEXTS, as_read, bare, prompts, read, rows_of


@pytest.fixture(scope="module")
def closing(tiny_tokenizer: Any) -> TextTokenizer:
    """A tokenizer that puts an EOS behind every text by itself, as some do."""
    from tokenizers.processors import TemplateProcessing

    other = copy.deepcopy(tiny_tokenizer)
    other.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return TextTokenizer.of(other, model="tiny")


def written(form: str) -> str:
    for slot, spelling in (("{start}", "<s>"), ("{bos}", "<s>"), ("{eos}", "</s>")):
        form = form.replace(slot, spelling)
    return form


# --- what is read


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(text=TEXTS, name=st.sampled_from(TEMPLATES), instruction=st.sampled_from([None, "", "Find it"]))
def test_the_model_reads_the_template_with_the_text_in_it_and_nothing_else(
    text: str, name: str, instruction: str | None, tokenizer: TextTokenizer
) -> None:
    template = load_template(name)

    row = render(template, [text], tokenizer, instruction=instruction)[0]

    assert len(row.also) == len(template.also)
    for prompt, one in zip(prompts(template), rows_of(row), strict=True):
        form = written("".join(piece.text for piece in prompt.side(instruction)))
        whole = form.replace("{text}", as_read(prompt, text))
        assert read(tokenizer, one.ids) == ("" if form.startswith("<s>") else "<s>") + whole


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(text=TEXTS, name=st.sampled_from(TEMPLATES))
def test_no_text_brings_or_takes_a_special_token(text: str, name: str, tokenizer: TextTokenizer) -> None:
    special = {n for n, token in tokenizer.pieces.get_added_tokens_decoder().items() if token.special}
    template = load_template(name)

    row, plain = render(template, [text, "x"], tokenizer)

    for one, other in zip(rows_of(row), rows_of(plain), strict=True):
        assert [i for i in one.ids if i in special] == [i for i in other.ids if i in special]


def test_a_special_token_that_only_text_and_template_together_spell_stays_text(tokenizer: TextTokenizer) -> None:
    template = load_template("{bos}<{text}> mill", method="llm2vec")  # `{bos}`: special tokens of the form are parsed

    row = render(template, ["/s"], tokenizer, spec=BARE)[0]

    assert 1 not in row.ids
    assert read(tokenizer, row.ids) == "<s></s> mill"


def test_a_text_in_a_form_with_special_tokens_is_tokenised_together_with_it(tokenizer: TextTokenizer) -> None:
    template = load_template("{bos}by t{text} river<|im_end|>", method="llm2vec")
    whole = tokenizer.pieces.encode("<s>by the river<|im_end|>", add_special_tokens=False).ids
    assert len(whole) < sum(len(tokenizer.piece(part)) for part in ("<s>by t", "he", " river<|im_end|>"))

    rows = render(template, ["he", "</s>", "he"], tokenizer)

    assert rows[0].ids == rows[2].ids == whole
    assert rows[1].ids == [
        *tokenizer.piece("<s>by t"),
        *tokenizer.ids(["</s>"])[0],
        *tokenizer.piece(" river<|im_end|>"),
    ]


def test_special_tokens_of_a_chat_form_are_single_tokens(tokenizer: TextTokenizer) -> None:
    row = render(load_template("llm2vec-llama3"), ["a mill"], tokenizer)[0]

    names = [tokenizer.pieces.id_to_token(i) for i in row.ids]
    assert names[:2] == ["<s>", "<|start_header_id|>"]
    assert names[-1] == "<|eot_id|>"
    assert "<|end_header_id|>" in names


@pytest.mark.parametrize("template", ["{bos}P: {text}{eos}", "{bos}P: {text}"])
@pytest.mark.parametrize("method", ["classical", "llm2vec", "prompteol"])
def test_a_bos_or_eos_that_the_template_names_is_not_put_there_twice(
    template: str, method: str, closing: TextTokenizer
) -> None:
    row = render(load_template(template, method=method), ["a mill"], closing)[0]

    # PromptEOL's last token is what is pooled: nothing is put behind it that the template does not name.
    end = "" if method == "prompteol" and "{eos}" not in template else "</s>"
    assert read(closing, row.ids) == f"<s>P: a mill{end}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("classical", "<s>a mill</s>"),  # what the tokenizer puts around a text by itself
        ("llm2vec", "<s>a mill</s>"),
        ("reba", "<s>a milla mill"),  # only what it puts before one
        ("echo-copies", "<s>a milla mill"),
        ("prompteol-original", '<s>This sentence : "a mill." means in one word:"'),  # its last token is pooled
        ("pretended-cot", '<s>After thinking step by step , this sentence : "a mill." means in one word:"'),
        (
            "knowledge-enhancement",
            "<s>The essence of a sentence is often captured by its main subjects and actions, while descriptive terms "
            "provide additional but less central details. With this in mind , this sentence : "
            '"a mill." means in one word:"',
        ),
        ("echo-trained", "<s>Document:a mill\nDocument again:a mill</s>"),  # what the pieces name
    ],
)
def test_what_stands_around_a_template_is_its_own_business(name: str, expected: str, closing: TextTokenizer) -> None:
    assert read(closing, render(load_template(name), ["a mill"], closing)[0].ids) == expected


def test_start_is_the_eos_of_a_model_without_a_bos_and_bos_is_nothing(tiny_tokenizer: Any) -> None:
    without = bare(tiny_tokenizer, eos=True)

    echo = render(load_template("echo"), ["X"], without)[0]
    trained = render(load_template("echo-trained"), ["X"], without)[0]

    assert read(without, echo.ids) == "</s>Rewrite the following paragraph: X. The rewritten paragraph: X</s>"
    assert read(without, trained.ids) == "Document:X\nDocument again:X</s>"
    nothing = bare(tiny_tokenizer)
    assert read(nothing, render(load_template("echo"), ["X"], nothing)[0].ids).startswith("Rewrite")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(text=TEXTS, copies=st.integers(1, 5), name=st.sampled_from(["reba", "echo-copies"]))
def test_copies_are_the_same_ids_side_by_side(text: str, copies: int, name: str, tokenizer: TextTokenizer) -> None:
    template = load_template(name, copies=copies)

    row = render(template, [text], tokenizer)[0]

    own = tokenizer.ids([text])[0]
    n = len(own)
    assert row.ids == [0, *own * copies]
    copy_of = [(place - 1) // n for place in row.positions()] if n else []
    first = name == "reba" or copies == 1
    expected = [0] if first else list(range(1, copies))
    assert copy_of == [number for number in expected for _ in range(n)] if n else not row.positions()


# --- words


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(PIECES).filter(lambda p: p.strip() == p and p) | st.from_regex(r"[a-zé]{1,6}", fullmatch=True),
        max_size=5,
    ),
    name=st.sampled_from(
        ["classical", "echo", "reba", "llm2vec", "llm2vec-inst", "llm2vec-llama3", "sea {text} [/INST]", "{text}ing"]
    ),
)
def test_the_tokens_of_a_word_spell_it_wherever_it_stands(
    words: list[str], name: str, tokenizer: TextTokenizer
) -> None:
    method = "" if name in TEMPLATES else "llm2vec"
    template = load_template(name, method=method)
    text = " ".join(words)

    row, spans = render_words(template, [text], tokenizer)[0]

    places = row.positions()
    assert len(places) == len(spans)
    assert row.ids == render(template, [text], tokenizer)[0].ids
    for word, numbers in zip(words, positions_of_words(spans, words), strict=True):
        spelt = read(tokenizer, [row.ids[places[i]] for i in numbers])
        # The space before a word is the word's; a last token may spell what stands behind it too.
        assert re.fullmatch(rf" ?{re.escape(word)}(|i|in|ing)", spelt)


def test_words_in_a_form_whose_space_merges_with_the_first_are_found(tokenizer: TextTokenizer) -> None:
    template = load_template("[INST] {text} [/INST]", method="llm2vec")
    words = ["river", "hills"]

    row, spans = render_words(template, [" ".join(words)], tokenizer)[0]

    places = row.positions()
    found = [[row.ids[places[i]] for i in numbers] for numbers in positions_of_words(spans, words)]
    assert [read(tokenizer, ids) for ids in found] == [" river", " hills"]
