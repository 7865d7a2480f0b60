"""An index of two segments with postings, the terms in its files, and other terms forged into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from fault_reader import plant

from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.lexical.postings import SCHEMA

FIRST, SECOND = "segments/00000001-0000/lexical-00000001.arrow", "segments/00000002-0000/lexical-00000002.arrow"
Term = tuple[str | None, list[int], list[int]]


def make_index(kit: Any, path: Path) -> Path:
    """Two segments: three rows, and two."""
    for name, texts in {"a": ["b c", "c", "c d"], "z": ["b d", "d"]}.items():
        with kit.writer(path, index=IndexOptions("flat", lexical="none")) as writer:
            kit.add(writer, kit.rows(name, texts))
            writer.commit({}, 1)
    return path


def terms_of(index: Path, name: str) -> list[Term]:
    table = pa.ipc.open_file(pa.BufferReader((index / name).read_bytes())).read_all()
    return [(row["term"], row["gaps"], row["counts"]) for row in table.to_pylist()]


def file_of(*batches: list[Term], metadata: Any = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata)) as file:
        for terms in batches:
            columns = [pa.array(column, field.type) for column, field in zip(zip(*terms), SCHEMA)]  # noqa: B905
            file.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return sink.getvalue().to_pybytes()


def forge(index: Path, *batches: list[Term]) -> None:
    """Other postings of the same texts."""
    own = pa.ipc.open_file(pa.BufferReader((index / FIRST).read_bytes())).schema.metadata
    plant(index, FIRST, file_of(*batches, metadata=own))
