"""What a plan reads of a corpus, and what that says of all of it: the whole while it is small, else a random sample.

    files -> Parts, read one after the other -> counts of each -> Estimates

A corpus of up to 8 MiB is one part, and its counts are exact. A larger one is divided by file ending, and parts of each
ending are drawn with equal chances: files, and of long texts and files of many records blocks of whole lines, some
64 KiB each. A packed file or a table can be read from its start only: its blocks are drawn from its first GiB. The same
corpus always gives the same parts.

An estimate is the sum over endings of counts a byte times bytes. Its range holds the true number nine times of ten: the
standard error by the jackknife, each part left out once (Cochran 1977, section 6.17), times Student's t. Texts that are
equal in several parts of the corpus are encoded once, which a sample does not see.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import io
import itertools
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ragidx.corpora.errors import RagidxError
from ragidx.corpora.readers.office.converter import ENDINGS as OFFICE_ENDINGS
from ragidx.corpora.readers.registry import READERS
from ragidx.corpora.sources import Source
from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.ingest.report import Skips

WHOLE_BYTES = 8 << 20  # a corpus of up to so many is read whole: some ten seconds of cutting
SAMPLE_BYTES = 4 << 20  # read of a larger one, about
_BLOCK_BYTES = 64 << 10
_LINE_BYTES = 64 << 20  # a longer line is cut, as the readers' limit has it
_STREAM_BYTES = 1 << 30  # read of a packed file or a table, to draw blocks from
_FEWEST = 8  # parts of an ending, where it has as many and they are small
_SEED = 0
_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip", ".parquet")
_WEIGHTS = {**dict.fromkeys(_PACKED, 4), **dict.fromkeys(OFFICE_ENDINGS, 8)}  # they hold more, or take longer
_PACKINGS = {".gz": "gzip", ".zst": "zstd"}
_TEXTS = {ending for ending, reader in READERS.items() if reader in (READERS[".txt"], READERS[".md"], READERS[".rst"])}
_RECORDS = (".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_Z = 1.645  # of a normal distribution, 90 % lies within so many standard deviations


@dataclass
class Part:
    """A part of a corpus that is read, and what it holds.

    Attributes:
        ending: of the files that it was drawn from.
        total_bytes: of all files with this ending.
        n_bytes: of these, how many it is, packed as they are.
        share: of a document that its text is: less than 1 for a block of a long text.
        source: what is read; None: the whole corpus.
        counts: by name: documents, chunks, tokens ...
        skips: what was skipped.
    """

    ending: str
    total_bytes: int
    n_bytes: float
    share: float = 1.0
    source: Source | None = None
    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    skips: Skips = field(default_factory=Skips)


@dataclass(frozen=True)
class Estimate:
    """A count with its range; all three are equal where everything was read."""

    value: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether it was counted."""
        return self.low == self.value == self.high


class Estimates:
    """Counts of the corpus that parts were drawn from.

    >>> one, other = Part(".md", 1000, 100), Part(".md", 1000, 100)
    >>> one.counts["chunks"], other.counts["chunks"] = 4, 8
    >>> Estimates([one, other])["chunks"].value
    60
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._totals = {part.ending: part.total_bytes for part in parts}
        self._endings = np.array([part.ending for part in parts])
        self._bytes = np.array([part.n_bytes for part in parts], float)

    @property
    def share(self) -> float:
        """How much of the corpus was read, by bytes."""
        return min(1.0, float(self._bytes.sum()) / max(1, sum(self._totals.values())))

    def __getitem__(self, name: str) -> Estimate:
        """One of the counts."""
        return self._estimate([part.counts[name] for part in self._parts])

    def skipped(self) -> dict[str, int]:
        """What is skipped, by reason, the most frequent first."""
        reasons = {reason for part in self._parts for reason in part.skips.counts}
        found = {
            reason: self._estimate([part.skips.counts[reason] for part in self._parts]).value for reason in reasons
        }
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def _estimate(self, counts: Sequence[float]) -> Estimate:
        value = squares = 0.0
        for ending, total in self._totals.items():
            own = self._endings == ending
            found, error = _ratio_estimate(np.array(counts, float)[own], self._bytes[own], total)
            value += found
            squares += error**2
        low, high = max(0.0, value - squares**0.5), value + squares**0.5
        return Estimate(round(value), round(low), round(high))


def _ratio_estimate(counts: Doubles, sizes: Doubles, total: int) -> tuple[float, float]:
    """A count for all bytes of an ending, and how far off it may be, nine times of ten; of a single part, half."""
    n, read = len(counts), max(1.0, float(sizes.sum()))
    value = max(1, total) * float(counts.sum()) / read
    left = max(0.0, 1 - read / max(1, total))
    if n == 1:
        return value, value / 2 if left else 0.0
    without = max(1, total) * (counts.sum() - counts) / np.maximum(1.0, read - sizes)
    squares = float(((without - value) ** 2).sum()) * (n - 1) / n
    t = _Z + (_Z**3 + _Z) / (4 * (n - 1))  # Fisher's expansion of Student's t
    return value, t * (left * squares) ** 0.5


class _Kind(NamedTuple):
    """Files that are read alike: `.jsonl`, and `.zst` where they are packed."""

    ending: str
    packing: str

    @property
    def weight(self) -> int:
        return _WEIGHTS.get(self.packing or self.ending, 1)

    def n_places(self, file: Source) -> int:
        """Into how many parts a file is divided."""
        is_divided = self.ending in _TEXTS or self.ending in _RECORDS + _TABLES
        return max(1, file.size * self.weight // _BLOCK_BYTES) if is_divided else 1


def sample_share(files: Sequence[Source]) -> float:
    """How much of a corpus is read, about; 1: it is read whole."""
    cost = sum(file.size * _kind(file).weight for file in files)
    return 1.0 if cost <= WHOLE_BYTES else SAMPLE_BYTES / cost


def parts(files: Sequence[Source]) -> Iterator[Part]:
    """The parts of a corpus that are read. A block of a file is there until the next part is asked for.

    Raises:
        RagidxError: the temporary folder cannot be written.
    """
    share = sample_share(files)
    if share == 1:
        n_bytes = sum(file.size for file in files)
        yield Part("", n_bytes, n_bytes)
        return
    kinds = defaultdict(list)
    for file in files:
        kinds[_kind(file)].append(file)
    for kind, own in sorted(kinds.items()):
        part = functools.partial(Part, "".join(kind), sum(file.size for file in own))
        for file, places in _drawn_places(kind, own, share):
            yield from _of_file(kind, file, places, part)


def _kind(file: Source) -> _Kind:
    path = Path(file.name.lower())
    packing = path.suffix if path.suffix in _PACKINGS else ""
    return _Kind(Path(path.name.removesuffix(packing)).suffix, packing)


def _drawn_places(kind: _Kind, files: Sequence[Source], share: float) -> Iterator[tuple[Source, list[int]]]:
    """Files, and which of their parts are read; every part of every file has the same chance."""
    ends = list(itertools.accumulate(map(kind.n_places, files)))
    affordable = SAMPLE_BYTES * ends[-1] // max(1, kind.weight * sum(file.size for file in files))
    wanted = max(1, min(_FEWEST, affordable), round(share * ends[-1]))
    drawn = sorted(random.Random(_SEED).sample(range(ends[-1]), min(wanted, ends[-1])))
    for number, places in itertools.groupby(drawn, lambda place: bisect.bisect(ends, place)):
        yield files[number], [place - (ends[number - 1] if number else 0) for place in places]


def _of_file(kind: _Kind, file: Source, places: list[int], part: Callable[..., Part]) -> Iterator[Part]:
    is_read = False
    if kind.n_places(file) > 1:
        with tempfile.TemporaryDirectory(prefix="ragidx-plan-") as folder:
            for n_bytes, block in _blocks(kind, file, places):
                share = n_bytes / file.size if kind.ending in _TEXTS else 1.0
                yield part(n_bytes, share, _put(kind, file, block, folder))
                is_read = True
    if not is_read:  # a file that is small, or that only its reader can make something of
        yield part(file.size, 1.0, file)


def _put(kind: _Kind, file: Source, block: bytes, folder: str) -> Source:
    """A block as a file of its own, under the name of the file it is of."""
    path = Path(folder) / f"corpus{kind.ending}"
    try:
        path.write_bytes(block)
    except OSError as fault:
        raise RagidxError(
            f"cannot be written: {fault.strerror}",
            "set TMPDIR to a folder with room: a plan reads a large corpus by parts of it",
            where=folder,
        ) from fault
    return Source(path, file.name[: len(file.name) - len(kind.packing)], len(block), file.beir)


def _blocks(kind: _Kind, file: Source, places: list[int]) -> Iterator[tuple[float, bytes]]:
    """Blocks of whole lines, each with its bytes in the file; none of a damaged file, of UTF-16 its beginning."""
    import pyarrow as pa

    assert file.path is not None
    with contextlib.suppress(OSError, pa.ArrowException), file.path.open("rb") as packed:
        stream = packed
        if kind.packing:
            unpacked = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), _PACKINGS[kind.packing])
            stream = io.BufferedReader(unpacked, _BLOCK_BYTES)
        if stream.peek(2)[:2] in _UTF_16:  # where a line ends is known to its reader alone
            text = stream.read(len(places) * _BLOCK_BYTES).decode("utf-16", "ignore")
            yield min(packed.tell(), file.size), text[: text.rfind("\n") + 1 or None].encode("utf-16")
            return
        if not kind.packing and kind.ending not in _TABLES:
            yield from ((len(block), block) for block in _entered(stream, file.size, places, kind.n_places(file)))
            return
        rows = _rows(stream) if kind.ending in _TABLES else _lines(stream)
        head = next(rows, b"") if kind.ending in _TABLES else b""
        found, n_read = _drawn_blocks(rows, len(places))
        ratio = min(packed.tell(), file.size) / max(1, n_read + len(head))
        yield from ((ratio * len(block), head + block) for block in found)


def _entered(stream: IO[bytes], size: int, places: list[int], n_places: int) -> Iterator[bytes]:
    """The lines that begin in each of some parts of a file."""
    for place in places:
        start, end = size * place // n_places, size * (place + 1) // n_places
        stream.seek(max(0, start - 1))
        if start:
            stream.readline(_LINE_BYTES)  # one that began before
        if block := _of_a_block(_lines(stream), end - stream.tell()):
            yield block


def _drawn_blocks(lines: Iterator[bytes], wanted: int) -> tuple[list[bytes], int]:
    """Blocks drawn from a stream whose length is not known (Vitter 1985, algorithm R), and the bytes that were read."""
    drawn, found, n_read = random.Random(_SEED), list[bytes](), 0
    for number, block in enumerate(iter(lambda: _of_a_block(lines, _BLOCK_BYTES), b"")):
        n_read += len(block)
        place = number if number < wanted else drawn.randrange(number + 1)
        if place < wanted:
            found[place : place + 1] = [block]
        if n_read >= _STREAM_BYTES:
            break
    return found, n_read


def _of_a_block(lines: Iterator[bytes], n_bytes: int) -> bytes:
    """Lines, until there are so many bytes of them."""
    block = bytearray()
    while len(block) < n_bytes and (line := next(lines, b"")):
        block += line
    return bytes(block)


def _rows(stream: IO[bytes]) -> Iterator[bytes]:
    """Rows of a table, which are several lines where a break is quoted."""
    row, is_open = bytearray(), False
    for line in _lines(stream):
        row += line
        is_open ^= line.count(b'"') % 2 == 1
        if row.strip() and (not is_open or len(row) > _LINE_BYTES):
            yield bytes(row)
            row.clear()


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: stream.readline(_LINE_BYTES), b"")
