"""The answer to a question on a terminal: the table of hits, and notes on what was not found and why."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.passages import show_hits
from ragidx.retriever.hit import NO_VECTOR, NOTHING_KNOWN, WORDS_ALONE, Hit, Hits, RerankWarning
from ragidx.retriever.passages import Excerpt, simple_stem, stem_of

if TYPE_CHECKING:
    from ragidx.retriever.searcher import Searcher

PER_DOCUMENT = 3  # hits of a document in the table

_WORD = "has a word of the question"


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show what a reranker warns of as notes, each once."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: console.note(str(message))
        warnings.filterwarnings("once", category=RerankWarning)
        yield


def show_answer(
    searcher: Searcher, text: str, options: Mapping[str, Any], hits: Hits, mode: str, shown: Mapping[str, Any]
) -> None:
    """Print the table of hits, and the notes.

    Args:
        searcher: the searcher that was asked.
        text: the question; empty for a vector.
        options: keywords of the search.
        hits: hits of the search, best first.
        mode: mode of the search.
        shown: keywords of `show_hits`.
    """
    if not hits:
        for note in hits.notes:
            console.note(note)
        if not {NO_VECTOR, NOTHING_KNOWN} & {*hits.notes}:  # they say why, whatever the limits are
            _tell_nothing(searcher, text, options, mode)
        return
    show_hits(hits, text, stem_of(searcher.stemmer), words=searcher.store.words_by, **shown)
    _tell_about(hits, options, mode, _must(searcher, mode))


def show_served(
    answer: Mapping[str, Any],
    hits: Hits,
    passages: Sequence[Excerpt],
    options: Mapping[str, Any],
    *,
    full: bool,
) -> None:
    """Print the table and the notes for what a service answered; `options` as of `show_answer`."""
    stem = stem_of(answer["stemmer"]) if sys.stdout.isatty() else simple_stem  # nothing is highlighted elsewhere
    show_hits(hits, answer["query"], stem, full=full, passages=passages)
    _tell_about(hits, options, answer["mode"])


def _tell_about(hits: Hits, options: Mapping[str, Any], mode: str, must: str = "") -> None:
    for note in hits.notes:
        console.note(note)
    _tell_fewer(hits, options, _WORD if mode == "lexical" or WORDS_ALONE in hits.notes else must)


def _must(searcher: Searcher, mode: str) -> str:
    """What a chunk has that is a hit, where not all have it."""
    if mode == "lexical":
        return _WORD
    if not searcher.store.manifest.has_zeros:
        return ""
    return "has a vector" if mode == "dense" else f"has a vector or {_WORD.removeprefix('has ')}"


def _tell_fewer(hits: Sequence[Hit], options: Mapping[str, Any], must: str) -> None:
    """Why there are fewer hits than were requested; `must`: what all of them have."""
    if len(hits) >= options["k"]:
        return
    n_folded, most = sum(len(hit.also) for hit in hits), options.get("per_document")
    reasons = []
    if n_folded:
        reasons.append(f"{console.plural(n_folded, 'chunk')} with the same text folded")
    if most is not None and most in Counter(hit.doc_id for hit in hits).values():
        reasons.append(f"a document has at most {most} (--per-document)")
    if not reasons:
        limits = _limits(options)
        needs = [*([f"matches {' and '.join(limits)}"] if limits else []), *([must] if must else [])]
        reasons = [f"no other chunk {' and '.join(needs)}" if needs else "the index has no other chunk"]
    console.note(f"{console.plural(len(hits), 'hit')}, {options['k']} were requested: {'; '.join(reasons)}.")


def _limits(options: Mapping[str, Any]) -> list[str]:
    """The options that drop chunks."""
    names = {"where": "--where", "min_score": "--min-score", "min_z": "--min-z"}
    return [option for name, option in names.items() if options.get(name) is not None]


def _tell_nothing(searcher: Searcher, text: str, options: Mapping[str, Any], mode: str) -> None:
    """What was nearest without the limits, and what to try; a search that encoded nothing still encodes nothing."""
    if not searcher.store.manifest.n_chunks:
        console.note("The index holds no chunk.")
        return
    limits = _limits(options)
    must = _must(searcher, mode)
    needs = [*([f"matches {' and '.join(limits)}"] if limits else []), *([must] if must else [])]
    console.note(f"No chunk {' and '.join(needs) or 'is near'}.")
    if not text:
        return
    encodes, is_near = searcher.spec.encoder is not None, "--min-score" in limits
    asked: Any = "dense" if encodes and is_near else options.get("mode")
    [hits] = searcher.search([text], k=1, instruction=options["instruction"], mode=asked)
    if not hits:
        console.note("Try --mode hybrid or other words." if encodes else "Try other words.")
        return
    cosine = f", cosine {hits[0].dense:.3f}" if hits[0].dense is not None else ""
    score = f", score {hits[0].score:.3f}" if "--min-z" in limits else ""
    console.note(f"The nearest chunk without that: {console.printable(hits[0].doc_id)}{cosine}{score}.")
    tries = {"--where": "another condition (`ragidx info` lists the fields)"}
    console.note(f"Try {' or '.join(tries.get(limit, f'a lower {limit}') for limit in limits)}.")
