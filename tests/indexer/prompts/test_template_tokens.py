"""Templates: what the model reads and pools of each, and that a text can never change it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.indexer.prompts.rendering import clean, render, text_limit
from ragidx.indexer.prompts.templates import load_template, template_of
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

from .rendering_kit import TEMPLATES, pooled, read


def test_echo_repeats_the_text_and_pools_the_second_copy_with_eos(tokenizer: TextTokenizer) -> None:
    row = render(load_template("echo"), ["the old mill"], tokenizer)[0]

    assert read(tokenizer, row.ids) == (
        "<s>Rewrite the following paragraph: the old mill. The rewritten paragraph: the old mill</s>"
    )
    assert pooled(tokenizer, row) == "the old mill</s>"


def test_echo_without_eos_pools_the_second_copy_alone(tokenizer: TextTokenizer) -> None:
    row = render(load_template("echo"), ["the old mill"], tokenizer, spec=EncoderSpec(pool_eos=False))[0]

    assert pooled(tokenizer, row) == "the old mill"


def test_trained_echo_reads_as_its_authors_write_it(tokenizer: TextTokenizer) -> None:
    template = load_template("echo-trained")

    document = render(template, ["X"], tokenizer)[0]
    query = render(template, ["X"], tokenizer, instruction="Find it")[0]

    assert read(tokenizer, document.ids) == "<s>Document:X\nDocument again:X</s>"
    assert read(tokenizer, query.ids) == "<s>Instruct:Find it,\nQuery:X\nQuery again:X</s>"


def test_the_baselines_of_echos_authors_read_as_their_paper_writes_them(tokenizer: TextTokenizer) -> None:
    zero_shot, trained = load_template("classical-paper"), load_template("document-query")

    [row], [query] = (render(zero_shot, ["X"], tokenizer, instruction=i) for i in (None, "Find it"))
    assert read(tokenizer, row.ids) == "<s>Write a paragraph: X</s>"
    assert read(tokenizer, query.ids) == "<s>Instruct: Find it\nQuery: Write a paragraph: X</s>"
    rows = [render(trained, ["X"], tokenizer, instruction=i)[0] for i in (None, "Find it", "")]
    assert [read(tokenizer, one.ids) for one in rows] == [
        "<s>Document:X</s>",
        "<s>Instruct:Find it,\nQuery:X</s>",
        "<s>Query:X</s>",
    ]
    assert {pooled(tokenizer, one) for one in (row, query, *rows)} == {"X</s>"}


@pytest.mark.parametrize(
    ("method", "template", "document", "query"),
    [
        ("classical", "Document: {text}", "<s>Document: X", "<s>Query: X"),
        ("classical", "classical", "<s>X", "<s>Query: X"),  # documents keep the method's own
        ("echo", "echo", "<s>Rewrite the following paragraph: X. The rewritten paragraph: X</s>", "<s>Query: X"),
        ("llm2vec", "D: {text}", "<s>D: X", "<s>Query: X"),
    ],
)
def test_queries_can_have_a_template_of_their_own(
    method: str, template: str, document: str, query: str, tokenizer: TextTokenizer
) -> None:
    asked = EncoderSpec(method=method, template=template, template_query="Query: {text}", pool_eos=False)
    both = template_of(asked, "")

    sides = [render(both, ["X"], tokenizer, instruction=instruction, spec=asked)[0] for instruction in (None, "")]

    assert [read(tokenizer, side.ids) for side in sides] == [document, query]
    assert [pooled(tokenizer, side).strip() for side in sides] == ["X", "X"]
    limits = [text_limit(both, tokenizer, 64, instruction) for instruction in (None, "")]
    alone = [load_template(template, method=method), load_template("Query: {text}", method=method)]
    assert limits == [text_limit(one, tokenizer, 64) for one in alone]
    assert (
        both.content() != alone[0].content() == template_of(EncoderSpec(method=method, template=template), "").content()
    )


def test_a_query_without_instruction_loses_its_pieces(tokenizer: TextTokenizer) -> None:
    row = render(load_template("classical"), ["X"], tokenizer, instruction="")[0]

    assert read(tokenizer, row.ids) == "<s>X"
    assert pooled(tokenizer, row) == "X"


def test_the_instruction_is_read_and_notpooled(tokenizer: TextTokenizer) -> None:
    for name in ("classical", "llm2vec", "echo"):
        row = render(
            load_template(name), ["the mill"], tokenizer, instruction="Find mills", spec=EncoderSpec(pool_eos=False)
        )[0]

        assert "Find mills" in read(tokenizer, row.ids)
        assert pooled(tokenizer, row).strip() == "the mill"


def test_prompteol_pools_the_last_token_and_differs_by_family(tokenizer: TextTokenizer) -> None:
    row = render(load_template("prompteol"), ["a mill"], tokenizer)[0]

    assert read(tokenizer, row.ids) == '<s>Summarize the sentence: "a mill" in one word:"'
    assert row.pooled == ((len(row.ids) - 1, len(row.ids)),)
    mistral = render(load_template("prompteol", "mistral"), ["a mill"], tokenizer)[0]
    assert read(tokenizer, mistral.ids) == '<s>This sentence: "a mill" means [MASK]'


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=300), name=st.sampled_from(TEMPLATES), length=st.integers(200, 224))
def test_what_is_too_long_is_cut_in_the_text_and_the_prompt_stays_whole(
    text: str, name: str, length: int, tokenizer: TextTokenizer
) -> None:
    template = load_template(name)
    limit = text_limit(template, tokenizer, length)

    row = render(template, [text], tokenizer, limit=limit)[0]
    empty = render(template, [""], tokenizer)[0]

    assert len(row.ids) <= length
    n_tokens = len(tokenizer.ids([clean(text) if template.clean else text])[0])
    # A joined template is cut between characters: up to three tokens more, where one takes four.
    spare = 3 if template.joined else 0
    assert limit is not None
    assert row.truncated or n_tokens <= limit + spare
    assert n_tokens > limit or not row.truncated
    # `<s>` in front and what stands behind the text are those of the empty text
    assert row.ids[0] == empty.ids[0]
    if not template.document[-1].text.endswith("{text}"):
        assert row.ids[-1:] == empty.ids[-1:]


def test_a_users_string_is_a_template_whose_last_text_ispooled(tokenizer: TextTokenizer) -> None:
    row = render(load_template("Again: {text} / {text} end"), ["a mill"], tokenizer)[0]

    assert read(tokenizer, row.ids) == "<s>Again: a mill / a mill end"
    assert pooled(tokenizer, row) == "a mill"
    assert row.pooled[0][0] > len(row.ids) // 2


def test_a_users_string_for_prompteol_is_read_whole_and_its_last_tokenpooled(tokenizer: TextTokenizer) -> None:
    template = load_template('Say "{text}" in a word:"', method="prompteol")

    document, query = (render(template, ["a mill"], tokenizer, instruction=i)[0] for i in (None, "Find it"))

    assert read(tokenizer, document.ids) == '<s>Say "a mill" in a word:"'
    assert document.pooled == ((len(document.ids) - 1, len(document.ids)),)
    assert read(tokenizer, query.ids) == '<s>Instruct: Find it\nSay "a mill" in a word:"'


def test_a_users_string_for_metaeol_holds_a_prompt_a_line(tokenizer: TextTokenizer) -> None:
    template = load_template('One "{text}":"\n\n  \nTwo "{text}":"\n', method="metaeol")

    row = render(template, ["a mill"], tokenizer)[0]

    assert [read(tokenizer, one.ids) for one in (row, *row.also)] == ['<s>One "a mill":"', '<s>Two "a mill":"']
    assert all(one.pooled == ((len(one.ids) - 1, len(one.ids)),) for one in (row, *row.also))


def test_a_users_string_for_llm2vec_is_read_whole_and_its_textpooled(tokenizer: TextTokenizer) -> None:
    template = load_template("[INST] {instruction} {text} [/INST]", method="llm2vec")

    document, query = (
        render(template, ["the mill"], tokenizer, instruction=i, spec=EncoderSpec(pool_eos=False))[0]
        for i in (None, "Find it")
    )

    assert template.instructed
    assert read(tokenizer, document.ids) == "<s>[INST] the mill [/INST]"
    assert read(tokenizer, query.ids) == "<s>[INST] Find it the mill [/INST]"
    assert pooled(tokenizer, query).strip() == "the mill"


@pytest.mark.parametrize(
    ("template", "document"),
    [
        ("{instruction} {text}", "X"),
        ("{instruction}{text}", "X"),
        ("A {instruction} {text}", "A X"),
        ("A: {instruction}\n{text}", "A: X"),
        ("{text} {instruction}", "X"),
        ("{text} ({instruction})", "X ()"),
    ],
)
def test_a_document_is_read_without_the_instruction_and_the_space_after_it(
    template: str, document: str, tokenizer: TextTokenizer
) -> None:
    row = render(load_template(template, method="llm2vec"), ["X"], tokenizer)[0]

    assert read(tokenizer, row.ids) == f"<s>{document}"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("llm2vec-inst", "[INST] ", " [/INST]"),
        ("llm2vec-llama3", "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        ("llm2vec-gemma", "<start_of_turn>user\n", "<end_of_turn>"),
        ("llm2vec-qwen2", "<|im_start|>user\n", "<|im_end|>"),
    ],
)
@pytest.mark.parametrize("instruction", [None, "", "Find it"])
def test_a_chat_form_drops_white_space_behind_the_text_and_keeps_what_is_before_it(
    name: str, before: str, after: str, instruction: str | None, tokenizer: TextTokenizer
) -> None:
    """The authors strip the whole string while a separator, which is then taken out, stands before the text."""
    row = render(load_template(name), ["  the mill \t\n"], tokenizer, instruction=instruction)[0]

    assert read(tokenizer, row.ids) == f"<s>{before}{instruction + ' ' if instruction else ''}  the mill{after}"


@pytest.mark.parametrize(("pooling", "expected"), [("eos", "  the mill</s>"), ("mean", "  the mill \t\n")])
def test_white_space_before_an_end_token_that_is_pooled_is_dropped(
    pooling: str, expected: str, tokenizer: TextTokenizer
) -> None:
    row = render(load_template("llm2vec"), ["  the mill \t\n"], tokenizer, spec=EncoderSpec(pooling=pooling))[0]

    assert read(tokenizer, row.ids) == f"<s>{expected}"


def test_a_users_string_elsewhere_is_cut_at_its_texts(tokenizer: TextTokenizer) -> None:
    template = load_template("Do {instruction}: {text} / {text}!", method="echo")

    document, query = (render(template, ["a mill"], tokenizer, instruction=i)[0] for i in (None, "it"))

    assert [piece.text for piece in template.document] == ["Do {instruction}: ", "{text}", " / ", "{text}", "!"]
    assert read(tokenizer, document.ids) == "<s>a mill / a mill!"  # the part that holds {instruction} is left out
    assert read(tokenizer, query.ids) == "<s>Do it: a mill / a mill!"
    for row in (document, query):
        assert pooled(tokenizer, row) == "a mill"
        assert row.pooled[0][1] == len(row.ids) - 1
