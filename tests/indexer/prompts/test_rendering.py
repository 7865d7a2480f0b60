"""Rendering: which tokens are read and which are pooled, for hostile and random texts, with every template."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts.rendering import (
    Rendered,
    Rules,
    clean,
    n_copies,
    positions_of_words,
    render,
    render_words,
    text_limit,
)
from ragidx.indexer.prompts.templates import Template, load_template, template_names
from ragidx.indexer.prompts.tokenizer import TextTokenizer

CHAT = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<start_of_turn>"]
CHAT += ["<end_of_turn>"]
PIECES = [*("</s>", "<s>", "<pad>", "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|", "|>", "[INST]", "[/INST]")]
PIECES += [*("{text}", "{instruction}", "{eos}", " ", "\n", '"', "mill", " the river", "東京", "é", "ing", "'", "?")]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=8).map("".join)
BARE = Rules(pool_eos=False)


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer: Any) -> TextTokenizer:
    """The tiny tokenizer with the special tokens of the chat forms, which no text may spell."""
    chatty = copy.deepcopy(tiny_tokenizer)
    chatty.add_special_tokens({"additional_special_tokens": CHAT})
    return TextTokenizer.of(chatty, model="tiny")


@pytest.fixture(scope="module")
def closing(tiny_tokenizer: Any) -> TextTokenizer:
    """A tokenizer that puts an EOS behind every text by itself, as some do."""
    from tokenizers.processors import TemplateProcessing

    other = copy.deepcopy(tiny_tokenizer)
    other.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return TextTokenizer.of(other, model="tiny")


def bare(tiny_tokenizer: Any, *, bos: bool = False, eos: bool = False) -> TextTokenizer:
    """A tokenizer that puts nothing around a text, with or without the two tokens."""
    other = copy.deepcopy(tiny_tokenizer)
    other.backend_tokenizer.post_processor = None
    tokenizer = TextTokenizer.of(other, model="tiny")
    tokenizer.prefix, tokenizer.bos, tokenizer.eos = [], 0 if bos else None, 1 if eos else None
    return tokenizer


def read(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    return tokenizer.pieces.decode(list(ids), skip_special_tokens=False)


def pooled(tokenizer: TextTokenizer, row: Rendered) -> str:
    return read(tokenizer, [row.ids[i] for i in row.positions()])


def prompts(template: Template) -> list[Template]:
    return [template, *template.also]


def rows_of(row: Rendered) -> list[Rendered]:
    return [row, *row.also]


def as_read(template: Template, text: str) -> str:
    """The text as a template puts it in."""
    return clean(text) if template.clean else text.rstrip() if template.strip else text


def written(form: str) -> str:
    for slot, spelling in (("{start}", "<s>"), ("{bos}", "<s>"), ("{eos}", "</s>")):
        form = form.replace(slot, spelling)
    return form


# --- what is read


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, name=st.sampled_from(template_names()), instruction=st.sampled_from([None, "", "Find it"]))
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


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, name=st.sampled_from(template_names()))
def test_no_text_brings_or_takes_a_special_token(text: str, name: str, tokenizer: TextTokenizer) -> None:
    special = {n for n, token in tokenizer.pieces.get_added_tokens_decoder().items() if token.special}
    template = load_template(name)

    row, plain = render(template, [text, "x"], tokenizer)

    for one, other in zip(rows_of(row), rows_of(plain), strict=True):
        assert [i for i in one.ids if i in special] == [i for i in other.ids if i in special]


def test_a_special_token_that_only_text_and_template_together_spell_stays_text(tokenizer: TextTokenizer) -> None:
    template = load_template("{bos}<{text}> mill", method="llm2vec")  # `{bos}`: special tokens of the form are parsed

    row = render(template, ["/s"], tokenizer, rules=BARE)[0]

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


# --- what is pooled


def _expected_count(template: Template, text: str, tokenizer: TextTokenizer) -> int:
    if template.span == "last":
        return 1
    n = len(tokenizer.ids([as_read(template, text)])[0])
    pools = sum(1 for piece in template.document if piece.text == "{text}" and piece.pool is True)
    return n if template.joined else n * pools


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, name=st.sampled_from(template_names()), copies=st.integers(2, 4))
def test_the_pooled_span_counts_exactly_the_texts_tokens_with_every_template(
    text: str, name: str, copies: int, tokenizer: TextTokenizer
) -> None:
    template = load_template(name, copies=copies if name in ("reba", "echo-copies") else None)

    row = render(template, [text], tokenizer, rules=BARE)[0]

    for prompt, one in zip(prompts(template), rows_of(row), strict=True):
        places = one.positions()
        assert len(places) == _expected_count(prompt, text, tokenizer)
        assert places == sorted(set(places))
        assert all(0 <= place < len(one.ids) for place in places)


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
        render(template, [text], tokenizer, instruction=instruction, rules=rules)[0] for rules in (Rules(), BARE)
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

    row = render(template, [" th"], tokenizer, rules=BARE)[0]

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


@pytest.mark.parametrize("name", template_names())
def test_eos_pooling_reads_one_eos_at_the_very_end_and_pools_it_alone(name: str, tokenizer: TextTokenizer) -> None:
    template = load_template(name)

    row, plain = (render(template, ["a mill"], tokenizer, rules=Rules(span=span))[0] for span in ("eos", ""))

    for one, other in zip(rows_of(row), rows_of(plain), strict=True):
        assert one.ids == (other.ids if other.ids[-1] == 1 else [*other.ids, 1])
        assert one.positions() == [len(one.ids) - 1]


@pytest.mark.parametrize("name", template_names())
def test_bos_pooling_pools_the_first_token_alone(name: str, tokenizer: TextTokenizer) -> None:
    row = render(load_template(name), ["a mill"], tokenizer, rules=Rules(span="bos"))[0]

    for one in rows_of(row):
        assert one.ids[0] == 0
        assert one.positions() == [0]


@pytest.mark.parametrize("name", template_names())
def test_trainable_pooling_reads_every_token_and_an_eos_at_the_end(name: str, tokenizer: TextTokenizer) -> None:
    row = render(load_template(name), ["a mill"], tokenizer, rules=Rules(span="all"))[0]

    for one in rows_of(row):
        assert one.ids[-1] == 1
        assert one.positions() == list(range(len(one.ids)))


@pytest.mark.parametrize("span", ["eos", "all"])
def test_a_model_without_an_eos_has_none_to_pool(span: str, tiny_tokenizer: Any) -> None:
    with pytest.raises(SpecError) as fault:
        render(load_template("classical"), ["a"], bare(tiny_tokenizer, bos=True), rules=Rules(span=span))

    assert str(fault.value) == (
        "--pooling: the model's tokenizer has no EOS token to pool\n"
        "  hint: choose another pooling, such as --pooling last"
    )


@pytest.mark.parametrize("bos", [True, False])  # with one that nothing puts in front, and with none
def test_a_model_that_reads_no_bos_has_none_to_pool(bos: bool, tiny_tokenizer: Any) -> None:
    with pytest.raises(SpecError) as fault:
        render(load_template("classical"), ["a"], bare(tiny_tokenizer, bos=bos), rules=Rules(span="bos"))

    assert str(fault.value) == (
        "--pooling: what the model reads does not begin with a BOS token, so there is none to pool\n"
        "  hint: choose another pooling, such as --pooling mean"
    )


def test_a_bos_that_the_template_names_can_be_pooled(tiny_tokenizer: Any) -> None:
    tokenizer = bare(tiny_tokenizer, bos=True, eos=True)

    row = render(load_template("echo-trained"), ["a"], tokenizer, rules=Rules(span="bos"))[0]

    assert row.positions() == [0]


# --- what is too long


def test_known_cuts(tokenizer: TextTokenizer) -> None:
    text = "0123456789"
    own = tokenizer.ids([text])[0]
    assert len(own) == 10

    def ids(limit: int, truncate: str) -> list[int]:
        row = render(load_template("classical"), [text], tokenizer, limit=limit, rules=Rules(truncate=truncate))[0]
        assert row.truncated == (limit < 10)
        return row.ids[1:]

    assert ids(5, "end") == own[:5]
    assert ids(5, "middle") == own[:2] + own[7:]
    assert ids(4, "middle") == own[:2] + own[8:]
    assert ids(1, "middle") == own[9:]
    assert ids(10, "middle") == ids(11, "end") == own


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

    row = render(load_template(name), [text], tokenizer, limit=limit, rules=Rules(pool_eos=False, truncate=truncate))[0]
    empty = render(load_template(name), [""], tokenizer)[0]

    assert [row.ids[i] for i in row.positions()] == kept
    assert len(row.ids) == len(empty.ids) + 2 * len(kept)
    assert row.truncated == (len(own) > limit)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, limit=st.integers(1, 20), truncate=st.sampled_from(["end", "middle"]))
def test_whole_strings_keep_the_start_or_both_ends_of_the_text_and_no_character_twice(
    text: str, limit: int, truncate: str, tokenizer: TextTokenizer
) -> None:
    template = load_template("llm2vec")

    row = render(template, [text], tokenizer, limit=limit, rules=Rules(truncate=truncate))[0]

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

    row = render(load_template("llm2vec"), [text], tokenizer, limit=8, rules=Rules(truncate="middle"))[0]

    assert read(tokenizer, row.ids) == f"<s>{text}"


@settings(max_examples=150, deadline=None)
@given(
    text=TEXTS.map(lambda text: text * 20),
    name=st.sampled_from(template_names()),
    truncate=st.sampled_from(["end", "middle"]),
    span=st.sampled_from(["", "eos", "all"]),
    spare=st.integers(4, 60),
    instruction=st.sampled_from([None, "", "Find it"]),
)
def test_within_the_limit_of_a_text_the_model_reads_no_more_than_it_can(
    text: str, name: str, truncate: str, span: str, spare: int, instruction: str | None, tokenizer: TextTokenizer
) -> None:
    template, rules = load_template(name), Rules(truncate=truncate, span=span)
    empty = render(template, [""], tokenizer, instruction=instruction, rules=rules)[0]
    copies = n_copies(template, instruction)
    length = empty.longest + (8 if template.joined else 0) + spare

    limit = text_limit(template, tokenizer, length, instruction, rules)
    row = render(template, [text], tokenizer, instruction=instruction, limit=limit, rules=rules)[0]

    assert limit == spare // copies
    assert row.longest <= length


def test_known_limits(tokenizer: TextTokenizer) -> None:
    def limit(name: str, length: int, copies: int | None = None, **rules: Any) -> int | None:
        return text_limit(load_template(name, copies=copies), tokenizer, length, None, Rules(**rules))

    assert limit("classical", 20) == 19
    assert limit("classical", 20, span="eos") == 18
    assert limit("reba", 20) == 9
    assert limit("reba", 20, copies=3) == 6
    assert limit("llm2vec", 20) == 11  # a whole string may have eight tokens more than its parts
    assert text_limit(load_template("classical"), tokenizer, None) is None
    assert text_limit(load_template("{text} {text}", method="prompteol"), tokenizer, 20) == (20 - 2 - 16) // 2


def test_a_template_that_leaves_no_room_for_a_text_is_refused(tokenizer: TextTokenizer) -> None:
    assert text_limit(load_template("reba", copies=4), tokenizer, 5) == 1

    with pytest.raises(SpecError) as fault:
        text_limit(load_template("reba", copies=4), tokenizer, 4)

    assert str(fault.value) == (
        "the template 'reba' takes 1 of the 4 tokens the model reads, no text fits\n"
        "  hint: shorten the instruction or the template, or raise the length"
    )


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
        tokenizer, "batch", lambda texts: [n_chars.extend(map(len, texts)), TextTokenizer.batch(tokenizer, texts)][1]
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


@pytest.mark.parametrize("name", ["classical", "llm2vec", "echo"])
def test_cutting_in_the_middle_reads_the_end_of_a_long_text(name: str, tokenizer: TextTokenizer) -> None:
    text = "start " + "word " * 4000 + "finish"

    row = render(load_template(name), [text], tokenizer, limit=20, rules=Rules(pool_eos=False, truncate="middle"))[0]

    assert pooled(tokenizer, row).startswith("start")
    assert pooled(tokenizer, row).endswith("finish")


# --- words


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
    method = "" if name in template_names() else "llm2vec"
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


def test_rules_and_rows_are_values(tokenizer: TextTokenizer) -> None:
    row = render(load_template("classical"), ["a"], tokenizer)[0]

    with pytest.raises(dataclasses.FrozenInstanceError):
        row.truncated = True  # type: ignore[misc]
    assert hash(Rules()) == hash(Rules(True, "end", ""))
