"""Pairs that a corpus makes of itself: a sentence or a heading of a chunk, and the chunk without it.

index -> `TrainingPairs`: two data sets, `sentence` (inverse cloze; Lee et al. 2019) and `heading`, each pair owned by
its document. What asks is taken out wherever the chunk has it, as in the test without labels, so that nothing is learnt
of words that are merely repeated; no pair is of a document that the test asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from ragidx.corpora.chunking import Chunker
from ragidx.indexer.filters.fitting import lot
from ragidx.indexer.store import Store
from ragidx.pipelines.experiments.evaluate.synthetic import HEADING, own_queries, words_of
from ragidx.pipelines.experiments.train.pairs import TrainingPairs

SENTENCE = "sentence"
TOGETHER = 13
"""So many words in a row are no chance."""

_FEWEST_WORDS = 3
_LOTS = 1 << 128
_SPARE = 1.5  # chunks that are drawn for each that is wanted: some have nothing that can be taken out
_MOST_A_CHUNK = 6


def own_pairs(store: Store, chunker: Chunker, *, without: Collection[str], limit: int, seed: int) -> TrainingPairs:
    """At most `limit` pairs of each kind; of few chunks several sentences each.

    Args:
        store: the index, with texts.
        chunker: gives what is encoded of a chunk.
        without: ids of documents that no pair is of.
        limit: bounds what is held: two texts a pair.
        seed: of what is drawn.
    """
    n_chunks = max(1, store.manifest.n_chunks)
    n = min(_MOST_A_CHUNK, -(-limit // n_chunks))
    share = _SPARE * limit / (n * n_chunks)
    found: dict[str, list[tuple[str, str, str]]] = {SENTENCE: [], HEADING: []}
    for _, chunk in store.chunks():
        if chunk.doc_id in without or int.from_bytes(lot(seed, f"pair {chunk.id}")) >= share * _LOTS:
            continue
        for kind, pairs in found.items():
            made = own_queries(chunk, kind, seed, n if kind == SENTENCE else 1)
            pairs += [(query, chunker.encoded_text(rest), chunk.doc_id) for query, rest in made]
    every = [pair for pairs in found.values() for pair in pairs]
    queries, positives, owners = (list(column) for column in zip(*every, strict=True)) if every else ([], [], [])
    groups = np.repeat(np.arange(len(found)), [len(pairs) for pairs in found.values()])
    return TrainingPairs(queries, positives, groups, tuple(found), owners)


def without(pairs: TrainingPairs, queries: Iterable[str], texts: Iterable[str]) -> TrainingPairs:
    """The pairs that know neither a query nor a text, as `knowing` has it; nor is an answer of theirs part of one."""
    every = [" ".join(_words(text)) for text in texts]
    knows, joined = knowing(queries, every), "\n".join(f" {text} " for text in every)

    def is_apart(query: str, positive: str) -> bool:
        words = _words(positive)
        is_part = len(words) < TOGETHER and f" {' '.join(words)} " in joined
        return not (is_part or knows(query) or knows(positive))

    apart = [is_apart(*one) for one in zip(pairs.queries, pairs.positives, strict=True)]
    return pairs.some(np.flatnonzero(apart))


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
            words[place : place + len(one)] == one for place, word in enumerate(words) for one in begin.get(word, ())
        )

    return knows


def _runs(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (words[place : place + TOGETHER] for place in range(len(words) - TOGETHER + 1))


def _words(text: str) -> tuple[str, ...]:
    return tuple(words_of(text.casefold()))
