"""The header of a GGUF file, known and hostile, and tensors of every quantisation."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.gguf.header import GgufTensor, read_header
from ragidx.indexer.models.gguf.tensors import check_readable, float_blocks, stored_blocks

from ...gguf_kit import gguf
from ...raising import message_of

U32, STRING, ARRAY, U64 = 4, 8, 9, 10
AGAIN = "\n  hint: download or copy the model again"
KINDS = [kind for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits or kind.name in ("F32", "F16")]


def text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, data: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + data


def info(name: str, dims: tuple[int, ...] = (4, 2), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def built(keys: tuple[bytes, ...] = (), infos: tuple[bytes, ...] = (), data: bytes = bytes(64), **head: Any) -> bytes:
    """The bytes of a file, its data aligned to 32."""
    count = (head.get("n_tensors", len(infos)), head.get("n_keys", len(keys)))
    start = head.get("magic", b"GGUF") + struct.pack("<IQQ", head.get("version", 3), *count)
    start += b"".join(keys) + b"".join(infos)
    return start + bytes(-len(start) % 32) + data


def told(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    said = message_of(ModelError, lambda: read_header(path))
    return said.removeprefix(f"{path}: no GGUF file that can be read: ").removesuffix(AGAIN)


def test_keys_and_tensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    array = struct.pack("<IQ", U32, 3) + struct.pack("<3I", 5, 6, 7)
    words = struct.pack("<IQ", STRING, 2) + text("a") + text("ü")
    keys = (key("n", U64, struct.pack("<Q", 1 << 60)), key("a", ARRAY, array), key("w", ARRAY, words))
    keys += (key("f", 6, struct.pack("<f", 0.5)), key("b", 7, b"\x01"), key("s", STRING, text("x\0y")))
    rows = np.arange(8, dtype="<f4")
    path.write_bytes(built(keys, (info("t"), info("u", (32,), 8, 32)), rows.tobytes() + bytes(34)))

    found = read_header(path)

    assert found.metadata["a"].tolist() == [5, 6, 7]
    del found.metadata["a"]
    assert found.metadata == {"n": 1 << 60, "w": ["a", "ü"], "f": 0.5, "b": True, "s": "x\0y"}
    start = found.tensors["t"].start
    assert found.tensors == {
        "t": GgufTensor(path, "t", "F32", (2, 4), start, 16),
        "u": GgufTensor(path, "u", "Q8_0", (32,), start + 32, 34),
    }
    assert start % 32 == 0
    assert np.concatenate(list(float_blocks(found.tensors["t"], 1))).tolist() == rows.reshape(2, 4).tolist()


def test_the_files_own_alignment_places_the_data(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(built((key("general.alignment", U32, struct.pack("<I", 4)),), (info("t"),)))

    assert read_header(path).tensors["t"].start == 100  # behind 24 bytes, a key of 33 and an info of 41


@pytest.mark.parametrize(
    ("data", "message"),
    {
        "empty": (b"", "it does not begin with GGUF"),
        "other magic": (built(magic=b"GGML"), "it does not begin with GGUF"),
        "a web page": (b"<!doctype html>", "it does not begin with GGUF"),
        "magic alone": (b"GGUF", "its header is longer than its 4 bytes: it was cut short or is damaged"),
        "version 1": (built(version=1), "version 1 of the format is not known"),
        "big-endian": (built(version=3 << 24), "it is big-endian"),
        "many tensors": (built(n_tensors=1 << 62), "it says that it has 4,611,686,018,427,387,904 tensors and 0 keys"),
        "many keys": (built(n_keys=10_001), "it says that it has 0 tensors and 10,001 keys"),
        "long key": (
            built((struct.pack("<Q", 1 << 62),)),
            "its header is longer than its 96 bytes: it was cut short or is damaged",
        ),
        "array of bytes": (
            built((key("a", ARRAY, struct.pack("<IQ", 0, 1 << 62)),)),
            "its header is longer than its 128 bytes: it was cut short or is damaged",
        ),
        "array of strings": (
            built((key("a", ARRAY, struct.pack("<IQ", STRING, 1 << 62)),)),
            "its header is longer than its 128 bytes: it was cut short or is damaged",
        ),
        "nested arrays": (built((key("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 5000),)), "an array holds arrays"),
        "unknown value": (built((key("a", 99, b""),)), "a value of the unknown type 99"),
        "no UTF-8": (built((key("a", STRING, text(b"\xff\xfe")),)), "the string b'\\xff\\xfe' is not UTF-8"),
        "key twice": (built((key("a", 7, b"\1"), key("a", 7, b"\0"))), "the key 'a' is there twice"),
        "tensor twice": (
            built((), (info("t"), info("t", offset=32))),
            "the tensor 't' is there twice",
        ),
        "overlap": (built((), (info("t"), info("u"))), "'u' overlaps another tensor"),
        "behind the end": (
            built((), (info("t", offset=64),)),
            "'t' ends behind the file's 160 bytes: it was cut short",
        ),
        "offset 2^60": (
            built((), (info("t", offset=1 << 60),)),
            "'t' ends behind the file's 160 bytes: it was cut short",
        ),
        "offset wraps": (
            built((), (info("t", offset=2**64 - 32),)),
            "'t' ends behind the file's 160 bytes: it was cut short",
        ),
        "size wraps": (
            built((), (info("t", (1 << 40, 1 << 40)),)),
            "'t' ends behind the file's 160 bytes: it was cut short",
        ),
        "askew": (built((), (info("t", offset=4),)), "'t' is at 4, not a multiple of 32"),
        "no dimension": (built((), (info("t", ()),)), "the tensor 't' has 0 dimensions"),
        "many dimensions": (
            built((), (text("t") + struct.pack("<I", 1 << 31),)),
            "the tensor 't' has 2,147,483,648 dimensions",
        ),
        "dimension 0": (built((), (info("t", (4, 0)),)), "the tensor 't' has a dimension of 0"),
        "half a block": (built((), (info("t", (33,), 8),)), "the rows of 't' are 33 long, not a multiple of 32"),
        "unknown quantisation": (
            built((), (info("t", kind=999),)),
            "'t' is quantised as type 999, which is not known",
        ),
        "alignment 0": (built((key("general.alignment", U32, bytes(4)),)), "the alignment is '0'"),
        "alignment a text": (built((key("general.alignment", STRING, text("x")),)), "the alignment is 'x'"),
        "alignment of the universe": (
            built((key("general.alignment", U64, struct.pack("<Q", 1 << 63)),)),
            "the alignment is '9223372036854775808'",
        ),
    }.values(),
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    assert told(tmp_path, data) == message


def test_a_header_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with path.open("wb") as stream:
        stream.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1))
        stream.write(text("a") + struct.pack("<IIQ", ARRAY, 0, 1 << 30))
        stream.truncate(1 << 31)  # sparse

    with pytest.raises(ModelError, match="its header is larger than 64 MiB"):
        read_header(path)


@pytest.mark.slow
@given(st.data())
def test_any_change_of_a_byte_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    keys = (key("general.architecture", STRING, text("llama")), key("n", ARRAY, struct.pack("<IQ2I", U32, 2, 1, 2)))
    whole = bytearray(built(keys, (info("t"), info("u", (32,), 8, 32)), bytes(66)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])

    try:
        found = read_header(path)
    except ModelError:
        return

    for tensor in found.tensors.values():
        assert sum(rows.nbytes for rows in stored_blocks(tensor, 1)) == tensor.n_bytes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_quantisation_is_read_as_gguf_reads_it(tmp_path: Path, kind: Any) -> None:
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    columns = 2 * max(per_block, 16)
    rows = np.random.default_rng(1).integers(0, 256, (5, columns // per_block * block_bytes), np.uint8)
    path = tmp_path / "x.gguf"
    path.write_bytes(built((), (info("t", (columns, 5), kind.value),), rows.tobytes()))

    found = read_header(path).tensors["t"]
    read = np.concatenate(list(float_blocks(found, 2)))

    assert (found.kind, found.shape, read.dtype) == (kind.name, (5, columns), np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(read, gguf.quants.dequantize(rows, kind))


def test_a_kind_that_cannot_be_dequantised_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(built((), (info("t", (4, 2), gguf.GGMLQuantizationType.I32.value),)))

    assert message_of(ModelError, lambda: check_readable(read_header(path).tensors["t"])) == (
        f"{path}: 't' is stored as I32, which cannot be read\n"
        "  hint: use a file in another quantisation, such as Q4_K_M or Q8_0, or the folder with the safetensors"
    )


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=re.escape(f"{tmp_path / 'x'}: the file cannot be read: No such file")):
        read_header(tmp_path / "x")
