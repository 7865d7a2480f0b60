"""Targets that are files: one of Parquet, and a folder that `datasets.load_dataset` reads.

Columns: chunk_id, doc_id, text, heading, start, end, line, page, the fields of the metadata under their names,
`_metadata`, all of them as JSON where the fields do not say that, and `vector`, a list of `dim` float16, bit for bit as
the index has it. The schema has `AboutTable` under the key `ragidx`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragidx.corpora.errors import SpecError
from ragidx.indexer import atomic
from ragidx.indexer.arrays import bundles
from ragidx.pipelines.integrations.engines.layout import DIGEST, KEY, METADATA, AboutTable, with_metadata
from ragidx.retriever.contents import columns_of
from ragidx.retriever.rows import VECTOR, FolderRows

OnRows = Callable[[int], None]

_GROUP_ROWS = 16_384  # of a row group: its vectors are some 32 MiB at 1,024 dimensions
_DATA = Path("data") / "train-00000-of-00001.parquet"
_CARD = """---
configs:
- config_name: default
  data_files: data/*.parquet
---

Chunks of documents with vectors of {dim:,} dimensions: float16, of length 1, so that the inner product of two is their
cosine. ragidx made it; the schema of the file says how, under the key `ragidx`.
"""


def about_file(path: Path) -> AboutTable | None:
    """What a Parquet file says of its rows; None where there is no such file, or it is not one of an index."""
    try:
        found = (pq.read_schema(path).metadata or {}).get(KEY.encode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, pa.ArrowInvalid) as fault:
        raise SpecError(f"it is no Parquet file: {fault}", "name another target", where=str(path)) from fault
    return None if found is None else AboutTable.from_bytes(found, str(path))


def write_parquet(store: FolderRows, path: Path, about: AboutTable, on_rows: OnRows) -> None:
    """Write all rows that are alive; the file is there when it is whole."""

    def write(file: atomic.NewFile) -> None:
        writer: pq.ParquetWriter | None = None
        for table in _groups(store):
            if writer is None:
                schema = table.schema.with_metadata({KEY: about.to_bytes()})
                writer = pq.ParquetWriter(
                    pa.PythonFile(file, mode="w"),
                    schema,
                    compression="zstd",
                    use_dictionary=[name for name in schema.names if name not in (VECTOR, "text", "chunk_id")],
                    use_byte_stream_split=[f"{VECTOR}.list.element"],
                )
            writer.write_table(table.cast(writer.schema))
            on_rows(len(table))
        assert writer is not None  # the index has rows
        writer.close()

    atomic.make_folder(path.parent)
    atomic.write_file(path, write)


def write_dataset(store: FolderRows, folder: Path, about: AboutTable, on_rows: OnRows) -> None:
    """Write a folder with a card and one file of Parquet, which is there when it is whole."""
    atomic.make_folder(folder / "data")
    atomic.write_file(folder / "README.md", _CARD.format(dim=about.dim).encode())
    write_parquet(store, folder / _DATA, about, on_rows)


def about_dataset(folder: Path) -> AboutTable | None:
    """What the folder of a dataset says of its rows; None where there is none.

    Raises:
        SpecError: there is something else.
    """
    found = about_file(folder / _DATA)
    if found is None and folder.exists() and not (folder.is_dir() and _names(folder) <= {"README.md", "data"}):
        raise SpecError("it holds something else", "name another target", where=str(folder))
    return found


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _groups(store: FolderRows) -> Iterator[Any]:
    """All rows as tables of `_GROUP_ROWS`."""
    own = (METADATA, DIGEST)
    names = {of: f"metadata.{name}" if name in own else name for name, of in columns_of(store).items()}
    return map(pa.concat_tables, bundles(with_metadata(store, names), len, _GROUP_ROWS))
