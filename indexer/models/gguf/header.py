"""The header of a GGUF file: its metadata, and where each tensor is.

    "GGUF", u32 version, u64 tensors, u64 keys; the keys; the tensors' infos; data from the next multiple of
    `general.alignment` on. All little-endian. Format: ggml-org/ggml, docs/gguf.md.

The file is untrusted: each length is checked against the file's size before anything is read or allocated, numbers
are Python's, which do not overflow, and what two readers could understand differently (a key or a tensor that occurs
twice, tensors that overlap) is refused. Nothing is mapped: a mapped file that is cut short ends the process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ragidx.corpora.errors import ModelError, check_machine, missing_extra
from ragidx.indexer.model_files import AGAIN

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_HEADER_BYTES = 1 << 26  # the largest known, with 262,144 tokens, take about a sixth
_KEYS, _TENSORS, _DIMENSIONS = 10_000, 100_000, 4
_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "|b1", 10: "<u8", 11: "<i8"} | {
    12: "<f8"
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in a GGUF file."""

    path: Path
    name: str
    kind: str  # how its numbers are stored, such as Q4_K
    shape: tuple[int, ...]  # rows first; the file has the dimensions the other way round
    start: int  # where its bytes begin
    row_bytes: int  # of one row: the last dimension, which is a whole number of blocks

    @property
    def n_rows(self) -> int:
        """All dimensions but the last."""
        return math.prod(self.shape[:-1])

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.n_rows * self.row_bytes


@dataclass(frozen=True)
class Gguf:
    """A GGUF file whose header was read."""

    path: Path  # of a split model the first part
    metadata: dict[str, Any] = field(repr=False, compare=False)  # arrays of numbers as NumPy's, of strings as lists
    tensors: dict[str, GgufTensor] = field(repr=False)  # by name
    parts: tuple[Path, ...]  # the files of a split model, in order; else the file alone

    def single(self, key: str, default: Any = None) -> Any:
        """A value that is a string or a number; in place of an array a text that says so, which is no name."""
        found = self.metadata.get(key, default)
        return found if isinstance(found, str | int | float | None) else f"an array of {len(found):,}"


class _FileError(Exception):
    """What is wrong with the file."""


def is_gguf(path: Path) -> bool:
    """Whether a file begins as a GGUF file does; False where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> Gguf:
    """The header of a file.

    Raises:
        ModelError: it is not a GGUF file, is damaged, or cannot be read.
        RagidxError: the package `gguf` is not installed.
    """
    try:
        import gguf  # noqa: F401
    except ImportError as fault:
        raise missing_extra(f"the GGUF file '{path.name}' needs", ["gguf"], "models") from fault
    try:
        with path.open("rb") as stream:
            return _Reader(stream, path.stat().st_size).gguf(path)
    except OSError as fault:
        check_machine(fault, path)
        raise ModelError(f"the file cannot be read: {fault.strerror}", AGAIN, where=str(path)) from fault
    except _FileError as fault:
        raise ModelError(f"no GGUF file that can be read: {fault}", AGAIN, where=str(path)) from fault


class _Reader:
    """Reads forward; what was read stays in memory, and is bounded."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size = stream, size
        self._data, self._at = b"", 0

    def gguf(self, path: Path) -> Gguf:
        if self._size < len(MAGIC) or self._bytes(len(MAGIC)) != MAGIC:
            raise _FileError(f"it does not begin with {MAGIC.decode()}")
        version = self._number(4)
        if version not in _VERSIONS:
            big = int.from_bytes(version.to_bytes(4, "big"), "little") in _VERSIONS
            raise _FileError("it is big-endian" if big else f"version {version} of the format is not known")
        n_tensors, n_keys = self._number(8), self._number(8)
        if n_tensors > _TENSORS or n_keys > _KEYS:
            raise _FileError(f"it says that it has {n_tensors:,} tensors and {n_keys:,} keys")
        metadata: dict[str, Any] = {}
        for _ in range(n_keys):
            key = self._string()
            if key in metadata:
                raise _FileError(f"the key {key!a} is there twice")
            metadata[key] = self._value(self._number(4))
        infos = [self._info() for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment > self._size:
            raise _FileError(f"the alignment is {str(alignment)[:40]!a}")
        start = -(-self._at // alignment) * alignment
        return Gguf(path, metadata, self._placed(path, infos, start, alignment), (path,))

    def _placed(
        self, path: Path, infos: list[tuple[str, tuple[int, ...], int, int]], start: int, alignment: int
    ) -> dict[str, GgufTensor]:
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in infos:
            if name in tensors:
                raise _FileError(f"the tensor {name!a} is there twice")
            label, per_block, block_bytes = _quantisation(kind, name)
            if shape[-1] % per_block:
                raise _FileError(f"the rows of {name!a} are {shape[-1]} long, not a multiple of {per_block}")
            if offset % alignment:
                raise _FileError(f"{name!a} is at {offset:,}, not a multiple of {alignment}")
            tensor = GgufTensor(path, name, label, shape, start + offset, shape[-1] // per_block * block_bytes)
            if tensor.start + tensor.n_bytes > self._size:
                raise _FileError(f"{name!a} ends behind the file's {self._size:,} bytes: it was cut short")
            tensors[name] = tensor
        behind = start
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
            if tensor.start < behind:
                raise _FileError(f"{tensor.name!a} overlaps another tensor")
            behind = tensor.start + tensor.n_bytes
        return tensors

    def _info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        n_dimensions = self._number(4)
        if not 1 <= n_dimensions <= _DIMENSIONS:
            raise _FileError(f"the tensor {name!a} has {n_dimensions:,} dimensions")
        shape = tuple(self._number(8) for _ in range(n_dimensions))[::-1]
        if 0 in shape:
            raise _FileError(f"the tensor {name!a} has a dimension of 0")
        return name, shape, self._number(4), self._number(8)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._numbers(kind, 1)[0].item()
        inner, count = self._number(4), self._number(8)
        if inner != _STRING:
            return self._numbers(inner, count)
        self._check_room(count * 8)  # each has at least its length
        return [self._string() for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> np.ndarray[Any, Any]:
        import numpy as np  # not by `--help`, which imports this module

        if kind not in _NUMBERS:
            raise _FileError("an array holds arrays" if kind == _ARRAY else f"a value of the unknown type {kind:,}")
        dtype = np.dtype(_NUMBERS[kind])
        taken = self._bytes(count * dtype.itemsize)
        return np.frombuffer(taken, np.uint8) != 0 if dtype.kind == "b" else np.frombuffer(taken, dtype)

    def _string(self) -> str:
        taken = self._bytes(self._number(8))
        try:
            return taken.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise _FileError(f"the string {taken[:40]!r} is not UTF-8") from fault

    def _number(self, width: int) -> int:
        return int.from_bytes(self._bytes(width), "little")

    def _bytes(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            self._check_room(count)
            wanted = min(self._size, max(end, 2 * len(self._data), 1 << 16)) - len(self._data)
            self._data += self._stream.read(wanted)
            if end > len(self._data):
                raise _FileError("it became shorter while it was read")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _check_room(self, count: int) -> None:
        if self._at + count > self._size:
            raise _FileError(f"its header is longer than its {self._size:,} bytes: it was cut short or is damaged")
        if self._at + count > _HEADER_BYTES:
            raise _FileError(f"its header is larger than {_HEADER_BYTES >> 20} MiB")


def _quantisation(number: int, name: str) -> tuple[str, int, int]:
    """Name, numbers a block, and bytes a block of a type of tensor."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(number)
    except ValueError as fault:
        raise _FileError(f"{name!a} is quantised as type {number:,}, which is not known") from fault
    return (kind.name, *GGML_QUANT_SIZES[kind])
