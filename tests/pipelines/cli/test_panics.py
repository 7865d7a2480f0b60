"""A library in Rust that gives up ends a command with one error, though its exception is no `Exception`.

The panics are real: a tokenizer's pattern that tries too many ways to match one text, and a tokenizer without a token
for what it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import DefectError, is_panic, panics_of
from ragidx.corpora.records import Document
from ragidx.corpora.spec import ChunkSpec

from ..conftest import Done
from .bad_input_kit import TINY, documents_of

Run = Callable[..., Done]
PANIC = "Onig: Regex search error: retry-limit-in-match over"


def _panic() -> None:
    """What a library in Rust raises where it gives up."""
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.enable_truncation(2, stride=2)
    tokenizer.encode("aaaa")


@pytest.fixture
def slow_pattern(model: Path) -> str:
    """A text that the tokenizer of `tiny` gives up on, and no other."""
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, tokenizer["pre_tokenizer"]]}
    path.write_text(json.dumps(tokenizer))
    return "a" * 50 + "!"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(), ("--chunk-size", "none")])
def test_a_tokenizer_that_gives_up_on_a_document_names_it(
    run: Run, small_corpus: Path, slow_pattern: str, size: tuple[str, ...]
) -> None:
    (small_corpus / "many.txt").write_text(slow_pattern)

    done = run("build", "corpus", *TINY, *size)

    assert done == (
        2,
        "",
        f"Error: many.txt: a defect in tokenizers: {PANIC}\n  hint: report it, and leave this file out meanwhile\n",
    )
    assert documents_of(run("build", "corpus", *TINY, *size, "--exclude", "many.txt")) == 6


def test_a_tokenizer_without_a_token_for_what_it_does_not_know_names_the_document() -> None:
    tokenizer = Tokenizer(models.WordLevel({"known": 0}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    with pytest.raises(DefectError, match=r"^notes\.txt: a defect in tokenizers: WordLevel error: Missing "):
        list(Chunker(ChunkSpec(size=2), tokenizer, limit=9).chunks(Document("notes.txt", "unknown words " * 9, {})))


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_any_other_panic_is_a_defect_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.retriever.searcher.Searcher.open", lambda *_, **__: _panic())

    done = run("query", "lake")

    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Error: a bug in ragidx or in a library it uses: PanicException: `stride` must be")
    assert done.err.endswith("\n  hint: run again with RAGIDX_DEBUG=1 for the traceback, and report it\n")


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), SystemExit(3), ValueError("no")])
def test_what_is_no_panic_passes(fault: BaseException) -> None:
    assert not is_panic(fault)
    with pytest.raises(type(fault)), panics_of("tokenizers"):
        raise fault
