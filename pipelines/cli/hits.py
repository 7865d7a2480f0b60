"""The answer to a question on a terminal: the table of hits, and notes on what was not found and why."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.passages import Stem, nearest, show_hits
from ragidx.retriever.hit import Hit, RerankWarning

if TYPE_CHECKING:
    from ragidx.pipelines.index import Index

PER_DOCUMENT = 3  # hits of a document in the table


@dataclass(frozen=True)
class Asked:
    """A question, and how its answer is shown.

    Attributes:
        text: empty for a vector.
        options: of the search.
        full: whether whole passages are shown.
        fields: of the metadata, that are shown.
    """

    text: str
    options: Mapping[str, Any]
    full: bool
    fields: Sequence[str]


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show what a reranker warns of as notes, each once."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: console.note(str(message))
        warnings.filterwarnings("once", category=RerankWarning)
        yield


def show_answer(index: Index, asked: Asked, hits: Sequence[Hit], mode: str) -> None:
    """Print the table of hits, and the notes."""
    manifest = index.info()
    never_made = manifest.lexical is None and manifest.index.lexical != "off" and index.spec.precomputed is None
    if mode == "dense" and never_made and manifest.n_chunks and asked.text:
        console.note("This index has no lexical part: only vectors are compared. `ragidx build` adds it in one commit.")
    if not hits:
        _tell_nothing(index, asked)
        return
    show_hits(hits, asked.text, _stem(index), full=asked.full, fields=asked.fields)
    if mode == "hybrid" and all(hit.bm25 is None for hit in hits):
        console.note("No word of the question is in the index: only the vectors count.")
    _tell_fewer(hits, asked.options, mode)


def hits_json(index: Index, hits: Sequence[Hit], query: str) -> list[dict[str, Any]]:
    """The hits, each with the part that is nearest to the question and where that begins in the file."""
    found, stem = [], _stem(index)
    for hit in hits:
        text, begin = nearest(hit.text, query, stem)
        line, page = hit.position(begin)
        found.append(hit.to_json() | {"passage": {"text": text, "line": line, "page": page}})
    return found


def _stem(index: Index) -> Stem | None:
    from ragidx.indexer.lexical.stemming import stemmer

    lexical = index.info().lexical
    return None if lexical is None else stemmer(lexical.stemmer)


def _tell_fewer(hits: Sequence[Hit], options: Mapping[str, Any], mode: str) -> None:
    """Why there are fewer hits than were requested."""
    count, requested = len(hits), options["k"]
    if count >= requested:
        return
    folded = sum(len(hit.also) for hit in hits)
    most = options.get("per_document")
    reasons = []
    if folded:
        are = "is" if folded == 1 else "are"
        reasons.append(f"{console.plural(folded, 'more chunk')} with the same text {are} folded")
    if most is not None and most in Counter(hit.doc_id for hit in hits).values():
        reasons.append(f"a document has at most {most} (--per-document)")
    if reasons:
        console.note(f"{console.plural(count, 'hit')}, {requested} were requested: {'; '.join(reasons)}.")
        return
    there = "There is 1 chunk" if count == 1 else f"There are {count} chunks"
    limits = _limits(options)
    which = ("that matches " if count == 1 else "that match ") + " and ".join(limits) if limits else "in the index"
    if mode == "lexical":
        which += (" and has" if count == 1 else " and have") if limits else " with"
        which += " a word of the question"
    console.note(f"{there} {which}; {requested} hits were requested.")


def _limits(options: Mapping[str, Any]) -> list[str]:
    """The options that drop chunks."""
    names = {"where": "--where", "min_score": "--min-score", "min_z": "--min-z"}
    return [option for name, option in names.items() if options.get(name) is not None]


def _tell_nothing(index: Index, asked: Asked) -> None:
    """What was nearest without the limits, and what to try; a search that encoded nothing still encodes nothing."""
    if not index.info().n_chunks:
        console.note("The index holds no chunk.")
        return
    limits = _limits(asked.options)
    console.note(f"No chunk matches {' and '.join(limits)}." if limits else "No chunk has a word of the question.")
    if not asked.text:
        return
    encodes, is_near = index.spec.encoder is not None, asked.options.get("min_score") is not None
    mode: Any = "dense" if encodes and is_near else asked.options.get("mode")
    nearest_hits = index.search(asked.text, 1, instruction=asked.options["instruction"], mode=mode)
    if not nearest_hits:
        console.note("Try --mode hybrid or other words." if encodes else "Try other words.")
        return
    hit = nearest_hits[0]
    cosine = f", cosine {hit.dense:.3f}" if hit.dense is not None else ""
    score = f", score {hit.score:.3f}" if asked.options.get("min_z") is not None else ""
    console.note(f"The nearest chunk without that: {console.printable(hit.doc_id)}{cosine}{score}.")
    tries = {
        "--where": "another condition (`ragidx info` lists the fields)",
        "--min-score": "a lower --min-score",
        "--min-z": "a lower --min-z",
    }
    console.note(f"Try {' or '.join([tries[limit] for limit in limits] or ['--mode hybrid', 'other words'])}.")
