"""Indexes that are made to harm, with checksums that fit: whatever is read is checked before it is believed.

Each is read in a process of its own, with little memory, which must live to tell what it found.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from fault_index import READ, SEED, SEGMENT, offsets
from fault_operations import small_indexes
from fault_reader import plant, sign
from fault_writers import ONE_THREAD

from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture
def index(every_kind, tmp_path) -> Path:
    shutil.copytree(every_kind, tmp_path / "index")
    return tmp_path / "index"


def read_in_a_process(index: Path, name: str, edits: Iterable[dict[str, object]]) -> list[str]:
    """What a process of its own says to each edit; it must live to say it."""
    lines = [json.dumps(edit) for edit in edits]
    script = Path(__file__).parents[1] / "fault_reader.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(index), name],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | ONE_THREAD,
    )
    answers = [json.loads(answer) for answer in done.stdout.splitlines()]
    fatal = lines[len(answers)] if len(answers) < len(lines) else ""
    assert done.returncode == 0, f"exit status {done.returncode} at {fatal}\n{done.stderr[-3000:]}"
    assert len(answers) == len(lines)
    return answers


def lies(whole: bytes, name: str, most: int) -> list[dict[str, object]]:
    """Other bytes, and numbers of 4 and 8 bytes that are too small, too large, negative or just beside the truth."""
    rng = random.Random(f"{SEED}-{name}-lies")
    numbers = [0, 1, -1, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
    edits: list[dict[str, object]] = []
    for place in offsets(len(whole) - 8, name, most):
        at = place if rng.random() < 0.5 else place & ~3
        narrow, wide = struct.unpack_from("<iq", whole[at : at + 4] + whole[at : at + 8])
        number = rng.choice([*numbers, wide + 1, wide - 1, narrow + 1, narrow - 1])
        put = rng.choice([struct.pack("<q", max(-(2**63), min(number, 2**63 - 1))), struct.pack("<I", number % 2**32)])
        edits.append({"at": at, "put": (put if rng.random() < 0.8 else put[:1]).hex()})
    edits += [{"cut": length} for length in offsets(len(whole), f"{name}-cut", most // 5)]
    return edits


FORGED = [name for name in READ if name.endswith((".faiss", ".arrow")) and "2-0000" not in name]
MOMENTS = f"{SEGMENT}/moments-00000001.bin"


def uncompressed(index: Path, name: str) -> bytes:
    """The same columns without compression, as another writer may make them: their offsets stand there as they are."""
    table = pa.ipc.open_file(pa.BufferReader((index / name).read_bytes()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        for number in range(table.num_record_batches):
            writer.write_batch(table.get_batch(number))
    return sink.getvalue().to_pybytes()


def forge(index: Path, name: str, most: int) -> list[str]:
    return read_in_a_process(index, name, lies((index / name).read_bytes(), name, most))


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_with_a_checksum_that_fits_ends_no_process(index, name):
    answers = forge(index, name, 50)

    assert sum(answer != "read" for answer in answers) > len(answers) / 10
    assert all(answer == "read" or str(index) in answer for answer in answers)


def test_moments_that_cannot_be_are_named_and_end_no_process(index):
    size = (index / MOMENTS).stat().st_size
    assert size == 8 * (8 + 36)
    edits = [{"at": at, "put": struct.pack("<d", bad).hex()} for at in (0, 64, size - 8) for bad in (np.nan, -np.inf)]
    edits += [{"cut": length} for length in (0, 1, 8, size - 8, size - 1)]

    answers = read_in_a_process(index, MOMENTS, edits)

    assert [answer.split(": ")[:2] for answer in answers] == [[str(index / MOMENTS), "the file is damaged"]] * 11
    assert all(answer == "read" or str(index) in answer for answer in forge(index, MOMENTS, 40))


@pytest.mark.parametrize("name", [name for name in FORGED if name.endswith(".arrow")])
def test_offsets_that_lie_in_uncompressed_columns_end_no_process(index, name):
    plant(index, name, uncompressed(index, name))
    Store.open(index).rows([3])

    answers = forge(index, name, 50)

    assert sum(answer != "read" for answer in answers) > len(answers) / 10


TYPES = ("hnsw", "pq4", "ivfpq4", "ivf", "ivfpq", "sq8", "rabitq", "RaBitQfs", "RR,IVF2,RaBitQfs")


@pytest.fixture
def indexed(tmp_path, kit) -> Callable[..., Path]:
    """`indexed(index_type)`: an index with one segment of 300 rows, large enough for product codes."""

    def make(index_type: str, **more: bool) -> Path:
        index, options = tmp_path / "indexed", IndexOptions(index_type, target_recall=0.01, **more)
        with small_indexes(), kit.writer(index, index=options) as writer:
            for number in range(150):
                kit.add(writer, kit.rows(f"d{number}", [f"text {number} {part}" for part in "ab"]))
            writer.commit({}, 150)
        return index

    return make


@pytest.mark.parametrize("index_type", TYPES)
def test_a_forged_index_of_any_type_ends_no_process(indexed, index_type):
    answers = forge(indexed(index_type), f"{SEGMENT}/ann.faiss", 40)

    assert sum(answer != "read" for answer in answers) > len(answers) / 20


@pytest.mark.parametrize("index_type", ["pq4", "ivfpq4", "sq8", "rabitq"])
def test_forged_codes_that_stand_for_vectors_end_no_process(indexed, index_type):
    answers = forge(indexed(index_type, codes_only=True), f"{SEGMENT}/ann.faiss", 40)

    assert sum(answer != "read" for answer in answers) > len(answers) / 20


@pytest.mark.parametrize("name", ["vectors.faiss", "ann.faiss"])
def test_another_faiss_type_inside_is_refused(index, name):
    raw = np.random.default_rng(0).standard_normal((24, 8)).astype(np.float32)
    edits = []
    for factory in ("Flat", "SQ8", "PQ4x4", "IVF2,Flat", "IVF2,SQfp16", "HNSW8", "HNSW8,SQ8", "IDMap,SQfp16"):
        other = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
        other.train(raw)
        other.add_with_ids(raw, np.arange(24)) if "IDMap" in factory else other.add(raw)
        data, size = faiss.serialize_index(other).tobytes(), (index / SEGMENT / name).stat().st_size
        if name == "vectors.faiss":  # the manifest knows how long it must be
            data = data[:size].ljust(size, b"\0")
        edits.append({"whole": data.hex()})

    answers = read_in_a_process(index, f"{SEGMENT}/{name}", edits)

    assert [answer.split(": ")[:2] for answer in answers] == [
        [str(index / SEGMENT / name), "the file is damaged"] for _ in edits
    ]


def test_vectors_that_are_no_unit_vectors_are_named_by_verify(index):
    path = index / SEGMENT / "vectors.faiss"
    content = bytearray(path.read_bytes())
    content[-16:] = np.full(8, np.nan, np.float16).tobytes()
    plant(index, f"{SEGMENT}/vectors.faiss", bytes(content))

    assert verify(index) == [
        f"{index / SEGMENT}: the file is damaged: row 23 is not of unit length; "
        "put it back from a copy, or build again with `rebuild=True`"
    ]


def signed(index: Path, change: Callable[[dict], object]) -> bytes:
    """The bytes of a manifest that was changed, with the checksum that fits."""
    data = json.loads((index / "manifest.json").read_bytes())
    before = (index / "manifest.json").read_bytes()
    change(data)
    sign(index, data)
    content = (index / "manifest.json").read_bytes()
    (index / "manifest.json").write_bytes(before)
    return content


def deep(index: Path, depth: int) -> bytes:
    """A manifest with lists in lists as its spec, with the checksum that fits."""
    marker = '"marker"'
    data = json.loads((index / "manifest.json").read_bytes())
    del data["checksum"]
    data["spec"] = {"x": "marker"}
    nested = "[" * depth + "]" * depth

    def text(fields: dict) -> str:
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).replace(marker, nested)

    data["checksum"] = hashlib.sha256(text(data).encode()).hexdigest()
    return text(data).encode() + b"\n"


MANIFESTS: dict[str, Callable[[Path], bytes]] = {
    "as many rows as can be": lambda i: signed(i, lambda d: d["segments"][0].update(rows=2**31 - 1)),
    "rows beyond memory": lambda i: signed(i, lambda d: [s.update(rows=2**31 - 1) for s in d["segments"]]),
    "chunks beyond memory": lambda i: signed(i, lambda d: d.update(n_chunks=2**31 - 1)),
    "wide vectors": lambda i: signed(i, lambda d: d.update(dim=65_536)),
    "a giant file": lambda i: signed(i, lambda d: d["segments"][0]["files"]["chunks.arrow"].update(bytes=2**53)),
    "a giant file of deletions": lambda i: signed(i, lambda d: d["deletions"].update(bytes=2**53)),
    "a name with a line feed": lambda i: signed(i, lambda d: d["segments"][0].update(id="00000001-0000\n")),
    "a name with a zero": lambda i: signed(i, lambda d: d["segments"][0].update(id="00000001-0000\0")),
    "a name of other digits": lambda i: signed(i, lambda d: d["segments"][0].update(id="٠٠٠٠٠٠٠١-٠٠٠٠")),
    "a name that climbs out": lambda i: signed(i, lambda d: d["segments"][0].update(id="../00000001-0000")),
    "a generation below all": lambda i: signed(i, lambda d: d.update(generation=0)),
    "another generation": lambda i: signed(i, lambda d: d.update(generation=10**15)),
    "a field twice": lambda i: (i / "manifest.json").read_bytes().replace(b'"dim":8', b'"dim":8,"dim":8'),
    "white space": lambda i: (i / "manifest.json").read_bytes().replace(b'"dim":8', b'"dim": 8'),
    "no end of line": lambda i: (i / "manifest.json").read_bytes()[:-1],
    "a number of 5,000 digits": lambda i: (
        (i / "manifest.json").read_bytes().replace(b'"dim":8', b'"dim":' + b"8" * 5000)
    ),
    "an infinite number": lambda i: (i / "manifest.json").read_bytes().replace(b'"dim":8', b'"dim":1e999'),
    "half a character": lambda i: (i / "manifest.json").read_bytes().replace(b'"none"', b'"\\ud800"'),
    "deep lists": lambda i: deep(i, 100_000),
    "lists as deep as can be read": lambda i: deep(i, 990),
}


def test_a_manifest_made_to_harm_ends_in_one_error(index):
    edits = [{"whole": made(index).hex()} for made in MANIFESTS.values()]

    answers = dict(zip(MANIFESTS, read_in_a_process(index, "manifest.json", edits), strict=True))

    for lie, answer in answers.items():
        assert answer.startswith(f"{index}"), lie
        assert re.search("damaged|the manifest counts|the file is missing", answer), lie


def test_deletions_of_more_rows_than_memory_holds_are_refused(index):
    schema = pa.ipc.open_file(pa.BufferReader((index / "deletions/00000002.arrow").read_bytes())).schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        columns = [pa.array(["00000001-0000", "00000002-0000"], pa.large_string()), pa.array([0, 0], pa.int32())]
        writer.write_batch(pa.record_batch(columns, schema=schema))
    (index / "manifest.json").write_bytes(MANIFESTS["rows beyond memory"](index))

    (answer,) = read_in_a_process(index, "deletions/00000002.arrow", [{"whole": sink.getvalue().to_pybytes().hex()}])

    assert answer.startswith(str(index))
    assert "damaged" in answer
