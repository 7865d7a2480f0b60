"""Templates: which there are, whose they are, what they hold, and which strings are none."""

from __future__ import annotations

import pytest

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.prompts.templates import default_copies, load_template, template_of_model
from ragidx.indexer.prompts.tokenizer import TextTokenizer

from ...raising import message_of
from .rendering_kit import TEMPLATES


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ecco", "unknown template 'ecco'; did you mean 'echo'?\n  hint: known: " + ", ".join(TEMPLATES)),
        (
            "no place for it",
            "`template`: the template has no {text}\n  hint: say where the text goes, such as 'Passage: {text}'",
        ),
        (
            "{text} {txt}",
            "`template`: the template has an unknown placeholder '{txt}'\n"
            "  hint: known: {text}, {instruction}, {bos}, {eos}",
        ),
    ],
)
def test_a_wrong_template_is_named(name: str, message: str) -> None:
    assert message_of(SpecError, lambda: load_template(name)) == message


@pytest.mark.parametrize(
    ("template", "instruction", "message"),
    [
        (
            "Passage: {text}",
            "Find it",
            "`instruction`: the template 'Passage: {text}' has no {instruction}, so the instruction would not be read\n"
            "  hint: say where it goes, such as '{instruction} {text}', or remove the instruction",
        ),
        (
            "classical",
            "Find {text}",
            "`instruction`: the instruction holds the placeholder '{text}'\n  hint: remove it",
        ),
    ],
)
def test_an_instruction_that_cannot_be_read_is_refused(template: str, instruction: str, message: str) -> None:
    assert message_of(SpecError, lambda: load_template(template).side(instruction)) == message


@pytest.mark.parametrize("template", [*TEMPLATES, "Passage: {text}"])
def test_an_empty_instruction_is_none(template: str) -> None:
    side = load_template(template).side(" ")

    assert not any("{instruction}" in piece.text for piece in side)
    assert any("{text}" in piece.text for piece in side)


@pytest.mark.parametrize(
    ("template", "method", "message"),
    [
        (
            "{text} {text}",
            "llm2vec",
            "`template`: the template holds {text} more than once, and this method pools one\n  hint: keep one",
        ),
        (
            "One {text}\nTwo",
            "metaeol",
            "`template`: the template has no {text}\n  hint: say where the text goes, such as 'Passage: {text}'",
        ),
        (
            " \n ",
            "metaeol",
            "`template`: the template has no {text}\n  hint: say where the text goes, such as 'Passage: {text}'",
        ),
        (
            "{texts}",
            "prompteol",
            "`template`: the template has an unknown placeholder '{texts}'\n"
            "  hint: known: {text}, {instruction}, {bos}, {eos}",
        ),
    ],
)
def test_a_users_string_that_the_method_cannot_read_is_refused(template: str, method: str, message: str) -> None:
    assert message_of(SpecError, lambda: load_template(template, method=method)) == message


@pytest.mark.parametrize("name", [*sorted({*TEMPLATES} - {"reba", "echo-copies"}), "{text} {text}"])
def test_copies_of_a_template_that_has_none_are_refused(name: str) -> None:
    assert default_copies(name) is None

    assert message_of(SpecError, lambda: load_template(name, copies=2)) == (
        f"`copies`: the template '{name}' does not repeat the text\n"
        "  hint: remove `copies`, or use `method=reba` or `method=echo` without a template"
    )


def test_a_repeating_template_repeats_twice_unless_told_and_copies_change_its_content() -> None:
    for name in ("reba", "echo-copies"):
        assert default_copies(name) == 2
        contents = [load_template(name, copies=copies).content() for copies in (None, 1, 2, 3)]

        assert contents[0] == contents[2]
        assert len(set(contents)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "names", "template"),
    [
        ("llm2vec", ["mistralai/Mistral-7B-Instruct-v0.2"], "llm2vec-inst"),
        ("llm2vec", ["meta-llama/Llama-2-7b-chat-hf"], "llm2vec-inst"),
        ("llm2vec", ["a/folder", "meta-llama/Meta-Llama-3-8B-Instruct"], "llm2vec-llama3"),
        ("llm2vec", ["google/gemma-2-9b-it"], "llm2vec-gemma"),
        ("llm2vec", ["Qwen/Qwen2-7B-Instruct"], "llm2vec-qwen2"),
        ("llm2vec", ["meta-llama/Meta-Llama-3-8B"], None),  # exact names, as their authors' code has it
        ("llm2vec", ["Meta-Llama-3-8B-Instruct"], None),
        ("llm2vec", [], None),
        ("echo", ["google/gemma-2-9b-it"], None),
        ("classical", ["mistralai/Mistral-7B-Instruct-v0.2"], None),
    ],
)
def test_a_model_name_chooses_the_template_of_its_authors(method: str, names: list[str], template: str | None) -> None:
    assert template_of_model(method, names) == template


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_of_the_package_is_whole(name: str) -> None:
    template = load_template(name)

    for prompt in (template, *template.also):
        for side in filter(None, (prompt.document, prompt.query, prompt.plain)):
            texts = [piece.text for piece in side if "{text}" in piece.text]
            assert texts
            if not prompt.joined:  # in pieces the text is one of its own: its ids are the same in every copy
                assert set(texts) == {"{text}"}
                assert any(piece.pool is True for piece in side if piece.text == "{text}")
        assert any("{instruction}" in piece.text for piece in prompt.query)
        assert not any("{instruction}" in piece.text for piece in prompt.document)
        assert prompt.span in (("text", "last") if prompt.joined else ("pieces",))


def test_a_tokenizer_without_a_fast_version_is_refused() -> None:
    with pytest.raises(ModelError, match="the tokenizer of 'old' has no fast version"):
        TextTokenizer.of(object(), model="old")


def test_templates_that_differ_have_other_content() -> None:
    contents = [load_template(name).content() for name in TEMPLATES]

    assert len(set(contents)) == len(contents)
    assert load_template("reba", copies=1).content() == (  # as indexes store it
        '[[[["{text}", true]], [["Instruct: {instruction}\\nQuery: ", false], ["{text}", true]], []], '
        'false, "pieces", "start", false, false, []]'
    )
    assert load_template("prompteol", "mistral").content() != load_template("prompteol").content()
