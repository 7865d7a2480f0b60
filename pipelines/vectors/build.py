"""Build from precomputed vectors: the file is the corpus, the index is made to hold what it holds.

files -> batches -> rows of unit length -> one commit. A row whose id and content are known is not written again; a row
that is gone from the file leaves the index. Nothing is encoded, and no torch is loaded, unless a model is named for the
questions: then some texts of the file are, to see that it made the vectors.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import Source
from ragidx.corpora.vectors.batch import check_width
from ragidx.corpora.vectors.files import Reader, VectorRows, vector_batches, vector_sizes
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.manifest import Manifest, files_of
from ragidx.indexer.writing.vacuum import cleaned_if_refused
from ragidx.pipelines.ingest.corpus import check_removal, index_in
from ragidx.pipelines.ingest.options import (
    INDEX_OPTIONS,
    QUERY_OPTIONS,
    STORE_OPTIONS,
    BuildOptions,
    build_options,
    check_names,
)
from ragidx.pipelines.ingest.report import BuildReport, OnProgress, Progress, QueryModelCheck, Skips
from ragidx.pipelines.ingest.workers.vectors import vector_reader
from ragidx.pipelines.vectors.imported import Imported, adopted, placed, source_of
from ragidx.pipelines.vectors.query_model import ModelCheck, model_of_queries
from ragidx.pipelines.vectors.spec import check_given
from ragidx.pipelines.vectors.writer import DELETED, RowWriter
from ragidx.retriever.rows import VECTOR


def build_vectors(
    vectors: str | Path,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    vector_field: str | None = None,
    made_by: str = "",
    **options: Any,
) -> BuildReport:
    """Make or update the index of precomputed vectors: of a parquet, arrow, feather or npy file, or a folder of them.

    The arguments are those of `ragidx.build`, without the options that say what is encoded; `model` is that of
    questions. `vector_field`, `id_field` and `text_field` are columns, where their names are not known.

    Returns:
        What was done, and what was skipped; `n_added`, `n_changed`, `n_unchanged`, `n_removed` and
            `n_deleted_before` count rows here.

    Raises:
        RagidxError: of the subclass that says what to do; the committed state is then what it was.
    """
    check_names("a build of vectors", options, ("model", *QUERY_OPTIONS, *STORE_OPTIONS))
    said = [name for name in QUERY_OPTIONS if options.get(name) not in (None, (), "auto")]
    if options.get("model") is None and said:
        raise SpecError(
            f"{said[0]} says how a model encodes questions, and no model is named",
            f"name with model the one that made the vectors, or remove {said[0]}",
        )
    checked = build_options(**options)
    with source_of(vectors) as source:
        return _Build(source, Path(index), checked, vector_field, made_by, Progress(on_progress=on_progress)).run()


@dataclass
class _Build:
    """One run; its state is what the steps share."""

    source: Imported
    index: Path
    options: BuildOptions
    vector_field: str | None
    made_by: str
    progress: Progress

    def __post_init__(self) -> None:
        self.vectors, self.about = self.source.path, self.source.about
        if self.about is not None:  # an export has these names
            self.options = dataclasses.replace(self.options, id_field=("chunk_id",), text_field=("text",))
            self.vector_field = VECTOR
        self.report, self.skips = BuildReport(index=str(self.index)), Skips(self.options.strict)
        self._indexes = index_in(self.vectors, self.index)
        self._begun: Source | None = None
        self._bytes_before = 0  # of the files before the one that is read

    def run(self) -> BuildReport:
        """The whole build."""
        o = self.options
        sizes = vector_sizes(self.vectors, include=o.include, exclude=o.exclude, indexes=self._indexes)
        self.progress.total_bytes = sum(sizes)
        with vector_reader(sizes, ReadOptions(o.text_field, o.id_field)) as read:
            return self._run(read)

    def _run(self, read: Reader) -> BuildReport:
        o, started = self.options, time.perf_counter()
        old = None if o.rebuild else committed_or_none(self.index)
        cut_from = None if old is None else check_given(old, str(self.index)).given.input_dim
        batches = self._batches(None if old is None or cut_from else old.dim, read)
        first = next(batches, None)
        if first is None:
            raise self._nothing_read()
        dim = first.vectors.shape[1]
        if old is not None and dim != cut_from:
            check_width(dim, old.dim, "the file", first.file)
        width = dim if old is None else old.dim
        resolved = None if o.model is None or self.about else model_of_queries(self.index, old, o, width)
        own = None if self.about is None else adopted(self.about, o, self.source.shown)
        with (
            cleaned_if_refused(self.index),
            RowWriter(
                self.index,
                dim,
                made_by=self.made_by,
                queries=own or resolved,
                place=None if self.about is None else placed,
                replace=o.rebuild,
                restore=o.restore,
                compact=o.compact is not False,
                **{name: getattr(o, name) for name in INDEX_OPTIONS},
            ) as writer,
        ):
            check = None if resolved is None else ModelCheck(resolved, str(self.vectors))
            for batch in itertools.chain([first], batches):
                self._add(writer, batch, check)
            if not self.report.n_chunks and not self.report.n_deleted_before:
                raise self._nothing_read()
            if check is not None:
                self.report.queries = check.last()
                self.report.encode_seconds = check.seconds
                if check.seconds:
                    self.report.device, self.report.dtype = check.encoder.device, check.encoder.dtype
            elif writer.spec.encoder is not None:
                self.report.queries = QueryModelCheck(writer.spec.encoder)
            if old is not None and not o.allow_removal:
                check_removal(writer.count_others(), old.n_chunks, self.index, "rows")
            writer.delete_others()
            manifest = writer.commit({"corpus": self.source.shown, "skipped": dict(self.skips.counts)})
        finish(self.report, writer, manifest, old, dim)
        self.report.skipped, self.report.skipped_places = dict(self.skips.counts), self.skips.places
        self.report.seconds = time.perf_counter() - started
        self.progress.last = True
        self.progress.tell(at_once=True)
        return self.report

    def _batches(self, dim: int | None, read: Reader) -> Iterator[VectorRows]:
        o = self.options
        return vector_batches(
            self.vectors,
            self.vector_field,
            ReadOptions(o.text_field, o.id_field),
            dim=dim,
            include=o.include,
            exclude=o.exclude,
            indexes=self._indexes,
            on_skip=self.skips.add,
            on_source=self._begin,
            read=read,
        )

    def _add(self, writer: RowWriter, batch: VectorRows, check: ModelCheck | None) -> None:
        faults = writer.add_sound(batch)
        if check is not None:
            check.add(batch.ids, batch.texts, batch.vectors, without=faults)
        for row in sorted(faults):
            if faults[row] == DELETED:
                self.report.n_deleted_before += 1
                continue
            self.skips.add(Skip(batch.where(row), f"{faults[row]}: '{batch.ids[row]}'"))
        assert self._begun is not None
        self.report.n_chunks += len(batch.ids) - len(faults)
        p = self.progress
        p.n_documents = p.n_cut = p.n_chunks = self.report.n_chunks
        p.n_bytes = self._bytes_before + int(batch.share * self._begun.size)
        p.tell()

    def _begin(self, source: Source) -> None:
        self._bytes_before += 0 if self._begun is None else self._begun.size
        self._begun = source

    def _nothing_read(self) -> CorpusError:
        if not self.skips.counts:
            hint = "name a parquet, arrow, feather or npy file, or a folder with such files"
            return CorpusError("there is no file of vectors", hint, where=str(self.vectors))
        return CorpusError(
            f"there is no vector that can be read ({self.skips.shown()})",
            "repair the file, or name another",
            where=str(self.vectors),
        )


def finish(r: BuildReport, writer: RowWriter, manifest: Manifest, old: Manifest | None, dim: int) -> None:
    """Note what a writer did, that has committed; `old` is the state that it updated, `dim` the width that it took."""
    r.spec, r.dim, r.generation = writer.spec, writer.stored_dim, manifest.generation
    r.committed = old is None or manifest.generation != old.generation
    r.input_dim = None if dim == r.dim else dim
    r.n_documents, r.n_chunks = manifest.n_documents, manifest.n_chunks
    r.n_added, r.n_changed, r.n_unchanged = writer.n_added, writer.n_changed, writer.n_unchanged
    r.n_removed = writer.n_removed
    r.take_index(manifest)
    r.index_bytes = sum(entry.bytes for entry in files_of(manifest).values())
