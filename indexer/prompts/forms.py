"""The strings that are sent to an endpoint: whole texts, since only the server knows its model's tokens.

A form has `{text}` once or more, that of queries also `{instruction}`. One form is that of queries, and documents are
sent as they are; two, separated by `||`, are those of documents and of queries.

    search_document: {text}||search_query: {text}
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts.instructions import check_text
from ragidx.indexer.prompts.templates import DEFAULT_INSTRUCTION, check_instruction

BETWEEN = "||"
_INSTRUCTED = "Instruct: {instruction}\nQuery: {text}"


@dataclass(frozen=True)
class Forms:
    """What is sent for a text."""

    document: str = "{text}"
    query: str = ""  # empty: the text alone, or behind its instruction

    @property
    def instruction(self) -> str:
        """The instruction of queries, where none is named."""
        return DEFAULT_INSTRUCTION if "{instruction}" in self.query else ""

    def filled(self, text: str, instruction: str | None) -> str:
        """What is sent; `instruction` None: for a document. A query whose form has a place for one, and gets none, is
        sent as it is.

        Raises:
            SpecError: the form has no place for the instruction, or the instruction holds a placeholder.

        >>> Forms("{text}", "query: {text}").filled("a {text}", "")
        'query: a {text}'
        """
        form = self.document if instruction is None else self._query(instruction)
        return text.join(form.split("{text}"))

    def _query(self, instruction: str) -> str:
        if not instruction:
            return "{text}" if "{instruction}" in self.query else self.query or "{text}"
        form = self.query or _INSTRUCTED
        check_instruction(instruction, form, [form])
        return form.replace("{instruction}", instruction)


def forms_of(template: str) -> Forms:
    """The forms of a user's template; empty: none.

    Raises:
        SpecError: one has no `{text}`, a placeholder that is not known, or an instruction for documents.

    >>> forms_of("passage: {text}||query: {text}")
    Forms(document='passage: {text}', query='query: {text}')
    """
    if not template:
        return Forms()
    check_text(template, "`template`")
    document, between, query = template.partition(BETWEEN)
    if not between:
        document, query = "{text}", template
    for form, known in ((document, ("text",)), (query, ("text", "instruction"))):
        unknown = next((slot for slot in re.findall(r"\{(\w*)\}", form) if slot not in known), None)
        if unknown is not None:
            raise SpecError(
                f"the template has the placeholder '{{{unknown}}}', which is not known there",
                "known: {text}, and {instruction} for queries",
                where="`template`",
            )
        if "{text}" not in form:
            raise SpecError(
                f"the template '{form}' has no {{text}}",
                f"write the form of queries, or both as 'passage: {{text}}{BETWEEN}query: {{text}}'",
                where="`template`",
            )
    return Forms(document, query)
