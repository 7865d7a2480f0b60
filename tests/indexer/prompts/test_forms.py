"""What is sent to a server for a text: forms of documents and queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts.forms import Forms, forms_of
from ragidx.indexer.prompts.templates import DEFAULT_INSTRUCTION

from ...raising import message_of


def test_without_a_template_texts_are_sent_as_they_are_and_instructions_before_queries() -> None:
    forms = forms_of("")

    assert forms == Forms()
    assert (forms.filled("t", None), forms.filled("t", ""), forms.instruction) == ("t", "t", "")
    assert forms.filled("t", "Find it") == "Instruct: Find it\nQuery: t"


def test_one_form_is_that_of_queries() -> None:
    forms = forms_of("query: {text}")

    assert (forms.filled("t", None), forms.filled("t", "")) == ("t", "query: t")


def test_two_forms_are_those_of_documents_and_queries() -> None:
    forms = forms_of("search_document: {text}||search_query: {text}")

    assert (forms.filled("t", None), forms.filled("t", "")) == ("search_document: t", "search_query: t")


def test_a_form_with_a_place_for_an_instruction_has_one_by_default() -> None:
    forms = forms_of("Instruct: {instruction}\nQuery:{text}")

    assert forms.instruction == DEFAULT_INSTRUCTION
    assert forms.filled("t", "Find it") == "Instruct: Find it\nQuery:t"
    assert forms.filled("t", "") == "t"  # `instruction` empty: none


@given(text=st.text())
def test_a_text_is_never_a_placeholder(text: str) -> None:
    forms = forms_of("{text}|{text}||<{instruction}> {text}")

    assert forms.filled(text, None) == f"{text}|{text}"
    assert forms.filled(text, "Find") == f"<Find> {text}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "query:",
            "`template`: the template 'query:' has no {text}\n"
            "  hint: write the form of queries, or both as 'passage: {text}||query: {text}'",
        ),
        (
            "passage||query: {text}",
            "`template`: the template 'passage' has no {text}\n"
            "  hint: write the form of queries, or both as 'passage: {text}||query: {text}'",
        ),
        (
            "{instruction} {text}||{text}",
            "`template`: the template has the placeholder '{instruction}', which is not known there\n"
            "  hint: known: {text}, and {instruction} for queries",
        ),
        (
            "{bos}{text}",
            "`template`: the template has the placeholder '{bos}', which is not known there\n"
            "  hint: known: {text}, and {instruction} for queries",
        ),
    ],
)
def test_a_form_that_would_lose_something_is_refused(template: str, message: str) -> None:
    assert message_of(SpecError, lambda: forms_of(template)) == message


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            "Find it",
            "`instruction`: the template 'q: {text}' has no {instruction}, so the instruction would not be read\n"
            "  hint: say where it goes, such as '{instruction} {text}', or remove the instruction",
        ),
        ("Find {text}", "`instruction`: the instruction holds the placeholder '{text}'\n  hint: remove it"),
    ],
)
def test_an_instruction_that_is_not_read_is_refused(instruction: str, message: str) -> None:
    assert message_of(SpecError, lambda: forms_of("q: {text}").filled("t", instruction)) == message
