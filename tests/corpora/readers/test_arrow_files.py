"""Arrow files of vectors are read, not mapped: what a shrinking file does, and how much memory a file takes."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.readers.records.columnar import open_arrow
from ragidx.corpora.vectors.files import vector_batches

ROWS, WIDTH, BATCH = 16_384, 64, 2_048
BATCH_BYTES = BATCH * WIDTH * 4
VECTORS = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)


def _table(vectors: np.ndarray = VECTORS) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({"vector": column, "page": np.arange(len(vectors))})


def _ipc(make: Callable[..., pa.RecordBatchFileWriter], packing: str | None) -> Callable[[pa.Table, Path], None]:
    def write(table: pa.Table, path: Path) -> None:
        with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as file:
            file.write_table(table, max_chunksize=BATCH)

    return write


def _feather(table: pa.Table, path: Path) -> None:
    feather.write_feather(table, path, compression="lz4", chunksize=BATCH)


def _parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=BATCH)


KINDS: dict[str, tuple[str, Callable[[pa.Table, Path], None]]] = {
    "file": ("v.arrow", _ipc(pa.ipc.new_file, None)),
    "packed file": ("v.arrow", _ipc(pa.ipc.new_file, "zstd")),
    "stream": ("v.ipc", _ipc(pa.ipc.new_stream, None)),
    "packed stream": ("v.ipc", _ipc(pa.ipc.new_stream, "lz4")),
    "feather": ("v.feather", _feather),
    "parquet": ("v.parquet", _parquet),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_all_rows_in_their_order(kind: str, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    write(_table(), tmp_path / name)

    batches = list(vector_batches(tmp_path / name, on_skip=lambda skip: None))

    assert np.array_equal(np.concatenate([batch.vectors for batch in batches]), VECTORS)
    assert [row for batch in batches for row in batch.rows.tolist()] == list(range(ROWS))
    shares = [batch.share for batch in batches]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert shares[-1] == pytest.approx(1, abs=0.01)


# a file that shrinks

# The second row has no vector. That is told while its batch is being read, between its vectors and the column `page`:
# what was mapped would not be there any more. A process of its own, since that ends one.
SHRINK = """
import os, sys
from ragidx.corpora.errors import CorpusError
from ragidx.corpora.vectors.files import vector_batches

path, told = sys.argv[1], []

def on_skip(skip):
    if not told:
        os.truncate(path, 512)
    told.append(skip.reason)

try:
    for batch in vector_batches(path, on_skip=on_skip):
        print(len(batch.rows))
except CorpusError as fault:
    print(told[0])
    print(fault)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_shrinks_while_a_batch_is_read_is_one_error(kind: str, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    table = _table()
    rows = table["vector"].to_pylist()
    rows[1] = None
    holed = pa.array(rows, pa.list_(pa.float32()))
    write(pa.table({"vector": holed, "page": table["page"]}), tmp_path / name)

    done = subprocess.run(
        [sys.executable, "-c", SHRINK, str(tmp_path / name)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "the vector is missing\n"
        f"{name}: the file changed while it was read\n"
        "  hint: wait until nothing writes it, and run the same command again\n"
    )


@pytest.mark.parametrize("kind", ["file", "packed file", "stream", "packed stream", "feather"])
def test_a_record_batch_that_was_read_outlives_its_file_and_the_next_one_is_an_error(kind: str, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    write(_table(), tmp_path / name)

    with open_arrow(tmp_path / name) as (_, read):
        batches = read(["vector"])
        first, _ = next(batches)
        os.truncate(tmp_path / name, 3 * (tmp_path / name).stat().st_size // 16)  # in the middle of the second of 8

        assert np.array_equal(first.column("vector").flatten().to_numpy(), VECTORS[:BATCH].reshape(-1))
        with pytest.raises((pa.ArrowException, OSError)):
            list(batches)


@pytest.mark.parametrize("lie", [2**33, 2**62])
def test_a_stream_that_says_it_is_longer_than_it_is_takes_no_memory_for_that(lie: int, tmp_path: Path) -> None:
    _ipc(pa.ipc.new_stream, None)(pa.table({"vector": [[1.0, 2.0]]}), tmp_path / "v.ipc")
    data = (tmp_path / "v.ipc").read_bytes()
    body = pa.ipc.open_stream(data).read_next_batch().nbytes
    length = next(n for n in range(body, 10 * body) if struct.pack("<q", n) in data)  # rounded up, buffer by buffer
    (tmp_path / "v.ipc").write_bytes(data.replace(struct.pack("<q", length), struct.pack("<q", lie)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(CorpusError, match=r"^v\.ipc: damaged Arrow data: "):
        list(vector_batches(tmp_path / "v.ipc", on_skip=lambda skip: None))

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


# memory


@pytest.fixture
def file(kind: str, tmp_path: Path) -> Path:
    """A file of this kind, written before `pool` counts."""
    name, write = KINDS[kind]
    write(_table(), tmp_path / name)
    return tmp_path / name


_POOLS: list[pa.MemoryPool] = []


@pytest.fixture
def pool(file: Path) -> Iterator[pa.MemoryPool]:
    """What Arrow allocates from here on, counted apart from all before."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    _POOLS.append(counted)  # what it has given may be freed later than the test ends
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


@pytest.mark.parametrize(
    ("kind", "most"),
    [("file", 1), ("stream", 1), ("packed file", 2), ("packed stream", 2), ("feather", 2)],  # 2: packed and unpacked
)
def test_one_record_batch_is_held_at_a_time(kind: str, most: int, file: Path, pool: pa.MemoryPool) -> None:

    kept = [batch.vectors for batch in vector_batches(file, on_skip=lambda skip: None)]

    assert len(kept) == ROWS // BATCH  # and whoever keeps vectors keeps no record batch
    assert BATCH_BYTES < pool.max_memory() < (most + 0.5) * BATCH_BYTES
    assert pool.bytes_allocated() == 0
