"""The files of each shard, and the stemmer that all of them use.

Parts follow one another in the order of the corpus, so that the first document with an id is the same one as in a build
on one machine. A large file of JSON Lines is cut at its lines; how it is read is decided here, by its beginning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from ragidx.corpora.limits import MIB, UnreadableError
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.records.jsonl import spans
from ragidx.corpora.readers.registry import is_lines
from ragidx.corpora.sources import LineSpan, Source
from ragidx.indexer.lexical.spec import decided
from ragidx.pipelines.ingest.corpus import Reading
from ragidx.pipelines.ingest.resolve import Resolved

_SPLIT_BYTES = MIB  # a smaller file of JSON Lines is not split
_FILE_BYTES = 4096  # that a file counts for beside its own: to open one takes time
_SAMPLE_PLACES, _SAMPLE_TEXTS, _SAMPLE_CHARS = 64, 16, 2_000  # by which the stemmer is chosen


def parts_of(sources: Sequence[Source], n: int, reading: Reading) -> list[list[Source]]:
    """The files of each shard, in the order of the corpus; large files of JSON Lines are cut at lines."""
    sizes = [source.size + _FILE_BYTES for source in sources]
    total = sum(sizes)
    ends = [total * k // n for k in range(1, n)]  # of all shards but the last
    parts: list[list[Source]] = [[] for _ in range(n)]
    for source, start, size in zip(sources, itertools.accumulate(sizes, initial=0), sizes, strict=False):
        inside = [end - start for end in ends if start < end < start + size]
        cut = _spans(source, inside, reading) if inside and source.size >= _SPLIT_BYTES else []
        if len(cut) < 2:
            parts[bisect_right(ends, start + size // 2)].append(source)
        for span in cut if len(cut) > 1 else ():
            middle = start + (span.start + span.stop) // 2
            parts[bisect_right(ends, middle)].append(dataclasses.replace(source, span=span))
    return parts


def _spans(source: Source, starts: Sequence[int], reading: Reading) -> list[LineSpan]:
    """The parts of a file, of which the beginning decides how all of it is read; none where it is not split."""
    if not is_lines(source, reading.read_options):
        return []
    try:
        found = spans(source, starts, reading.read_options)
    except (UnreadableError, OSError):  # the shard that reads it says why
        return []
    if len(found) > 1 and not source.beir:
        files = reading.files(None, lambda skip: None)
        next((next(drafts, None) for _, drafts in files.drafts([source])), None)
        layout = reading.layouts.used.get(source.name)
        if layout is None or layout.id is not None or not layout.is_kept:
            return []  # ids of a field that was found are told apart by the whole file
    return found


def stemmer_of(resolved: Resolved, reading: Reading, sources: Sequence[Source]) -> str:
    """The setting of the stemmer of all shards: what was asked for, else by texts from all over the corpus."""
    setting = resolved.index_options().lexical
    current = None if resolved.stored is None else resolved.stored.manifest.lexical

    def sample() -> Iterator[str]:
        drawn = _drawn(sources, reading)
        layouts = Layouts(reading.layouts.known | reading.layouts.used)
        files = dataclasses.replace(reading.files(None, lambda skip: None), layouts=layouts)
        for source, drafts in files.drafts(drawn):
            for draft in itertools.islice(drafts, drawn[source] * _SAMPLE_TEXTS):
                yield "" if draft.document is None else draft.document.text[:_SAMPLE_CHARS]

    made = decided(setting, current, sample)
    return setting if made is None else made.stemmer


def _drawn(sources: Sequence[Source], reading: Reading) -> Counter[Source]:
    """Files, and parts of large ones, at places that are evenly spread over the bytes; and how many each has."""
    ends = list(itertools.accumulate(source.size + 1 for source in sources))
    found: Counter[Source] = Counter()
    for number in range(_SAMPLE_PLACES if ends else 0):
        place = ends[-1] * number // _SAMPLE_PLACES
        source = sources[bisect_right(ends, place)]
        start = place - (ends[bisect_right(ends, place)] - source.size - 1)
        if source.size >= _SPLIT_BYTES and is_lines(source, reading.read_options):
            source = _from_line(source, start)
        found[source] += 1
    return found


def _from_line(source: Source, start: int) -> Source:
    """Some lines of a file, from the first that begins behind a byte: whoever reads a part reads all of it."""
    assert source.path is not None
    with contextlib.suppress(OSError), source.path.open("rb") as file:
        file.seek(start)
        if start:
            file.readline()
        if (begin := file.tell()) < source.size:
            for _ in range(_SAMPLE_TEXTS):
                file.readline()
            return dataclasses.replace(source, span=LineSpan(begin, file.tell(), 0, 0))
    return source
