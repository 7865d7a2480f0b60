from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.registry import read_file
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.sources import sources

from ..conftest import ReadBytes

pytestmark = pytest.mark.slow

PACKINGS = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress, "xz": lzma.compress}
FILES = {
    "a.txt": ("text", "a.txt.{}"),
    "a.md": ("---\nyear: 1\n---\ntext", "a.md.{}"),
    "a.html": ("<p>text", "a.html.{}"),
    "a.jsonl": ('{"text": "text"}\n', "a.jsonl.{}#1"),
    "a.json": ('[{"text": "text"}]', "a.json.{}#1"),
    "a.csv": ("id,text\nk,text\n", "a.csv.{}#k"),
    "a.tsv": ("id\ttext\nk\ttext\n", "a.tsv.{}#k"),
    "README": ("text", "README.{}"),
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", FILES)
def test_a_packed_file_is_read_as_what_it_is(read_bytes: ReadBytes, name: str, packing: str) -> None:
    text, document_id = FILES[name]

    found = read_bytes(f"{name}.{packing}", PACKINGS[packing](text.encode()))

    assert found.reasons == []
    assert found.ids == [document_id.format(packing)]
    assert found.texts[0].strip() == "text"


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS)
def test_members_one_after_another_are_one_file(
    read_bytes: ReadBytes, pack: Callable[[bytes], bytes], request: pytest.FixtureRequest
) -> None:
    name = f"a.txt.{request.node.callspec.id}"

    assert read_bytes(name, pack(b"one ") + pack(b"two")).texts == ["one two"]


def test_streams_of_an_xz_may_have_padding_between_them(read_bytes: ReadBytes) -> None:
    data = lzma.compress(b"one ") + bytes(8) + lzma.compress(b"two") + bytes(4)

    assert read_bytes("a.txt.xz", data).texts == ["one two"]


@pytest.mark.parametrize("rest", [b"no stream", lzma.compress(b"two")[:-5], b"\xfd7zXZ\0broken"], ids=repr)
def test_a_later_stream_of_an_xz_that_is_damaged_is_no_end_of_the_file(read_bytes: ReadBytes, rest: bytes) -> None:
    found = read_bytes("a.txt.xz", lzma.compress(b"one ") + rest)

    assert found.texts == []
    assert [reason.partition(":")[0] for _, reason in found.reasons] == ["damaged xz data"]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt.gz", gzip.compress(b"x" * 100, mtime=0)[:-9], "damaged gzip data: Truncated compressed stream"),
        ("a.txt.gz", b"plain text", "damaged gzip data: zlib inflate failed: incorrect header check"),
        ("a.txt.gz", b"", "empty file"),
        ("a.txt.zst", zstandard.compress(b"xyz" * 100)[:-3], "damaged zstd data: Truncated compressed stream"),
        ("a.txt.bz2", bz2.compress(b"xyz" * 100)[:-9], "damaged bz2 data: Truncated compressed stream"),
        ("a.txt.xz", lzma.compress(b"xyz" * 100)[:-9], "damaged xz data: truncated"),
        ("a.txt.zst", b"plain text", "damaged zstd data: ZSTD decompress failed: Unknown frame descriptor"),
        ("a.bin.gz", gzip.compress(bytes(1024), mtime=0), "binary file of unknown format '.bin'"),
        ("a.tar.gz", gzip.compress(bytes(1024), mtime=0), "holds no document"),
    ],
)
def test_damaged_packing_is_left_out(read_bytes: ReadBytes, name: str, data: bytes, reason: str) -> None:
    assert read_bytes(name, data).reasons == [(name, reason)]


def test_records_before_the_damage_are_read(read_bytes: ReadBytes) -> None:
    lines = b"".join(b'{"text": "line %d", "pad": "%s"}\n' % (number, b"x" * 200) for number in range(20_000))

    found = read_bytes("a.jsonl.gz", gzip.compress(lines, 1)[:-1000])

    assert found.texts[:2] == ["line 0", "line 1"]
    assert found.reasons == [("a.jsonl.gz", "damaged gzip data: Truncated compressed stream")]


@pytest.mark.parametrize("packing", ["gz", "zst"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.parquet"])
def test_a_bomb_is_stopped_by_its_ratio(read_bytes: ReadBytes, name: str, packing: str) -> None:
    bomb = PACKINGS[packing](b"x" * (80 << 20))

    found = read_bytes(f"{name}.{packing}", bomb)

    assert found.documents == []
    assert found.reasons in (
        [(f"{name}.{packing}", "expands to more than 200 times its size")],
        [(f"{name}.{packing}", "a line of more than 64 MiB: the rest of the file is skipped")],
    )


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(unpacked_bytes=10), "expands to more than 10 bytes"),
        (Limits(document_bytes=10), "larger than 10 bytes"),
    ],
)
def test_what_is_larger_unpacked_than_a_limit_is_skipped(read_bytes: ReadBytes, limits: Limits, reason: str) -> None:
    found = read_bytes("a.txt.gz", gzip.compress(b"x" * 11), ReadOptions(limits=limits))

    assert found.reasons == [("a.txt.gz", reason)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.txt", "a.bin"])
def test_what_is_read_adds_up_to_the_files(tmp_path: Path, name: str) -> None:
    rng = random.Random(0)
    lines = ["text", *(json.dumps({"text": f"{rng.random()} {n}"}) for n in range(40_000))]
    data = "\n".join(lines[1:] if "json" in name else lines).encode()
    packed = {"gz": gzip.compress(data), "bin": b"\0" + data}
    (tmp_path / name).write_bytes(packed.get(name.rpartition(".")[2], data))
    size = (tmp_path / name).stat().st_size
    read: list[int] = []

    (source,) = sources(tmp_path, on_skip=lambda _: None)
    file = SourceFile(source=source, options=ReadOptions(), on_skip=lambda _: None)
    n_documents = sum(1 for _ in read_file(file, read.append))

    assert sum(read) == size
    assert min(read) >= 0
    assert (len(read) > 2) == (n_documents > 1)


@pytest.mark.parametrize(
    ("name", "ext"),
    [
        ("policy.TXT.gz", ".txt"),
        ("policy.md", ".md"),
        ("policy", ""),
        ("policy.gz", ""),
        ("1700.host:2,S", ".host:2,s"),
    ],
)
def test_the_field_of_the_ending_is_the_format_that_is_read(name: str, ext: str, read_bytes: ReadBytes) -> None:
    data = gzip.compress(b"No dogs.") if name.endswith(".gz") else b"No dogs."

    (document,) = read_bytes(name, data).documents

    assert document.file["file.ext"] == ext
