"""Build from vectors that somebody has already: the file is the corpus, the index is made to hold what it holds.

files -> batches -> rows of unit length -> one commit. A row whose id and content are known is not written again; a row
that is gone from the file leaves the index. Nothing is encoded, and no torch is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import BY_RULE, Source
from ragidx.corpora.vector_files import VectorBatch, VectorOptions, vector_batches, vector_bytes
from ragidx.indexer.manifest import files_of, read_manifest
from ragidx.indexer.methods import VECTORS
from ragidx.pipelines.build import StrictError
from ragidx.pipelines.report import BuildReport, OnProgress, Progress, Skips
from ragidx.pipelines.vector_spec import check_given, committed
from ragidx.pipelines.vectors import IndexWriter, VectorRows

_TELL_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class VectorBuildOptions:
    """What a user may say about a build from vectors; None: the index's own, else the default.

    Args:
        vector_field, id_field, text_field: columns, where they have names that are not known.
        model: what made the vectors, in the user's words.
        index_type, target_recall, max_memory: as of `build`.
        include, exclude: globs below a folder.
        strict: end at the first thing left out.
        rebuild: replace the index, whatever it holds.
    """

    vector_field: str | None = None
    id_field: str | None = None
    text_field: str | None = None
    model: str = ""
    index_type: str | None = None
    target_recall: float | None = None
    max_memory: int | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    strict: bool = False
    rebuild: bool = False


def build_vectors(
    vectors: str | Path,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> BuildReport:
    """Make or update the index of given vectors.

    Args:
        vectors: a parquet, arrow, feather or npy file, or a folder of them.
        index: the index folder.
        on_progress: called a few times a second.
        options: the fields of `VectorBuildOptions`.

    Returns:
        What was done, and what was left out; `n_added`, `n_changed`, `n_unchanged` and `n_removed` count rows here.

    Raises:
        RagidxError: of the subclass that says what to do; the committed state is then what it was.
    """
    try:
        asked = VectorBuildOptions(**options)
    except TypeError as fault:
        raise SpecError(
            f"build_vectors takes no such option: {fault}".replace("VectorBuildOptions.__init__() ", ""),
            "see help(ragidx.pipelines.build_vectors.VectorBuildOptions)",
        ) from fault
    return _Build(Path(vectors), Path(index), asked, on_progress).run()


class _Build:
    """One run; its state is what the steps share."""

    def __init__(self, vectors: Path, index: Path, options: VectorBuildOptions, on_progress: OnProgress | None) -> None:
        self.vectors, self.index, self.options, self.on_progress = vectors, index, options, on_progress
        self.report = BuildReport(index=str(index))
        self.progress = Progress()
        self.skips = Skips()
        self._begun: Source | None = None
        self._bytes_before = 0  # of the files before the one that is read
        self._told = 0.0

    def run(self) -> BuildReport:
        """The whole build."""
        started = time.perf_counter()
        o = self.options
        old = None if o.rebuild else committed(self.index)
        if old is not None:
            check_given(old, str(self.index))
        self.progress.total_bytes = vector_bytes(self.vectors, include=o.include, exclude=self._exclude())
        batches = self._batches(None if old is None else old.dim)
        first = next(batches, None)
        if first is None:
            raise self._nothing_read()
        dim = first.vectors.shape[1]
        with IndexWriter(
            self.index,
            dim,
            index_type=o.index_type,
            target_recall=o.target_recall,
            max_memory=o.max_memory,
            model=o.model,
            replace=o.rebuild,
        ) as writer:
            self._add(writer, first)
            for batch in batches:
                self._add(writer, batch)
            if not self.report.n_chunks:
                raise self._nothing_read()
            writer.delete_others()
            done = writer.commit({"corpus": str(self.vectors), "skipped": dict(self.skips.counts)})
        r, spec = self.report, writer.spec
        r.model, r.method, r.encoder, r.filter = spec.encoder.model, VECTORS, str(spec.encoder), str(spec.filter)
        r.dim, r.generation, r.committed = dim, done.generation, done.committed
        r.n_documents, r.n_chunks = done.n_documents, done.n_rows
        r.n_added, r.n_changed, r.n_unchanged = done.n_added, done.n_changed, done.n_unchanged
        r.n_removed = done.n_removed
        r.skipped, r.skipped_places = dict(self.skips.counts), self.skips.places
        r.index_bytes = sum(entry.bytes for entry in files_of(read_manifest(self.index)).values())
        r.seconds = time.perf_counter() - started
        self.progress.last = True
        self._tell(at_once=True)
        return r

    def _batches(self, dim: int | None) -> Iterator[VectorBatch]:
        o = self.options
        return vector_batches(
            self.vectors,
            VectorOptions(vector_field=o.vector_field, id_field=o.id_field, text_field=o.text_field),
            dim=dim,
            include=o.include,
            exclude=self._exclude(),
            on_skip=self._skip,
            on_source=self._begin,
        )

    def _add(self, writer: IndexWriter, batch: VectorBatch) -> None:
        rows = VectorRows(batch.ids, batch.vectors, batch.texts, batch.metadata, batch.doc_ids)
        faults = writer.add_sound(rows)
        for row in sorted(faults):
            self._skip(Skip(batch.where(row), f"{faults[row]}: '{batch.ids[row]}'"))
        assert self._begun is not None
        self.report.n_chunks += len(batch.ids) - len(faults)
        p = self.progress
        p.n_documents = p.n_cut = p.n_chunks = self.report.n_chunks
        p.n_bytes = self._bytes_before + int(batch.share * self._begun.size)
        self._tell()

    def _begin(self, source: Source) -> None:
        self._bytes_before += 0 if self._begun is None else self._begun.size
        self._begun = source

    def _exclude(self) -> list[str]:
        """What the user leaves out, and the index itself where it stands among the files."""
        folder, index = self.vectors.resolve(), self.index.resolve()
        own = [f"/{index.relative_to(folder).as_posix()}/"] if index != folder and index.is_relative_to(folder) else []
        return [*self.options.exclude, *own]

    def _skip(self, skip: Skip) -> None:
        if self.options.strict and skip.reason not in BY_RULE:
            raise StrictError(
                f"left out: {skip.reason}", "mend or exclude it, or build without --strict", where=skip.where
            )
        self.skips.add(skip)

    def _nothing_read(self) -> CorpusError:
        if not self.skips.total():
            hint = "name a parquet, arrow, feather or npy file, or a folder with such files"
            return CorpusError("there is no file of vectors", hint, where=str(self.vectors))
        reasons = "; ".join(f"{n} x {reason}" for reason, n in self.skips.counts.most_common(5))
        return CorpusError(
            f"there is no vector that can be read ({reasons})",
            "mend the file, or name another",
            where=str(self.vectors),
        )

    def _tell(self, *, at_once: bool = False) -> None:
        now = time.perf_counter()
        if self.on_progress is not None and (at_once or now - self._told >= _TELL_EVERY_S):
            self._told = now
            self.on_progress(self.progress)
