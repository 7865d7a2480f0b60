"""Queries that a corpus asks itself: a sentence or a title is taken out of its document, and has to find it again.

chunks of a corpus, twice -> `Judged`: queries, one relevant document for each -> the chunks without what was taken out
of them. What is left in would be found by its words alone, so every occurrence goes, and nothing is taken that a
chunk's border cuts, that another document has too, or whose document another nearly equals. Documents are drawn at
random, by a hash of their ids, and so are their sentences; documents whose first one is in no other come first.
Nothing is encoded or written here. Held are a few sentences and hashes for each document that may be drawn, and one
document at a time.

Taken sentences share words with the rest of their document. They rank configurations of one kind as judgements do, and
favour search by words: see docs/evaluate.md.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ragidx.corpora.chunking.sentences import sentences
from ragidx.corpora.errors import CorpusError
from ragidx.corpora.headings import SEPARATOR
from ragidx.corpora.records import Chunk
from ragidx.indexer.filters.fitting import lowest, random_key
from ragidx.indexer.lexical.analyzer import UNSPACED
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_QUERIES
from ragidx.pipelines.experiments.evaluate.tasks import Judged

HEADING = "heading"
"""A kind of query of a chunk alone: its innermost heading."""

N_QUERIES = 300

_SPARE = 2  # documents that are drawn for each that is wanted
_ASKS = 3  # sentences that are tried of a document, as the first may be in all documents of a kind
_WORDS = {"sentence": (6, 40), "title": (3, 40), HEADING: (3, 40)}
_FEWEST_SENTENCES = 3
_MOST_CHARS = 1_000_000  # of a document that is drawn
_SKETCH = 16  # word triples by which a document is recognised
_ALIKE = 13  # so many of them in another: nearly equal, as where 0.9 of the triples of both are common
_PIECE, _SHARED = 1 << 18, 1_000  # characters that are looked through at a time, and those that two pieces share

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_ASCII_WORD = re.compile(r"\w+")
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_MARK = re.compile(r"[.!?…。！？][\"'”’»)\]*_」』）]*\Z")
_MARKUP = re.compile(r"^\s*(?:[#|>=*+-]|```)", re.MULTILINE)
_OPENING = "\"'“‘«([「『（"
_CLOSING = re.compile(r"(?:[^\w\s]|(?: [.!?](?!\S)))*")
_PROSE = 0.7  # share of letters and spaces


@dataclass(frozen=True, slots=True)
class _Ask:
    """What may be taken out of a document."""

    query: str
    words: str  # joined
    key: tuple[str, ...]  # a triple of them


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A document that may be drawn."""

    doc_id: str
    asks: tuple[_Ask, ...]
    sketch: frozenset[tuple[str, ...]]


def synthetic(
    chunks: Callable[[], Iterable[Chunk]],
    *,
    kind: str = "sentence",
    seed: int = 0,
    n: int = N_QUERIES,
    where: str = "",
) -> Judged:
    """Queries of documents that are drawn at random, in the order of their random keys, one document for each.

    Args:
        chunks: a function that gives the chunks of a corpus, the same each time; those of a document follow each other.
        kind: sentence, of 6 to 40 words, of documents that have three or more; or title: the outermost heading, or the
            first sentence where there is none. Two characters of a script without spaces count as a word.
        seed: seed of the draw.
        n: number of documents at most.
        where: the corpus, for an error.

    Raises:
        CorpusError: fewer than 20 documents have such a sentence of their own.
    """
    drawn, n_documents = _drawn(chunks(), kind, seed, _SPARE * n)
    alike, elsewhere = _seen_elsewhere(chunks(), drawn)
    own: list[tuple[int, int]] = []  # which of its sentences a document can be asked for by, and its number
    for number, one in enumerate(drawn):
        if number not in alike:
            own += [(place, number) for place in range(len(one.asks)) if (number, place) not in elsewhere][:1]
    usable = [(drawn[number].doc_id, drawn[number].asks[place].query) for place, number in sorted(own)[:n]]
    left_out = {
        "another document nearly equals it": len(alike),
        f"its {kind} is in another, too": len(drawn) - len(alike) - len(own),
    }
    if len(usable) < FEWEST_QUERIES:
        raise _too_few(kind, n_documents, len(drawn), left_out, len(usable), where)
    notes = [f"Not drawn: {count:,} x document: {reason}." for reason, count in left_out.items() if count]
    if len(usable) < n:
        notes.append(f"Of {n_documents:,} documents {len(usable):,} have a {kind} that can be asked for, not {n:,}.")
    named = {f"s{number}": one for number, one in enumerate(usable, start=1)}
    return Judged(
        texts={name: query for name, (_, query) in named.items()},
        qrels={name: {doc_id: 1} for name, (doc_id, _) in named.items()},
        notes=tuple(notes),
        synthetic=kind,
    )


def taken_out(made: Judged, chunks: Iterable[Chunk]) -> dict[str, Chunk]:
    """The chunks that lose a query, by their ids, without it; the corpus may be cut in another way.

    A query that a border of these chunks cuts is taken out of both; a chunk of which nothing is left is empty.
    """
    queries = {doc_id: words_of(made.texts[query_id]) for query_id, judged in made.qrels.items() for doc_id in judged}
    changed: dict[str, Chunk] = {}
    for doc_id, group in _documents(chunks):
        if doc_id in queries:
            changed |= _without(queries[doc_id], _Words(_text_of(group)), group, whole=False) or []
    return changed


def own_queries(chunk: Chunk, kind: str, seed: int, n: int) -> list[tuple[str, Chunk]]:
    """At most n sentences, or a heading, of a chunk, each with the chunk without it."""
    if len(chunk.text) != chunk.end - chunk.start:  # of vectors without texts
        return []
    found = _takeable(chunk.text, [chunk], kind, seed)
    return [(query, changed[0][1]) for query, _, changed in itertools.islice(found, n)]


def _too_few(
    kind: str, n_documents: int, n_drawn: int, left_out: dict[str, int], n_usable: int, where: str
) -> CorpusError:
    reasons = "; ".join(f"{count:,} x {reason}" for reason, count in left_out.items() if count)
    if n_drawn < FEWEST_QUERIES:
        what = "three sentences and one of 6 to 40 words" if kind == "sentence" else "a title of 3 to 40 words"
        reasons = f"{n_drawn:,} have {what} that can be taken out" + f"; {reasons}" * bool(reasons)
    return CorpusError(
        f"{n_usable:,} of {n_documents:,} documents can be asked for by a {kind} of their own ({reasons}): nothing can "
        f"be concluded from fewer than {FEWEST_QUERIES}",
        "give a larger corpus, or queries and judgements",
        where=where,
    )


def _documents(chunks: Iterable[Chunk]) -> Iterator[tuple[str, list[Chunk]]]:
    """The chunks of each document, by where they begin."""
    for doc_id, group in itertools.groupby(chunks, key=lambda chunk: chunk.doc_id):
        yield doc_id, sorted(group, key=lambda chunk: (chunk.start, chunk.end))


def _drawn(chunks: Iterable[Chunk], kind: str, seed: int, n: int) -> tuple[list[_Candidate], int]:
    """The documents with the lowest random keys of those from which something can be taken, and the number of all."""
    held: list[tuple[int, int, _Candidate]] = []  # a heap, the highest key first
    n_documents = 0
    for doc_id, group in _documents(chunks):
        n_documents += 1
        # Not the key of the samples that filters are fitted on: those would know the documents that are asked for.
        place = -int.from_bytes(random_key(seed, f"query {doc_id}"))
        if len(held) == n and place <= held[0][0]:
            continue
        candidate = _candidate(doc_id, group, kind, seed)
        if candidate is not None:
            (heapq.heapreplace if len(held) == n else heapq.heappush)(held, (place, -n_documents, candidate))
    return [candidate for *_, candidate in sorted(held, key=lambda one: one[:2], reverse=True)], n_documents


def _candidate(doc_id: str, group: Sequence[Chunk], kind: str, seed: int) -> _Candidate | None:
    """What may be taken out of a document; None: nothing."""
    if any(len(chunk.text) != chunk.end - chunk.start for chunk in group):  # of vectors without texts
        return None
    if group[-1].end - group[0].start > _MOST_CHARS:
        return None
    text, asks = _text_of(group), list[_Ask]()
    for query, words, _ in itertools.islice(_takeable(text, group, kind, seed), _ASKS):
        folded = [word.casefold() for word in words]
        key = max(_triples(folded), key=lambda triple: (len("".join(triple)), triple))  # a rare one, as a rule
        asks.append(_Ask(query, _joined(folded), key))
    if not asks:
        return None
    every = sorted(set(_triples([word.casefold() for word in words_of(text)])))
    sketch = frozenset(every[place] for place in lowest(seed, map("\0".join, every), _SKETCH))
    return _Candidate(doc_id, tuple(asks), sketch)


def _takeable(
    text: str, group: Sequence[Chunk], kind: str, seed: int
) -> Iterator[tuple[str, list[str], list[tuple[str, Chunk]]]]:
    """Queries that can be taken out of a text wholly: their words, and what changes of its chunks."""
    searched = _Words(text)
    for query in _choices(text, group, kind, seed):
        words = words_of(query)
        length = sum(0.5 if _is_unspaced(word) else 1 for word in words)
        if _WORDS[kind][0] <= length <= _WORDS[kind][1] and len(words) >= 3:
            changed = _without(words, searched, group)
            if changed is not None:
                yield query, words, changed


def _text_of(group: Sequence[Chunk]) -> str:
    """A document from its first chunk on; between chunks is white space."""
    parts, reached = [], group[0].start
    for chunk in group:
        parts.append(" " * (chunk.start - reached) + chunk.text[max(0, reached - chunk.start) :])
        reached = max(reached, chunk.end)
    return "".join(parts)


def _choices(text: str, group: Sequence[Chunk], kind: str, seed: int) -> Iterator[str]:
    """Queries that a document may give, the preferred one first."""
    found = [text[start:end] for start, end in sentences(text)]
    if kind == HEADING:
        levels = [level for chunk in group for level in reversed(chunk.heading.split(SEPARATOR)) if level]
        yield from levels or (found[:1] if group[0].start == 0 else [])
        return
    if kind == "title":
        heading = next((chunk.heading for chunk in group if chunk.heading), "")
        yield heading.split(SEPARATOR)[0] if heading else found[0] if found else ""
        return
    prose = [one for one in found if _MARK.search(one) and not _MARKUP.search(one) and _is_prose(one)]
    if len(prose) >= _FEWEST_SENTENCES:
        yield from (" ".join(prose[place].split()) for place in lowest(seed, prose, len(prose)))


def _is_prose(sentence: str) -> bool:
    return sum(character.isalpha() or character.isspace() for character in sentence) >= _PROSE * len(sentence)


def words_of(text: str) -> list[str]:
    """The words of a text; in scripts without spaces, its characters."""
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text)


def _joined(folded: Sequence[str]) -> str:
    return f" {' '.join(folded)} "


def _is_unspaced(word: str) -> bool:
    return _UNSPACED_LETTER.match(word) is not None


def _triples(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return zip(words, words[1:], words[2:], strict=False)


class _Words:
    """The words of a text and where they stand, to look for others among them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = [*(_ASCII_WORD if text.isascii() else _WORD).finditer(text)]
        self._lower = [match[0].lower() for match in self._found]
        self._places = defaultdict[str, list[int]](list)
        for place, word in enumerate(self._lower):
            self._places[word].append(place)

    def spans(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Where these words stand, whatever is between them; marks around them belong to them."""
        wanted, reached = [word.lower() for word in words], 0
        for at in self._places.get(wanted[0], ()):
            end = at + len(wanted)
            start = self._found[at].start()
            if start < reached or self._lower[at:end] != wanted or self._is_cut(at, at) or self._is_cut(end, end - 1):
                continue
            while start > reached and self._text[start - 1] in _OPENING:
                start -= 1
            after = _CLOSING.match(self._text, self._found[end - 1].end())
            reached = after.end() if after else len(self._text)
            yield start, reached

    def _is_cut(self, border: int, of: int) -> bool:
        """Whether a word touches another at this border, as a letter does one of a script without spaces."""
        touches = 0 < border < len(self._found) and self._found[border - 1].end() == self._found[border].start()
        return touches and not _is_unspaced(self._lower[of])


def _without(
    words: Sequence[str], text: _Words, group: Sequence[Chunk], *, whole: bool = True
) -> list[tuple[str, Chunk]] | None:
    """The chunks that change where these words are taken out; None: they cannot be, wholly.

    With `whole` no chunk's border may cut what is found, and of every chunk something has to be left.
    """
    offset = group[0].start
    spans = [(start + offset, end + offset) for start, end in text.spans(words)]
    changed = []
    for chunk in group:
        here = [(start, end) for start, end in spans if start < chunk.end and end > chunk.start]
        if whole and any(start < chunk.start or end > chunk.end for start, end in here):
            return None
        heading = SEPARATOR.join(level for level in chunk.heading.split(SEPARATOR) if not _has(level, words))
        if not here and heading == chunk.heading:
            continue
        left, at = "", chunk.start
        for start, end in [*here, (chunk.end, chunk.end)]:
            until = max(0, start - chunk.start)
            kept = chunk.text[at - chunk.start : until]
            left += kept.lstrip(" ") if left[-1:].isspace() else kept
            at = min(end, chunk.end)
        left = left.strip()
        if whole and (not words_of(left) or _has(left, words) or _has(heading, words)):
            return None
        bare = chunk.bare or _has(chunk.heading.partition(SEPARATOR)[0], words)  # no title is left
        changed.append((chunk.id, replace(chunk, text=left, heading=heading, bare=bare)))
    return changed


def _has(text: str, words: Sequence[str]) -> bool:
    return any(_Words(text).spans(words))


def _seen_elsewhere(chunks: Iterable[Chunk], drawn: Sequence[_Candidate]) -> tuple[set[int], set[tuple[int, int]]]:
    """Which candidates another document nearly equals, and which of their queries, by place, are in another."""
    watched = defaultdict[tuple[str, ...], list[int]](list)
    keys = defaultdict[tuple[str, ...], list[tuple[int, int]]](list)
    for number, one in enumerate(drawn):
        for place, ask in enumerate(one.asks):
            keys[ask.key].append((number, place))
        for triple in one.sketch:
            watched[triple].append(number)
    wanted = watched.keys() | keys.keys()
    alike, elsewhere = set[int](), set[tuple[int, int]]()
    for doc_id, group in _documents(chunks):
        seen = set[tuple[str, ...]]()
        for piece in _pieces(group):
            folded = [word.casefold() for word in words_of(piece)]
            hits = wanted.intersection(_triples(folded))
            seen |= hits
            asked = {ask for triple in hits for ask in keys.get(triple, ()) if drawn[ask[0]].doc_id != doc_id}
            words = _joined(folded) if asked else ""
            elsewhere |= {(number, place) for number, place in asked if drawn[number].asks[place].words in words}
        counts = Counter(number for triple in seen for number in watched.get(triple, ()))
        alike |= {
            number for number, count in counts.items() if count * _SKETCH >= _ALIKE * len(drawn[number].sketch)
        } - {number for number in counts if drawn[number].doc_id == doc_id}
    return alike, elsewhere


def _pieces(group: Sequence[Chunk]) -> Iterator[str]:
    """A document's headings, and its text in pieces."""
    yield "\n".join(dict.fromkeys(chunk.heading for chunk in group if chunk.heading))
    text = (
        _text_of(group)
        if all(len(one.text) == one.end - one.start for one in group)
        else "\n".join(one.text for one in group)
    )
    yield from (text[start : start + _PIECE + _SHARED] for start in range(0, len(text), _PIECE))
