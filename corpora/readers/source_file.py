"""A source while it is read: its bytes, unpacked and bounded, and the report of its skips.

    Source -> SourceFile -> stream of bytes | all bytes | a path

`.gz`, `.zst`, `.bz2` and `.xz` are unpacked here; readers see the ending below them. Formats are not known here.
"""

from __future__ import annotations

import datetime
import io
import lzma
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ragidx.corpora.field_settings import FieldSettings, settings_of
from ragidx.corpora.left_out import Left, Tally
from ragidx.corpora.limits import MIB, Limits, ReadOptions, UnreadableError, check_growth, read_all, shown_bytes
from ragidx.corpora.readers.decoding import decode, sample_encoding
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import FILE_FIELDS, OnSkip, Scalar, Skip
from ragidx.corpora.sources import Source

_PACKINGS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_SHORT = {".tgz": ".tar.gz", ".tbz2": ".tar.bz2", ".tbz": ".tar.bz2", ".txz": ".tar.xz", ".tzst": ".tar.zst"}
_BLOCK_BYTES = MIB
_PLACE_CHARS = 200  # of a place that is told: the name of an attachment may be a whole file
_GUESSED = "guessed encodings"
_REASON_CHARS = 300  # a name that a file gives may have any length


@dataclass(slots=True, kw_only=True)
class SourceFile:
    """What a reader is given.

    Args:
        source: the file to read.
        options: options of reading: which fields to take, and bounds.
        on_skip: called for each skip, and at the end for each kind of what was left out.
        member: the bytes of a file inside another, an archive or a mail; they can be read once.
        depth: how many files it is inside of.
        layouts: how the records of the corpus's files become documents.
        tesseract: what runs it, where this process may not; None: this process.
        on_page: called after each page of the file that is read by text recognition, with the share that is done.
    """

    source: Source
    options: ReadOptions
    on_skip: OnSkip
    member: io.BufferedReader[Any] | None = None
    depth: int = 0
    layouts: Layouts = field(default_factory=Layouts)
    tesseract: Callable[[bytes, str], str] | None = None
    on_page: Callable[[float], None] = lambda share: None
    ending: str = field(init=False)  # lower case, below .gz and the like; "" if there is none
    packing: str | None = field(init=False)
    fields: FieldSettings = field(init=False)  # what the user says of them
    left: Tally = field(init=False, default_factory=Tally)  # out of its documents
    read_by_ocr: Mapping[str, Scalar] = field(init=False, default_factory=dict)  # `OCR_FIELDS`
    _open: IO[bytes] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        name = Path(self.source.name.lower())
        name = name.with_suffix(_SHORT.get(name.suffix, name.suffix))
        self.packing = _PACKINGS.get(name.suffix)
        self.fields = settings_of(self.options, self.source.name)
        self.ending = (name.with_suffix("") if self.packing else name).suffix

    @property
    def limits(self) -> Limits:
        """Bounds on files."""
        return self.options.limits

    def doc_id(self, record: str = "") -> str:
        """The document id: the file's name, and `#record` for one record of many."""
        if self.source.beir:
            return record
        return f"{self.source.name}#{record}" if record else self.source.name

    def file_fields(self) -> dict[str, Scalar]:
        """`FILE_FIELDS` of the file; of a member its own path and size, and the time of the outer file."""
        source = self.source
        if source.path is None and self.member is None:
            return {}
        folder, _, name = source.name.rpartition("/")
        modified = _time_of(source.status.st_mtime) if source.status is not None else None
        values = (source.name, name, self.ending, folder, source.size, modified)
        return {field: value for field, value in zip(FILE_FIELDS, values, strict=True) if value is not None}

    def skip(self, reason: str, at: str = "") -> None:
        """Report that the file is skipped, or what is `at` (`:line` or `#record`) in it."""
        short = reason if len(reason) <= _REASON_CHARS else f"{reason[:_REASON_CHARS]}..."
        self.on_skip(Skip(f"{self.source.name}{at}", short.encode("utf-8", "replace").decode()))  # names of fields

    def leave(self, kind: str, count: int = 1, at: str = "") -> None:
        """Count what is left out of a document, of one of `left.KINDS`; `at`: its place, `:line` or `#page=3`."""
        self.left.leave(kind, count, at)

    def decoded(self, data: bytes | bytearray, declared: str = "") -> str:
        """The text of the file, or of a part of it, in the encoding that the user says, else as `decoding.decode`.

        Raises:
            UnreadableError: as `decode`.
        """
        return decode(data, declared=declared, said=self.fields.encoding or "", on_guess=self.guessed)

    def encoding_of(self, sample: bytes) -> str:
        """The encoding of a file that streams, by its first bytes.

        Raises:
            UnreadableError: as `sample_encoding`.
        """
        return sample_encoding(sample, said=self.fields.encoding or "", on_guess=self.guessed)

    def guessed(self, encoding: str) -> None:
        """Report, once a file, that its encoding is a guess."""
        if _GUESSED not in self.left:
            self.leave(_GUESSED, at=f" ({encoding})")

    def report_left(self) -> None:
        """Report what was left out, once a kind."""
        for kind, (count, at) in self.left.items():
            self.on_skip(Left(f"{self.source.name}{at[:_PLACE_CHARS]}", kind, count))

    @contextmanager
    def stream(self) -> Iterator[IO[bytes]]:
        """The file's bytes, unpacked.

        Raises:
            UnreadableError: it is no longer a regular file; while reading: it is damaged, or expands beyond the limits.
        """
        with self._packed() as packed:
            outer, self._open = self._open, packed
            try:
                if self.packing is None:
                    yield packed
                    return
                with io.BufferedReader(_Unpacked(packed, self.packing, self.limits), _BLOCK_BYTES) as stream:
                    yield stream
            finally:
                self._open = outer  # `head` may be asked while the file is read

    @property
    def position(self) -> int:
        """Bytes of the file, or of its part, that are read, packed as they are; 0 where that is not known."""
        start = 0 if self.source.span is None else self.source.span.start
        return 0 if self._open is None or self.source.path is None else max(0, self._open.tell() - start)

    def _packed(self) -> AbstractContextManager[IO[bytes]]:
        if self.member is not None:
            return nullcontext(self.member)
        return nullcontext(sys.stdin.buffer) if self.source.path is None else _open_regular(self.source.path)

    def head(self, size: int) -> bytes:
        """The first bytes, which `stream` gives again; none of what is read once: standard input, a packed member.

        Raises:
            UnreadableError: as `stream`.
        """
        if self.member is not None:
            return b"" if self.packing else self.member.peek(size)[:size]
        if self.source.path is None:
            return b""
        with self.stream() if self.packing else _open_regular(self.source.path, buffering=0) as stream:
            return stream.read(size)

    def data(self, limit: int) -> bytearray:
        """All of the file's bytes.

        Raises:
            UnreadableError: as `stream`, or they are more than `limit`.
        """
        with self.stream() as stream:
            return read_all(stream, limit)

    @contextmanager
    def path(self) -> Iterator[Path]:
        """The file by a path, for formats that need to seek: itself, or unpacked into a temporary file."""
        if self.packing is None and self.source.path is not None:
            with _open_regular(self.source.path):  # raises now if it cannot be read
                pass
            yield self.source.path
            return
        with tempfile.NamedTemporaryFile(suffix=self.ending) as spool, self.stream() as stream:
            while block := stream.read(_BLOCK_BYTES):
                spool.write(block)
            spool.flush()
            yield Path(spool.name)


def _time_of(seconds: float) -> datetime.datetime | None:
    """A time in UTC, to the second; None: it is not of years 1 to 9999."""
    try:
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _open_regular(path: Path, buffering: int = _BLOCK_BYTES) -> IO[bytes]:
    """Open, but not a link or a FIFO that replaced the file since the walk."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError("not a regular file")
    return os.fdopen(descriptor, "rb", buffering=buffering)


class _Unpacked(io.RawIOBase):
    """Unpacked bytes, counted. Arrow unpacks block by block, joins members, and detects a truncated file."""

    def __init__(self, packed: IO[bytes], packing: str, limits: Limits) -> None:
        self._packed = packed
        self._packing = packing
        self._limits = limits
        self._count = 0
        self._inner = _stream(packed, packing)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = int(self._inner.readinto(buffer))
        except (OSError, lzma.LZMAError) as fault:
            raise UnreadableError(f"damaged {self._packing} data: {fault}") from fault
        self._count += count
        if self._count > self._limits.unpacked_bytes:
            raise UnreadableError(f"expands to more than {shown_bytes(self._limits.unpacked_bytes)}")
        check_growth(self._count, max(1, self._packed.tell()), self._limits)
        return count


def _stream(packed: IO[bytes], packing: str) -> Any:
    if packing == "xz":  # which Arrow does not unpack
        return _Xz(packed)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), packing)


class _Xz:
    """Bytes of an .xz. `lzma.LZMAFile` ends, without an error, at padding and at a later stream that is damaged."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._inner = packed, lzma.LZMADecompressor()

    def readinto(self, buffer: Any) -> int:
        while True:
            rest = self._inner.unused_data if self._inner.eof else b""
            if self._inner.eof:
                rest = (rest or self._packed.read(_BLOCK_BYTES)).lstrip(b"\0")  # padding between streams
                if not rest:
                    return 0
                self._inner = lzma.LZMADecompressor()
            elif self._inner.needs_input and not (rest := self._packed.read(_BLOCK_BYTES)):
                raise lzma.LZMAError("truncated")
            if block := self._inner.decompress(rest, max_length=len(buffer)):
                buffer[: len(block)] = block
                return len(block)
