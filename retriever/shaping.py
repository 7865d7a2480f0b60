"""From ranked chunks to hits: what is dropped, what is folded into one hit, and what is shown around it.

    ranked chunks -> limits on scores -> equal and nearly equal passages folded -> hits a document -> MMR -> context

A hit's text is never changed: folded places and the context are fields beside it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragidx.indexer.arrays import Ints
from ragidx.indexer.byte_cache import ByteCache
from ragidx.indexer.store.rows import Row
from ragidx.indexer.widening import until_enough
from ragidx.retriever.fusion import RRF_CONSTANT, Scored
from ragidx.retriever.hit import DocumentSpan, Hit
from ragidx.retriever.options import SearchOptions
from ragidx.retriever.rows import Queries, Rows, is_last, is_too_far

_MMR_HITS = 50  # over so many hits is maximal marginal relevance computed
_NEAR = 0.9  # share of common word triples from which passages are nearly equal
_LONG = 100_000  # characters of a passage that are compared
_WORD = re.compile(r"\w+")
_SEPARATED = bytes(code if chr(code).isalnum() or chr(code) == "_" else 32 for code in range(128)) + bytes(128)
_KEPT_BYTES = 8 << 20  # of passages whose word triples are kept: the same are found again and again


@dataclass
class _Candidate:
    """A chunk that becomes a hit, and those that were folded into it."""

    scored: Scored
    row: Row | Hit
    also: list[DocumentSpan] = field(default_factory=list)
    words: frozenset[int] = frozenset()  # its word triples, numbered from the rarest on


def shaped_hits(store: Rows, queries: Queries, options: SearchOptions) -> list[list[Hit]]:
    """The k hits of each query, if so many exist: where chunks are dropped or folded, more are ranked."""
    k, store = options.k, store.asked()
    allowed = store.allowed(options.where)

    def ask(numbers: Sequence[int], wide: int) -> list[tuple[list[Scored], list[_Candidate]]]:
        answers = store.ranked(queries.of(numbers), wide, allowed, options)
        rows = iter(store.rows([scored.row for ranked in answers for scored in ranked]))
        return [
            (ranked, _selected([_Candidate(scored, next(rows)) for scored in ranked], options)) for ranked in answers
        ]

    def lacks(answer: tuple[list[Scored], list[_Candidate]], wide: int) -> bool:
        ranked, hits = answer
        if len(ranked) < wide or is_last(ranked[-1], options):  # there are no more
            return False
        tied = options.fold and len(ranked) > 1 and ranked[-1].score == ranked[-2].score
        return len(hits) < k or (tied and hits[k - 1].scored.score == ranked[-1].score)

    wide = k + options.fold if options.mmr is None else max(k, _MMR_HITS)
    answers = until_enough(ask(range(len(queries)), wide), wide, ask, lacks)
    chosen = (hits if options.mmr is None else _diverse(store, hits, options.mmr) for _, hits in answers)
    return [
        [_hit(store, place, candidate, options.context) for place, candidate in enumerate(hits[:k], start=1)]
        for hits in chosen
    ]


def fused_hits(answers: Sequence[Sequence[Hit]], options: SearchOptions) -> list[Hit]:
    """The k best of the answers of several indexes to a query, by 1 / (60 + place); of equal places by index.

    Equal passages are folded, and hits of a document limited, over all of them.
    """
    candidates = [
        _Candidate(Scored(-1, 1 / (RRF_CONSTANT + hit.rank), hit.dense, hit.bm25), hit, list(hit.also))
        for hit in sorted(itertools.chain(*answers), key=lambda hit: hit.rank)
    ]
    fused: list[Hit] = []
    for one in _selected(candidates, dataclasses.replace(options, min_z=None))[: options.k]:
        assert isinstance(one.row, Hit)
        fused.append(dataclasses.replace(one.row, rank=len(fused) + 1, score=one.scored.score, also=tuple(one.also)))
    return fused


def _selected(candidates: Iterable[_Candidate], options: SearchOptions) -> list[_Candidate]:
    """Those that are hits, in their order, with the ones that were folded into them."""
    high_enough = [one for one in candidates if not (is_too_far(one.scored, options) or is_last(one.scored, options))]
    if options.fold:
        _number_words(high_enough)
    selected: list[_Candidate] = []
    of_document, by_word = Counter[str](), defaultdict[int, list[int]](list)
    for candidate in high_enough:
        rarest = _rarest(candidate.words) if candidate.words else []
        if rarest:
            near = sorted({place for word in rarest for place in by_word[word]})
            same = next((selected[place] for place in near if _is_near(selected[place].words, candidate.words)), None)
            if same is not None:
                same.also += [
                    DocumentSpan(candidate.row.doc_id, candidate.row.start, candidate.row.end),
                    *candidate.also,
                ]
                continue
        of_document[candidate.row.doc_id] += 1
        if options.per_document is None or of_document[candidate.row.doc_id] <= options.per_document:
            for word in rarest:
                by_word[word].append(len(selected))
            selected.append(candidate)
    return selected


def _number_words(candidates: Sequence[_Candidate]) -> None:
    """Note the word triples of each passage that may be like another; rows of vectors may have no text."""
    if not any(one.row.text for one in candidates):
        return
    triples = [_triples_of(one.row.text) if one.row.text else _NO_TRIPLES for one in candidates]
    seen, again = set[int](), set[int]()
    for held in triples:
        again |= seen & held.least
        seen |= held.least
    if not again:  # mostly
        return
    similar = [
        (one, frozenset[int](held.every.tolist()))
        for one, held in zip(candidates, triples, strict=True)
        if not again.isdisjoint(held.least)
    ]
    count = Counter(itertools.chain.from_iterable(every for _, every in similar))
    number = {words: place for place, words in enumerate(sorted(count, key=count.__getitem__))}
    for candidate, every in similar:
        candidate.words = frozenset(number[words] for words in every)


def _rarest(words: frozenset[int]) -> list[int]:
    """Those of which nearly equal sets share one, so that a passage is not compared with all hits before.

    Two sets of which `_NEAR` is common share one of their rarest members, if of n members the n - ceil(_NEAR n) + 1
    rarest are taken, in one order for all sets (prefix filtering: Chaudhuri, Ganti and Kaushik 2006).
    """
    return sorted(words)[: _n_rarest(len(words))]


def _n_rarest(n: int) -> int:
    return n - math.ceil(_NEAR * n - 1e-9) + 1


def _is_near(one: frozenset[int], other: frozenset[int]) -> bool:
    common = len(one & other)
    return common >= _NEAR * (len(one) + len(other) - common)


@dataclass(frozen=True, slots=True)
class _Triples:
    """The word triples of a passage, each as its hash.

    Attributes:
        every: (n,) all of them, rising.
        least: the first of these, as many as `_rarest` would take: nearly equal passages share one.
        nbytes: what they take with their text.
    """

    every: Ints
    least: frozenset[int]
    nbytes: int


_NO_TRIPLES = _Triples(np.zeros(0, np.int64), frozenset(), 0)
_kept_triples: ByteCache[_Triples] = ByteCache(_KEPT_BYTES)


def _triples_of(text: str) -> _Triples:
    return _kept_triples.get(text, functools.partial(_triples, text))


def _triples(text: str) -> _Triples:
    """Runs of three words; a text of one or two words is one run, and one without words is itself."""
    start = text[:_LONG]
    if start.isascii():  # a tenth of the time
        words = start.lower().encode().translate(_SEPARATED).decode().split()
    else:
        words = _WORD.findall(start.casefold())
    runs = zip(words, words[1:], words[2:], strict=False) if len(words) > 2 else [tuple(words) or (text,)]
    every = np.sort(np.fromiter(set(map(hash, runs)), np.int64))
    least = frozenset(every[: _n_rarest(len(every))].tolist())
    return _Triples(every, least, every.nbytes + 100 * len(least) + sys.getsizeof(text))


def _diverse(store: Rows, hits: Sequence[_Candidate], weight: float) -> list[_Candidate]:
    """Maximal marginal relevance: each next hit has the best score less its likeness to the hits before.

    Scores are brought to 0 to 1; likeness is the cosine of vectors less their mean, since those of many decoders share
    one direction. Carbonell and Goldstein 1998.
    """
    first, rest = list(hits[:_MMR_HITS]), list(hits[_MMR_HITS:])
    if len(first) < 2:
        return first + rest
    vectors = store.vectors(np.array([candidate.scored.row for candidate in first]))
    centred = vectors - vectors.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
    scores = np.array([candidate.scored.score for candidate in first])
    scores = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-9)
    chosen, left = [0], list(range(1, len(first)))
    while left:
        alike = (centred[left] @ centred[chosen].T).max(axis=1)
        gains = weight * scores[left] - (1 - weight) * alike
        chosen.append(left.pop(int(np.argmax(gains))))
    return [first[number] for number in chosen] + rest


def _hit(store: Rows, place: int, candidate: _Candidate, context: int) -> Hit:
    row, scored = candidate.row, candidate.scored
    return Hit(
        rank=place,
        score=scored.score,
        text=row.text,
        doc_id=row.doc_id,
        chunk_id=row.chunk_id,
        start=row.start,
        end=row.end,
        heading=row.heading,
        metadata=row.metadata,
        dense=scored.dense,
        bm25=scored.bm25,
        line=row.line,
        page=row.page,
        turns=row.turns,
        context=_joined(store.around(scored.row, context)) if context else None,
        also=tuple(candidate.also),
        index=store.folder_of(scored.row),
    )


def _joined(rows: Sequence[Row]) -> str:
    """The texts of rows of a document, in their order; what two chunks of one text share is there once."""
    rows = sorted(rows, key=lambda row: row.start)
    text, end = rows[0].text, rows[0].end
    for before, row in itertools.pairwise(rows):
        shared = end - row.start
        if before.start < row.start and 0 <= shared < len(row.text) and text.endswith(row.text[:shared]):
            text += row.text[shared:]
        else:
            text += f"\n{row.text}"
        end = row.end
    return text
