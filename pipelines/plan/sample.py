"""Pieces of a corpus: what a forecast reads, the whole of it while that is little, else a sample that lots decide.

    corpus -> strata, one a file ending -> Pieces -> Documents, to be set against the bytes that were read

A small corpus is one piece. Of a larger one, each ending gets its share of the sample by its bytes. Whole files are
drawn; of a file of many records, or of a long text, blocks of whole lines from all over the file (of its first GiB,
where that has to be passed through: tables and packed files). The same corpus always gives the same pieces. A block is
read by the reader of its file, from a temporary file. What the numbers mean is `sampling`'s.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ragidx.corpora.errors import RagidxError
from ragidx.corpora.readers.packed import office
from ragidx.corpora.readers.registry import READERS, read
from ragidx.corpora.records import Document, OnSkip
from ragidx.corpora.sources import Source
from ragidx.indexer.digests import digest
from ragidx.pipelines.build.corpus import Reading

WHOLE_BYTES = 8 << 20  # a corpus of up to so many is read whole: some ten seconds of cutting
SAMPLE_BYTES = 4 << 20  # so much is read of a larger one
_BLOCK_BYTES = 64 << 10
_LINE_BYTES = 4 << 20
_STREAM_BYTES = 1 << 30  # of a packed file or a table, that is passed through; blocks of it are kept
_SEED = 0
_DEAR = {".gz": 4, ".zst": 4, ".parquet": 4, **dict.fromkeys(office.ENDINGS, 8)}
_PACKINGS = {".gz": "gzip", ".zst": "zstd"}
_TEXTS = ("markup:read_text", "markup:read_markdown", "markup:read_rst")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a corpus that is read.

    Attributes:
        ending: its stratum.
        n_bytes: how much of the corpus it stands for, as it lies on the disk.
        share: of a document that its text is: less than 1 for a block of a long text.
        source: what is read; None: all of the corpus.
    """

    ending: str
    n_bytes: float
    share: float = 1.0
    source: Source | None = None

    def documents(self, reading: Reading, on_skip: OnSkip) -> Iterator[Document]:
        """Its Documents, with the ids they have in a build; a record that is known by its number may have another."""
        if self.source is None:
            return reading.documents(on_skip)
        return read(self.source, reading.read_options, on_skip=on_skip)


@dataclass(frozen=True)
class Corpus:
    """What there is to read.

    Attributes:
        files: as a build reads them.
    """

    files: list[Source]

    @property
    def total_bytes(self) -> int:
        """All files together."""
        return sum(file.size for file in self.files)

    def strata(self) -> dict[str, int]:
        """Bytes by ending."""
        found: dict[str, int] = defaultdict(int)
        for file in self.files:
            found[_ending(file)] += file.size
        return dict(found)

    def cost(self) -> int:
        """Its bytes, those of packed and office files counted several times: they hold more, or take longer."""
        return sum(map(_cost, self.files))


def corpus_of(reading: Reading, on_skip: OnSkip) -> Corpus:
    """The files of a corpus; nothing is opened.

    Raises:
        CorpusError: there is no such corpus.
        SpecError: a glob is none.
    """
    return Corpus(list(reading.sources(on_skip)))


def pieces(corpus: Corpus, whole: int, sample: int) -> Iterator[Piece]:
    """All of a corpus, else pieces of each stratum, in an order that lots decide; a piece lives until the next.

    Args:
        corpus: as `corpus_of` gives it.
        whole: the most that all of it may cost.
        sample: what is read of a larger one, about.

    Raises:
        RagidxError: the temporary folder cannot be written.
    """
    if corpus.cost() <= whole:
        yield Piece("", corpus.total_bytes)
        return
    strata = defaultdict(list)
    for file in corpus.files:
        strata[_ending(file)].append(file)
    total = corpus.cost()
    for ending, files in sorted(strata.items()):
        cost = sum(map(_cost, files))
        yield from _of_stratum(ending, files, max(_BLOCK_BYTES, sample * cost // total), cost)


def _of_stratum(ending: str, files: Sequence[Source], budget: int, total: int) -> Iterator[Piece]:
    used = 0
    for file in sorted(files, key=lambda file: _lot(file.name)):
        if used >= budget:
            return
        if _cost(file) <= 2 * _BLOCK_BYTES or not _has_lines(file):
            used += _cost(file)
            yield Piece(ending, file.size, 1.0, file)
            continue
        wanted, before = max(1, round(budget / _BLOCK_BYTES * _cost(file) / total)), used
        with tempfile.TemporaryDirectory(prefix="ragidx-plan-") as place:
            for n_bytes, block in _blocks(file, wanted):
                used += int(n_bytes * _cost(file) / file.size)
                share = n_bytes / file.size if _is_text(file) else 1.0
                yield Piece(ending, n_bytes, share, _put(file, block, place))
        if used == before:  # it is damaged: its reader says how
            used += _cost(file)
            yield Piece(ending, file.size, 1.0, file)


def _put(file: Source, block: bytes, place: str) -> Source:
    """A block as a file of its own, under the name of the file it is of."""
    name = file.name.removesuffix(_packing(file))
    path = Path(place) / f"corpus{_ending(file).removesuffix(_packing(file))}"
    try:
        path.write_bytes(block)
    except OSError as fault:
        raise RagidxError(
            f"cannot be written: {fault.strerror}",
            "set TMPDIR to a folder with room: a plan reads a large corpus by parts of it",
            where=place,
        ) from fault
    return Source(path, name, len(block), file.beir)


def _blocks(file: Source, wanted: int) -> Iterator[tuple[float, bytes]]:
    """Blocks of whole lines, each with the bytes of the file that it stands for. Few or none of a damaged file."""
    import pyarrow as pa

    assert file.path is not None
    packing = _PACKINGS.get(_packing(file))
    is_table = _reader(file) == "tables:read_csv"
    with contextlib.suppress(OSError, pa.ArrowException), file.path.open("rb") as stream:
        if packing is None and not is_table:
            yield from ((len(block), block) for block in _scattered(stream, file, wanted))
            return
        inner: IO[bytes] = stream
        if packing is not None:
            inner = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), packing), _LINE_BYTES)
        head = next(_rows(inner), b"") if is_table else b""
        found, total = _drawn(_rows(inner) if is_table else _lines(inner), wanted, random.Random(_lot(file.name)))
        packed = min(stream.tell(), file.size) / max(1, total + len(head))
        yield from ((packed * len(block), head + block) for block in found)


def _drawn(lines: Iterator[bytes], wanted: int, lots: random.Random) -> tuple[list[bytes], int]:
    """Blocks of a stream whose end is not known, by lots (Vitter 1985, algorithm R); and the bytes that went by."""
    found: list[bytes] = []
    total = number = 0
    block: list[bytes] = []
    size = 0
    for line in itertools.chain(lines, [b""]):
        block.append(line)
        size += len(line)
        if size < _BLOCK_BYTES and line:
            continue
        number += 1
        total += size
        if len(found) < wanted:
            found.append(b"".join(block))
        elif (place := lots.randrange(number)) < wanted:
            found[place] = b"".join(block)
        block, size = [], 0
        if total >= _STREAM_BYTES:
            break
    return [one for one in found if one], total


def _scattered(stream: IO[bytes], file: Source, wanted: int) -> Iterator[bytes]:
    """Blocks from places all over the file: one in each of so many equal parts, where in it lots decide."""
    if stream.read(2) in _UTF_16:  # where a line ends is known to its reader alone
        stream.seek(0)
        yield stream.read(wanted * _BLOCK_BYTES)
        return
    part = file.size / wanted
    reached = 0
    for number in range(wanted):
        draw = int.from_bytes(_lot(f"{file.name}\0{number}")[:4]) / 2**32
        start = max(reached, int((number + draw * max(0.0, 1 - _BLOCK_BYTES / part)) * part))
        stream.seek(start)
        if start > reached:
            stream.readline()  # the end of a line that began before
        block = b"".join(_of_a_block(_lines(stream)))
        reached = stream.tell()
        if block:
            yield block


def _rows(stream: IO[bytes]) -> Iterator[bytes]:
    row, is_open = [], False
    for line in stream:
        row.append(line)
        is_open ^= line.count(b'"') % 2 == 1
        if not is_open and line.strip():
            yield b"".join(row)
            row = []


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines; one that is longer than `_LINE_BYTES` is cut there."""
    while line := stream.readline(_LINE_BYTES):
        yield line


def _of_a_block(lines: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for line in lines:
        yield line
        size += len(line)
        if size >= _BLOCK_BYTES:
            return


def _lot(name: str) -> bytes:
    return digest(f"{_SEED}\0{name}")


def _packing(file: Source) -> str:
    suffix = Path(file.name.lower()).suffix
    return suffix if suffix in _PACKINGS else ""


def _ending(file: Source) -> str:
    """The ending, with that of a packing behind it: `.jsonl.zst`."""
    packing = _packing(file)
    return Path(file.name.lower().removesuffix(packing)).suffix + packing


def _reader(file: Source) -> str:
    return READERS.get(_ending(file).removesuffix(_packing(file)), "")


def _is_text(file: Source) -> bool:
    """Whether the file is one Document."""
    return _reader(file) in _TEXTS


def _has_lines(file: Source) -> bool:
    return _is_text(file) or _reader(file) in ("json_records:read_json_lines", "tables:read_csv")


def _cost(file: Source) -> int:
    """Bytes, weighed by what it takes to read them."""
    return file.size * _DEAR.get(Path(file.name.lower()).suffix, 1)
