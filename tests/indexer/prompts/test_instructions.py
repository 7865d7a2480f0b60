"""Instructions by task: a name stands for its sentence, anything else for itself, and a slip is told what was meant."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts import instructions
from ragidx.indexer.prompts.instructions import instruction, task_instructions
from ragidx.indexer.specs import EncoderSpec

from ...raising import message_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("text", ["task:SciFact", "task:scifact", "task:SCIFACT", "task:Sci-Fact"])
def test_a_task_stands_for_its_sentence_however_its_name_is_spelt(text: str) -> None:
    assert instruction(text) == "Given a scientific claim, retrieve documents that support or refute the claim"


def test_a_training_set_stands_for_its_sentence() -> None:
    assert instruction("task:msmarco-document") == (
        "Given a web search query, retrieve relevant documents that answer the query"
    )


@pytest.mark.parametrize(
    "text", ["", "Find mills", "task", "task:", "Task:SciFact", "task: retrieve the answer", " task:SciFact"]
)
def test_what_is_no_name_of_a_task_is_the_sentence_itself(text: str) -> None:
    assert instruction(text) == text


@given(text=st.one_of(st.none(), st.text().filter(lambda text: not text.startswith("task:"))))
def test_any_sentence_of_a_users_own_stays_as_it_is(text: str | None) -> None:
    assert instruction(text) == text


def test_every_task_has_sentences_that_a_template_and_a_spec_take() -> None:
    for name, sentences in task_instructions().items():
        assert sentences, name
        for sentence in sentences:
            assert sentence.strip() == sentence != "", name
            assert not {"{", "}", "\n"} & set(sentence), name
            assert EncoderSpec(instruction=sentence).instruction == sentence


def test_no_two_tasks_differ_in_case_and_punctuation_alone() -> None:
    assert len({instructions._folded(name) for name in task_instructions()}) == len(task_instructions()) == 78


@pytest.mark.parametrize(
    ("typed", "guess"),
    [("scifct", "; did you mean 'SciFact'?"), ("hotpotqa2", "; did you mean 'HotpotQA'?"), ("zzz", ""), ("-", "")],
)
def test_an_unknown_task_names_the_near_miss_and_where_the_known_ones_are(typed: str, guess: str) -> None:
    assert message_of(SpecError, lambda: instruction(f"task:{typed}")) == (
        f"`instruction`: unknown task '{typed}'{guess}\n"
        "  hint: `ragidx models --tasks` lists the tasks with their instructions; or write the instruction itself"
    )


def test_a_set_that_is_used_in_two_ways_asks_which_is_meant() -> None:
    assert message_of(SpecError, lambda: instruction("task:nli")) == (
        "`instruction`: 'NLI' is used with 2 instructions: "
        "'Given a premise, retrieve a hypothesis that is entailed by the premise'; 'Retrieve semantically similar text'"
        "\n  hint: write the one you mean in place of the name"
    )


def test_the_tasks_cannot_be_changed_by_who_reads_them() -> None:
    with pytest.raises(TypeError):
        task_instructions()["NLI"] = ("other",)  # type: ignore[index]


def test_the_sentences_are_those_of_the_papers_tables() -> None:
    corpora = os.environ.get("RAGIDX_CORPORA")
    source = (Path(corpora).parent if corpora else ROOT.parent / "shared") / "prompts" / "instructions.json"
    if not source.is_file():
        pytest.skip("no prompts/ beside the folder of corpora")
    tables = json.loads(source.read_text("utf-8"))

    expected = {name: tuple(listed) for name, listed in tables["training"].items()}
    assert dict(task_instructions()) == expected | {name: (one,) for name, one in tables["evaluation"].items()}
