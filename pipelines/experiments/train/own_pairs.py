"""Pairs that a corpus makes of itself: a sentence or a heading of a chunk, and the chunk without it.

index -> `TrainingPairs`: two data sets, `sentence` (inverse cloze; Lee et al. 2019) and `heading`, each pair owned by
its document. What asks is taken out wherever the chunk has it, as in the test without labels, so that nothing is learnt
of words that are merely repeated; no pair is of a document that the test asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from ragidx.corpora.chunking import Chunker
from ragidx.indexer.filters.fitting import random_key
from ragidx.indexer.store import Store
from ragidx.pipelines.experiments.evaluate.synthetic import HEADING, own_queries, words_of
from ragidx.pipelines.experiments.train.pairs import Pair, TrainingPairs

SENTENCE = "sentence"
TOGETHER = 13
"""So many words in a row are no chance."""

_FEWEST_WORDS = 3
_KEYS = 1 << 128
_SPARE = 1.5  # chunks that are drawn for each that is wanted: some have nothing that can be taken out
_MOST_A_CHUNK = 6


def own_pairs(store: Store, chunker: Chunker, *, without: Collection[str], limit: int, seed: int) -> TrainingPairs:
    """At most `limit` pairs of each kind; of few chunks several sentences each.

    Args:
        store: the index, with texts.
        chunker: the chunker of the index, which says what is encoded of a chunk.
        without: ids of documents that no pair is made of.
        limit: the most pairs of a kind; it bounds the memory, two texts a pair.
        seed: decides which chunks and sentences are drawn.
    """
    n_chunks = max(1, store.manifest.n_chunks)
    n = min(_MOST_A_CHUNK, -(-limit // n_chunks))
    share = _SPARE * limit / (n * n_chunks)
    pairs: dict[str, list[Pair]] = {SENTENCE: [], HEADING: []}
    for _, chunk in store.chunks():
        if chunk.doc_id in without or int.from_bytes(random_key(seed, f"pair {chunk.id}")) >= share * _KEYS:
            continue
        for kind, of_kind in pairs.items():
            queries = own_queries(chunk, kind, seed, n if kind == SENTENCE else 1)
            of_kind += [Pair(query, chunker.encoded_text(rest), owner=chunk.doc_id) for query, rest in queries]
    return TrainingPairs.of(tuple(pairs), tuple(pairs.values()))


def without(pairs: TrainingPairs, queries: Iterable[str], texts: Iterable[str]) -> TrainingPairs:
    """The pairs that hold neither a query nor a text, as `knowing` has it; nor is an answer of theirs part of one."""
    normal = [" ".join(_words(text)) for text in texts]
    knows, joined = knowing(queries, normal), "\n".join(f" {text} " for text in normal)

    def is_apart(query: str, positive: str) -> bool:
        words = _words(positive)
        is_part = len(words) < TOGETHER and f" {' '.join(words)} " in joined
        return not (is_part or knows(query) or knows(positive))

    return pairs.some(np.flatnonzero([*map(is_apart, pairs["query"], pairs["positive"])]))


def knowing(queries: Iterable[str], texts: Iterable[str]) -> Callable[[str], bool]:
    """Whether a text holds a query, or `TOGETHER` words in a row of a text, of shorter ones the whole.

    A query or text of one or two words is held by an equal text alone: these are in many by chance. In scripts without
    spaces a word is a character.
    """
    short, known = {_words(query) for query in queries}, set[tuple[str, ...]]()
    for text in texts:
        words = _words(text)
        known.update(_runs(words))
        if len(words) < TOGETHER:
            short.add(words)
    begin: dict[str, list[tuple[str, ...]]] = {}
    for words in short:
        if len(words) >= _FEWEST_WORDS:
            begin.setdefault(words[0], []).append(words)

    def knows(text: str) -> bool:
        words = _words(text)
        if words in short or not known.isdisjoint(_runs(words)):
            return True
        return any(
            words[place : place + len(query)] == query
            for place, word in enumerate(words)
            for query in begin.get(word, ())
        )

    return knows


def _runs(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (words[place : place + TOGETHER] for place in range(len(words) - TOGETHER + 1))


def _words(text: str) -> tuple[str, ...]:
    return tuple(words_of(text.casefold()))
