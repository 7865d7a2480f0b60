"""Rendering: which tokens are pooled, for hostile and random texts, with every template."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts.rendering import clean, render
from ragidx.indexer.prompts.templates import Template, load_template
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

from .rendering_kit import BARE, TEMPLATES, TEXTS, as_read, bare, pooled, prompts, read, rows_of

# --- what is pooled


def _expected_count(template: Template, text: str, tokenizer: TextTokenizer) -> int:
    if template.span == "last":
        return 1
    n = len(tokenizer.ids([as_read(template, text)])[0])
    pools = sum(1 for piece in template.document if piece.text == "{text}" and piece.pool is True)
    return n if template.joined else n * pools


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, name=st.sampled_from(TEMPLATES), copies=st.integers(2, 4))
def test_the_pooled_span_counts_exactly_the_texts_tokens_with_every_template(
    text: str, name: str, copies: int, tokenizer: TextTokenizer
) -> None:
    template = load_template(name, copies=copies if name in ("reba", "echo-copies") else None)

    row = render(template, [text], tokenizer, spec=BARE)[0]

    for prompt, one in zip(prompts(template), rows_of(row), strict=True):
        places = one.positions()
        assert len(places) == _expected_count(prompt, text, tokenizer)
        assert places == sorted(set(places))
        assert all(0 <= place < len(one.ids) for place in places)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    text=TEXTS,
    name=st.sampled_from(["llm2vec-llama3", "llm2vec-gemma", "llm2vec-qwen2"]),
    instruction=st.sampled_from([None, "Find it"]),
)
def test_the_closing_marker_is_pooled_with_the_text_unless_it_is_left_out(
    text: str, name: str, instruction: str | None, tokenizer: TextTokenizer
) -> None:
    template = load_template(name)
    marker = tokenizer.piece(template.document[0].text.rpartition("{text}")[2])

    with_it, without = (
        render(template, [text], tokenizer, instruction=instruction, spec=spec)[0] for spec in (EncoderSpec(), BARE)
    )

    assert len(marker) == 1
    assert with_it.ids == without.ids
    assert with_it.ids[-1:] == marker
    assert with_it.positions() == [*without.positions(), len(with_it.ids) - 1]


def test_the_pooled_span_of_a_chat_form_is_the_text_and_the_marker(tokenizer: TextTokenizer) -> None:
    for text in ("The old mill", "x <|eot_id|> y", "a </s>", "end <|im_end|>"):
        rows = [render(load_template("llm2vec-qwen2"), [text], tokenizer, instruction=i)[0] for i in (None, "Find it")]

        assert pooled(tokenizer, rows[0]) == f"{text}<|im_end|>"
        # The query's text follows a space that merges with its first word.
        assert pooled(tokenizer, rows[1]).endswith(f"{text[1:]}<|im_end|>")
        assert "Find" not in pooled(tokenizer, rows[1])


def test_a_tail_that_merges_with_the_text_keeps_the_span_inside_what_is_read(tokenizer: TextTokenizer) -> None:
    template = load_template("{text}e", method="llm2vec")
    n_alone, n_whole = (len(ids) for ids in tokenizer.ids([" th", " the"]))
    assert n_whole < n_alone

    row = render(template, [" th"], tokenizer, spec=BARE)[0]

    assert pooled(tokenizer, row) == " the"


def test_prompts_for_one_text_pool_their_own_last_token(tokenizer: TextTokenizer) -> None:
    row = render(load_template("metaeol"), ["a mill"], tokenizer)[0]

    assert len(rows_of(row)) == 8
    assert len({tuple(one.ids) for one in rows_of(row)}) == 8
    for one in rows_of(row):
        assert one.pooled == ((len(one.ids) - 1, len(one.ids)),)
        assert read(tokenizer, one.ids).endswith('in one word:"')
    assert row.n_tokens == sum(len(one.ids) for one in rows_of(row))
    assert row.longest == max(len(one.ids) for one in rows_of(row))
    assert row.width == 8 * row.longest


def test_cleaning_up_follows_promptEOLs_authors() -> None:
    assert clean("") == ""
    assert clean("a dog") == "a dog."
    assert clean("a dog.") == "a dog."
    assert clean("Who?") == "Who."
    assert clean('He said "hello"') == "He said 'hello'"
    assert clean("it's'") == "it's'"
    assert clean("a dog!") == "a dog!."


# --- EOS, BOS and every token


@pytest.mark.parametrize("name", TEMPLATES)
def test_eos_pooling_reads_one_eos_at_the_very_end_and_pools_it_alone(name: str, tokenizer: TextTokenizer) -> None:
    template = load_template(name)

    row, plain = (render(template, ["a mill"], tokenizer, spec=EncoderSpec(pooling=p))[0] for p in ("eos", "mean"))

    for one, other in zip(rows_of(row), rows_of(plain), strict=True):
        assert one.ids == (other.ids if other.ids[-1] == 1 else [*other.ids, 1])
        assert one.positions() == [len(one.ids) - 1]


@pytest.mark.parametrize("name", TEMPLATES)
def test_bos_pooling_pools_the_first_token_alone(name: str, tokenizer: TextTokenizer) -> None:
    row = render(load_template(name), ["a mill"], tokenizer, spec=EncoderSpec(pooling="bos"))[0]

    for one in rows_of(row):
        assert one.ids[0] == 0
        assert one.positions() == [0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_trainable_pooling_reads_every_token_and_an_eos_at_the_end(name: str, tokenizer: TextTokenizer) -> None:
    row = render(load_template(name), ["a mill"], tokenizer, spec=EncoderSpec(pooling="trainable"))[0]

    for one in rows_of(row):
        assert one.ids[-1] == 1
        assert one.positions() == list(range(len(one.ids)))


@pytest.mark.parametrize("pooling", ["eos", "trainable"])
def test_a_model_without_an_eos_has_none_to_pool(pooling: str, tiny_tokenizer: Any) -> None:
    with pytest.raises(SpecError) as fault:
        render(load_template("classical"), ["a"], bare(tiny_tokenizer, bos=True), spec=EncoderSpec(pooling=pooling))

    assert str(fault.value) == (
        "`pooling`: the model's tokenizer has no EOS token to pool\n"
        "  hint: choose another pooling, such as `pooling=last`"
    )


@pytest.mark.parametrize("bos", [True, False])  # with one that nothing puts in front, and with none
def test_a_model_that_reads_no_bos_has_none_to_pool(bos: bool, tiny_tokenizer: Any) -> None:
    with pytest.raises(SpecError) as fault:
        render(load_template("classical"), ["a"], bare(tiny_tokenizer, bos=bos), spec=EncoderSpec(pooling="bos"))

    assert str(fault.value) == (
        "`pooling`: what the model reads does not begin with a BOS token, so there is none to pool\n"
        "  hint: choose another pooling, such as `pooling=mean`"
    )


def test_a_bos_that_the_template_names_can_be_pooled(tiny_tokenizer: Any) -> None:
    tokenizer = bare(tiny_tokenizer, bos=True, eos=True)

    row = render(load_template("echo-trained"), ["a"], tokenizer, spec=EncoderSpec(pooling="bos"))[0]

    assert row.positions() == [0]
