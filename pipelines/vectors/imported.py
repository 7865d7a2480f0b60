"""Vectors that an engine has, or that an export wrote: a file for the build of vectors, and what is known of them.

    "lancedb:DIR#NAME" | "chunks.parquet" -> a file, About | None

What an export wrote says how its vectors were made: questions are encoded in the same way, and no other model is taken.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.whole_documents import check_metadata, metadata_from_text
from ragidx.indexer.encoders.methods import located
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.rows import Row
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.integrations.engines.files import about_file
from ragidx.pipelines.integrations.engines.layout import METADATA, NO_FIELDS, AboutTable, field_of
from ragidx.pipelines.integrations.engines.target import Target, is_target


class Imported(NamedTuple):
    """Where vectors are read from: a file, what is known of them, and the name of the source in messages."""

    path: Path
    about: AboutTable | None
    shown: str


@dataclass(frozen=True)
class Adopted:
    """What encodes the questions of vectors that an export wrote; as `Resolved`, without the model itself."""

    spec: IndexSpec
    files: Mapping[str, bytes]
    notes: Mapping[str, Any]

    def blobs(self) -> dict[str, bytes]:
        """The files that belong to the spec."""
        return dict(self.files)


@contextmanager
def source_of(vectors: str | Path) -> Iterator[Imported]:
    """The file to read; rows of an engine are in a temporary one.

    Raises:
        CorpusError: the table has no rows, or is not there.
        EngineError: the engine does not answer.
    """
    if not is_target(str(vectors)) and "://" not in str(vectors):
        path = Path(vectors)
        about = None
        if path.suffix.lower() == ".parquet" and path.is_file():
            with suppress(SpecError):  # the reader says what is wrong with the file
                about = about_file(path)
        yield Imported(path, about, str(vectors))
        return
    target = Target.parse(str(vectors), to_read=True)
    with tempfile.TemporaryDirectory() as folder, closing(target.open()) as table:
        path, writer, about = Path(folder) / f"{target.name}.arrow", None, table.known()
        for batch in table.read():
            if writer is None:
                writer = pa.ipc.new_file(str(path), batch.schema)
            writer.write_batch(batch)
        if writer is None:
            raise CorpusError("there is no row of vectors", "name another table: TARGET#NAME", where=target.shown)
        writer.close()
        yield Imported(path, about, target.shown)


def adopted(about: AboutTable, options: BuildOptions, where: str) -> Adopted | None:
    """What encodes the questions; None: nothing does.

    Raises:
        SpecError: another model is named.
    """
    spec = IndexSpec.from_json(dict(about.spec), where=where)
    if options.model is not None:
        made_by = "no model for questions" if spec.encoder is None else f"'{spec.encoder.model}'"
        if spec.encoder is None or weights_fingerprint(located(options.model, options.encoder)) != spec.weights:
            message = f"the vectors say which model made them: {made_by}, and not '{options.model}'"
            raise SpecError(message, "remove `model`", where=where)
    return None if spec.encoder is None else Adopted(spec, about.files, about.notes)


def placed(row: Row) -> Row:
    """A row that an export wrote, as it was: what is a column there is no field of the metadata.

    Raises:
        CorpusError: what says its metadata is no JSON object, or holds what an index cannot.
    """
    columns: dict[str, Any] = dict(row.metadata)
    own = {name: columns.pop(name, None) for name in NO_FIELDS}
    fields, whole = {field_of(name): value for name, value in columns.items()}, own[METADATA]
    try:
        metadata = fields if whole is None else metadata_from_text(whole)
    except ValueError as fault:
        raise CorpusError(f"the row has {fault}", "export again, with `replace=True`", where=row.chunk_id) from fault
    check_metadata(metadata, row.chunk_id)
    return Row(
        row.chunk_id,
        row.doc_id,
        own["start"] or 0,
        len(row.text) if own["end"] is None else own["end"],
        row.text,
        own["heading"] or "",
        row.text_hash,
        row.doc_hash,
        metadata,
        own["line"],
        own["page"],
        fields=None if whole is None else fields,
    )
