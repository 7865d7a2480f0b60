"""Queries made of a corpus: what is taken, what is left, and what is said where nothing can be."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

from ragidx.corpora.records import Chunk
from ragidx.pipelines.evaluate.synthetic import synthetic

WORDS = [f"{first}{second}{third}" for first in "bdfgk" for second in "aeiou" for third in "lmnrst"]


def _sentence(rng: random.Random, n: int = 8) -> str:
    return " ".join(rng.choices(WORDS, k=n)).capitalize() + "."


def _text(number: int, n_sentences: int = 4) -> str:
    rng = random.Random(number)
    return " ".join(_sentence(rng) for _ in range(n_sentences))


def _whole(texts: Iterable[str]) -> Callable[[], list[Chunk]]:
    """One chunk a document."""
    chunks = [Chunk(f"d{number}", 0, len(text), text) for number, text in enumerate(texts)]
    return lambda: chunks


def _words_of(text: str) -> str:
    words = " ".join(re.findall(r"[^\W_]+", text.casefold()))
    return f" {words} "


TEXTS = [_text(number) for number in range(40)]


def test_each_query_is_a_sentence_of_one_document_and_is_in_no_chunk_any_more() -> None:
    made = synthetic(_whole(TEXTS))

    assert len(made.queries) == 40
    for name, query in made.queries.items():
        ((doc_id, relevance),) = made.qrels[name].items()
        text = TEXTS[int(doc_id[1:])]
        changed = made.changed[f"{doc_id}:0-{len(text)}"]
        assert relevance == 1
        assert query in text
        assert sum(query in other for other in TEXTS) == 1
        assert _words_of(query) not in _words_of(changed.text)
        assert changed.text == " ".join(text.replace(query, "").split())
