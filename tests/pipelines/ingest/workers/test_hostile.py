"""Files that would take the machine: each is one line of the report, and what is beside it is read."""

from __future__ import annotations

import io
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.left_out import Left
from ragidx.corpora.limits import MIB, Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import sources
from ragidx.corpora.vectors.files import Reader, vector_batches
from ragidx.pipelines.ingest.workers.spread import Spread
from ragidx.pipelines.ingest.workers.vectors import vector_reader

from ....corpora.fuzz.office_files import PICTURE, pdf

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux"),
]

SHARED = pa.DictionaryArray.from_arrays(pa.array(np.zeros(64, np.int32)), pa.array(["a" * (4 * MIB)]))
BOMBS: dict[str, Callable[[], Any]] = {  # made in the tests: together they are gigabytes
    "shared": lambda: pa.table({"text": SHARED}),
    "list": lambda: pa.table({"text": ["x"], "of": pa.ListArray.from_arrays(pa.array([0, 64], pa.int32()), SHARED)}),
    "zeros": lambda: pa.table({"text": pa.array(["b" * (150 * MIB)])}),
    "numbers": lambda: pa.table({"text": ["x"], "of": [np.zeros(30 * MIB, np.int64)]}),
}
VECTORS: dict[str, Callable[[], Any]] = {
    "shared": lambda: pa.table({"vector": pa.array([[1.0]] * 64), "text": SHARED}),
    "rows": lambda: pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(40 * MIB)), 1024)}),
}


def parquet(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def ipc(make: Callable[..., Any]) -> Callable[[Any], bytes]:
    def write(table: Any) -> bytes:
        sink = io.BytesIO()
        with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
            file.write_table(table)
        return sink.getvalue()

    return write


WRITERS = {"parquet": parquet, "arrow": ipc(pa.ipc.new_file), "ipc": ipc(pa.ipc.new_stream)}


def zipped(name: str, data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return sink.getvalue()


def of_texts(count: int) -> bytes:
    """A PDF whose page draws `count` texts."""
    packed = zlib.compress(b"BT /F1 11 Tf 50 700 Td " + b"(ab) Tj 3 0 Td " * count + b"ET")
    body = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
    plain = pdf([["A page."]])
    return re.sub(rb"<< /Length \d+ >>\nstream\n.*?\nendstream", lambda _: body, plain, flags=re.DOTALL)


def hostile_files() -> Iterator[tuple[str, bytes]]:
    for bomb, make in BOMBS.items():
        table = make()
        yield from ((f"{bomb}.{kind}", write(table)) for kind, write in WRITERS.items())
    yield "deep.html", b"<div><p>x" * 100_000
    yield "emphasis.html", b"<p>" + b"".join(b"<b id=n%d>" % number for number in range(1900)) + b"<p>x" * 5000
    yield "body.odt", zipped("content.xml", b"<a>" + b"<b/>" * (50 * MIB))
    drawn = b"stream\n/P Do /P Do\nendstream"
    circle = b"/Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /P 4 0 R >> >> /Length 11 >>\n" + drawn
    yield "circle.pdf", pdf([["A form draws itself."]], pictures=[0]).replace(PICTURE, b"<< /Type /XObject " + circle)
    yield "texts.pdf", of_texts(3_000_000)
    yield "book.docx", zipped("word/document.xml", b" " * (300 * MIB))


SAID = re.compile(
    "the reader (needs|takes) more|the reader (says nothing|ended by SIGABRT)|cannot be |expands to more than 200 times"
    "|has a part of more than 64 MiB"
)


def test_hostile_files_are_a_line_each_and_the_others_are_read(tmp_path: Path) -> None:
    names = []
    for name, data in hostile_files():
        names.append(name)
        assert len(data) < 3 * MIB
        (tmp_path / name).write_bytes(data)
        (tmp_path / f"{name}.md").write_text("beside it\n")
    limits = Limits(worker_memory_bytes=600 * MIB, pdf_worker_memory_bytes=600 * MIB, worker_cpu_s=2)
    said, left, read = list[Skip](), set[str](), list[str]()

    def note(found: Skip | Left) -> None:
        if isinstance(found, Skip):
            said.append(found)
        elif found.kind == "pages without structure":
            left.add(found.where)

    spread = Spread(ReadOptions(limits=limits), Layouts(), note, workers=2)
    for _, drafts in spread.drafts(sources(tmp_path, on_skip=said.append)):
        for draft in drafts:
            read.append(draft.id)

    assert {f"{name}.md" for name in names} <= set(read)
    assert left == {"deep.html", "emphasis.html"}
    assert sorted([*left, *(skip.where for skip in said)]) == sorted(names)
    assert left <= set(read)
    assert [skip for skip in said if not SAID.match(skip.reason)] == []


def test_a_pdf_has_less_memory_than_other_files(tmp_path: Path) -> None:
    (tmp_path / "texts.pdf").write_bytes(of_texts(100_000))
    came = []
    for memory in (Limits().pdf_worker_memory_bytes, 260 * MIB):
        said, limits = list[Skip | Left](), Limits(pdf_worker_memory_bytes=memory)
        spread = Spread(ReadOptions(limits=limits), Layouts(), said.append, workers=1)
        for _, drafts in spread.drafts(sources(tmp_path, on_skip=said.append)):
            came.append((sum(1 for _ in drafts), [one.reason for one in said if isinstance(one, Skip)]))

    assert came == [(1, []), (0, ["the reader needs more than 260 MiB of memory"])]


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    with vector_reader([MIB], ReadOptions()) as found:
        yield found


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("bomb", VECTORS)
def test_vectors_that_expand_too_far_are_an_error(bomb: str, kind: str, read: Reader, tmp_path: Path) -> None:
    path = tmp_path / f"v.{kind}"
    path.write_bytes(WRITERS[kind](VECTORS[bomb]()))
    assert path.stat().st_size < MIB

    with pytest.raises(CorpusError) as fault:
        list(vector_batches(path, on_skip=pytest.fail, read=read))

    assert re.match("expands to more than 200 times its size|the reader needs more than 2", fault.value.message)
    assert fault.value.where == path.name
