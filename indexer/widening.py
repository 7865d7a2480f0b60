"""Asking for more: what a search, or what follows it, does where the hits that it has are not enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def until_enough(
    answers: Sequence[T], wide: int, ask: Callable[[list[int], int], Iterable[T]], lacks: Callable[[T, int], bool]
) -> list[T]:
    """The answers to some queries; a query whose answer is not enough is asked for four times as many hits, and again.

    Args:
        answers: answers to each query that was asked for `wide` hits.
        wide: number of hits that were asked for.
        ask: the answers to some queries, by their numbers, for so many hits.
        lacks: whether an answer, of so many hits at most, is not enough; some number has to be enough.

    >>> until_enough([2, 3], 4, lambda queries, wide: [wide + query for query in queries], lambda hits, _: hits < 3)
    [16, 3]
    """
    newest, left = list(answers), list(range(len(answers)))
    while left := [query for query in left if lacks(newest[query], wide)]:
        wide *= 4
        for query, answer in zip(left, ask(left, wide), strict=True):
            newest[query] = answer
    return newest
