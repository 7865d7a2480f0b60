"""Instructions by task: `task:SciFact` means the instruction for queries of SciFact.

The sentences are data (instructions.toml, whose head names their sources). Templates
put an instruction before a query.
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from ragidx.corpora.errors import SpecError, lone_surrogate

PREFIX = "task:"


def instruction(text: str | None) -> str | None:
    """The sentence that a user's `instruction` means.

    Args:
        text: `task:NAME` for the sentence of a task; its case and its punctuation do not matter. Anything else is the
            sentence itself, "task: find the answer" with its space too. None (not set) stays None.

    Raises:
        SpecError: no such task, or a training set that is used with more than one sentence.

    >>> instruction("task:trec-covid")
    'Given a query on COVID-19, retrieve documents that answer the query'
    >>> instruction("Find the answer"), instruction(None)
    ('Find the answer', None)
    """
    if text is None or not re.match(rf"{PREFIX}\S", text):
        check_text(text or "", "`instruction`")
        return text
    name = text.removeprefix(PREFIX)
    known = {_folded(task): task for task in task_instructions()}
    if _folded(name) not in known:
        near = difflib.get_close_matches(_folded(name), known, n=1)
        raise SpecError(
            f"unknown task '{name}'" + (f"; did you mean '{known[near[0]]}'?" if near else ""),
            "`ragidx models --tasks` lists the tasks with their instructions; or write the instruction itself",
            where="`instruction`",
        )
    task = known[_folded(name)]
    sentences = task_instructions()[task]
    if len(sentences) > 1:
        raise SpecError(
            f"'{task}' is used with {len(sentences)} instructions: {'; '.join(map(repr, sentences))}",
            "write the one you mean in place of the name",
            where="`instruction`",
        )
    return sentences[0]


def check_text(text: str, where: str) -> None:
    """Refuse a string that is not Unicode text; the command line makes one of bytes that are not UTF-8.

    Raises:
        SpecError: it holds half of a surrogate pair.
    """
    at = lone_surrogate(text)
    if at is not None:
        raise SpecError(f"no Unicode text at character {at}", "write it in UTF-8, as your terminal should", where=where)


@functools.cache
def task_instructions() -> Mapping[str, tuple[str, ...]]:
    """The sentences of each task, evaluation tasks first; more than one for a training set that is used in two ways."""
    data = tomllib.loads(resources.files("ragidx.indexer.prompts").joinpath("instructions.toml").read_text("utf-8"))
    evaluation = {name: (sentence,) for name, sentence in data["evaluation"].items()}
    training = {name: tuple(sentences) for name, sentences in data["training"].items() if name not in evaluation}
    return MappingProxyType(evaluation | training)


def _folded(name: str) -> str:
    """`TREC-COVID`, `trec_covid` and `TRECCOVID` are one name."""
    return "".join(character for character in name.casefold() if character.isalnum())
