"""Rendering: what is too long is cut in the text, and the prompt stays whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts.rendering import n_copies, render, text_limit
from ragidx.indexer.prompts.templates import load_template
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

from ...raising import message_of
from .rendering_kit import TEMPLATES, TEXTS, read


def test_known_cuts(tokenizer: TextTokenizer) -> None:
    text = "0123456789"
    own = tokenizer.ids([text])[0]
    assert len(own) == 10

    def ids(limit: int, truncate: str) -> list[int]:
        spec = EncoderSpec(truncate=truncate)
        row = render(load_template("classical"), [text], tokenizer, limit=limit, spec=spec)[0]
        assert row.truncated == (limit < 10)
        return row.ids[1:]

    assert ids(5, "end") == own[:5]
    assert ids(5, "middle") == own[:2] + own[7:]
    assert ids(4, "middle") == own[:2] + own[8:]
    assert ids(1, "middle") == own[9:]
    assert ids(10, "middle") == ids(11, "end") == own


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    text=TEXTS,
    limit=st.integers(1, 12),
    truncate=st.sampled_from(["end", "middle"]),
    name=st.sampled_from(["echo", "reba"]),
)
def test_pieces_cut_all_copies_alike_to_exactly_the_limit(
    text: str, limit: int, truncate: str, name: str, tokenizer: TextTokenizer
) -> None:
    own = tokenizer.ids([text])[0]
    kept = own[:limit] if truncate == "end" else own[: limit // 2] + own[len(own) - (limit - limit // 2) :]
    kept = own if len(own) <= limit else kept

    row = render(
        load_template(name), [text], tokenizer, limit=limit, spec=EncoderSpec(pool_eos=False, truncate=truncate)
    )[0]
    empty = render(load_template(name), [""], tokenizer)[0]

    assert [row.ids[i] for i in row.positions()] == kept
    assert len(row.ids) == len(empty.ids) + 2 * len(kept)
    assert row.truncated == (len(own) > limit)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(text=TEXTS, limit=st.integers(1, 20), truncate=st.sampled_from(["end", "middle"]))
def test_whole_strings_keep_the_start_or_both_ends_of_the_text_and_no_character_twice(
    text: str, limit: int, truncate: str, tokenizer: TextTokenizer
) -> None:
    template = load_template("llm2vec")

    row = render(template, [text], tokenizer, limit=limit, spec=EncoderSpec(truncate=truncate))[0]

    kept = read(tokenizer, row.ids[1:])
    n_tokens = len(tokenizer.ids([text])[0])
    assert row.truncated == (kept != text)
    if n_tokens <= limit:
        assert kept == text
    elif truncate == "end":
        assert text.startswith(kept)
    else:
        split = next(n for n in range(len(kept), -1, -1) if text.startswith(kept[:n]))
        assert any(text.endswith(kept[n:]) for n in range(split + 1))
    assert len(kept) <= len(text)
    # Characters stay whole: up to three tokens more at each of two cuts, and one where the halves meet.
    assert len(row.ids) - 1 <= limit + 7


def test_a_character_cut_in_the_middle_stands_there_once(tokenizer: TextTokenizer) -> None:
    text = "東京東"  # three tokens a character; the fifth token alone is left out
    assert len(tokenizer.ids([text])[0]) == 9

    row = render(load_template("llm2vec"), [text], tokenizer, limit=8, spec=EncoderSpec(truncate="middle"))[0]

    assert read(tokenizer, row.ids) == f"<s>{text}"


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    text=TEXTS.map(lambda text: text * 20),
    name=st.sampled_from(TEMPLATES),
    truncate=st.sampled_from(["end", "middle"]),
    pooling=st.sampled_from(["mean", "eos", "trainable"]),
    spare=st.integers(4, 60),
    instruction=st.sampled_from([None, "", "Find it"]),
)
def test_within_the_limit_of_a_text_the_model_reads_no_more_than_it_can(
    text: str, name: str, truncate: str, pooling: str, spare: int, instruction: str | None, tokenizer: TextTokenizer
) -> None:
    template, spec = load_template(name), EncoderSpec(truncate=truncate, pooling=pooling)
    empty = render(template, [""], tokenizer, instruction=instruction, spec=spec)[0]
    copies = n_copies(template, instruction)
    length = empty.longest + (8 if template.joined else 0) + spare

    limit = text_limit(template, tokenizer, length, instruction, spec)
    row = render(template, [text], tokenizer, instruction=instruction, limit=limit, spec=spec)[0]

    assert limit == spare // copies
    assert row.longest <= length


def test_known_limits(tokenizer: TextTokenizer) -> None:
    def limit(name: str, length: int, copies: int | None = None, **fields: Any) -> int | None:
        return text_limit(load_template(name, copies=copies), tokenizer, length, None, EncoderSpec(**fields))

    assert limit("classical", 20) == 19
    assert limit("classical", 20, pooling="eos") == 18
    assert limit("reba", 20) == 9
    assert limit("reba", 20, copies=3) == 6
    assert limit("llm2vec", 20) == 11  # a whole string may have eight tokens more than its parts
    assert text_limit(load_template("classical"), tokenizer, None) is None
    assert text_limit(load_template("{text} {text}", method="prompteol"), tokenizer, 20) == (20 - 2 - 16) // 2


def test_a_template_that_leaves_no_room_for_a_text_is_refused(tokenizer: TextTokenizer) -> None:
    assert text_limit(load_template("reba", copies=4), tokenizer, 5) == 1

    assert message_of(SpecError, lambda: text_limit(load_template("reba", copies=4), tokenizer, 4)) == (
        "the template 'reba' takes 1 of the 4 tokens the model reads, no text fits\n"
        "  hint: shorten the instruction or the template, or raise the length"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classical", "llm2vec", "llm2vec-llama3", "prompteol-original"])
def test_of_a_long_text_only_the_start_is_tokenised_and_nothing_changes(
    name: str, tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'The "old" mill by the river </s> Ünï 東京. ' * 3000
    template = load_template(name)
    monkeypatch.setattr(tokenizer, "head", lambda text, limit: text)
    whole = render(template, [text], tokenizer, limit=9)
    monkeypatch.undo()
    n_chars: list[int] = []
    backend = tokenizer.texts
    monkeypatch.setattr(
        tokenizer, "ids", lambda texts: [n_chars.extend(map(len, texts)), TextTokenizer.ids(tokenizer, texts)][1]
    )
    monkeypatch.setattr(
        tokenizer, "spans", lambda texts: [n_chars.extend(map(len, texts)), TextTokenizer.spans(tokenizer, texts)][1]
    )

    quick = render(template, [text], tokenizer, limit=9)

    assert backend is tokenizer.texts
    assert quick == whole
    assert quick[0].truncated
    assert 0 < max(n_chars) < 20_000 < len(text)


def test_white_space_at_the_end_that_a_form_drops_does_not_count_as_text(tokenizer: TextTokenizer) -> None:
    template = load_template("llm2vec-qwen2")

    short, long = render(template, ["mill", "mill" + " " * 5000], tokenizer, limit=8)

    assert short == long
    assert not long.truncated
