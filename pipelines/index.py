"""`Index`: an index folder, open: asked, read, brought up to date, changed.

    index = ragidx.build("docs/", "index/")        index = ragidx.Index("index/")
    index.search("who signed the lease?", k=5)     index.build(); index.add_source("papers/")

Every member calls the room that does the work; nothing is computed here. An `Index` shows one committed state, until
`refresh` or a change of its own: a search that runs keeps the state that it began with.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.options import written_out
from ragidx.retriever.keywords import (
    AnnKeywords,
    BuildKeywords,
    CreateKeywords,
    PlaceKeywords,
    PlanKeywords,
    RankKeywords,
    ReadKeywords,
    SearchKeywords,
    VectorKeywords,
)
from ragidx.retriever.models import ModelPlace
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.trial_keywords import AdaptKeywords, QuestionsKeywords, SwapKeywords, UpgradeIndexKeywords

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ragidx.corpora.records import Chunk, Document, Scalar
    from ragidx.indexer.ann.tuning import OnStage
    from ragidx.indexer.specs import IndexSpec
    from ragidx.indexer.store.manifest import Manifest
    from ragidx.indexer.store.source_list import SourceEntry
    from ragidx.pipelines.base.stages import OnStage as OnTraining
    from ragidx.pipelines.experiments.trials.adapt import AdaptReport
    from ragidx.pipelines.experiments.trials.questions import QuestionsReport
    from ragidx.pipelines.experiments.trials.upgrade import UpgradeReport
    from ragidx.pipelines.ingest.report import BuildReport, OnProgress
    from ragidx.pipelines.ingest.selection import Corpus
    from ragidx.pipelines.integrations.engines.remote import RemoteSearcher
    from ragidx.pipelines.integrations.export import ExportReport
    from ragidx.pipelines.maintain.batch import Batch, VectorBatch
    from ragidx.pipelines.maintain.delete import DeleteReport
    from ragidx.pipelines.maintain.rewrite import ReshapeReport
    from ragidx.pipelines.plan.plan import Plan
    from ragidx.retriever.hit import Hits
    from ragidx.retriever.where.conditions import Condition


class NewKeywords(CreateKeywords, total=False):
    """What the first write makes: an index for documents, or one for vectors."""

    dim: int | None  # of the vectors that will be given; None: the index is for documents


class Reader:
    """What is asked of a state, wherever its rows are: in a folder, or in an engine."""

    _name: str
    _open: Searcher | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the files and the model, which is freed when no other index uses it."""
        self._open = None

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number of the state: each commit of an index has a higher one."""
        return self.searcher.store.manifest.generation

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: metadata fields and their types, and `doc_id`, `heading` and `file.source`."""
        return self.searcher.schema

    @property
    def spec(self) -> IndexSpec:
        """How its vectors are made."""
        return self.searcher.spec

    def info(self) -> Manifest:
        """Everything that the manifest of the state says: attributes, and `to_json()`."""
        return copy.deepcopy(self.searcher.store.manifest)  # the next commit continues this one

    # -- questions ------------------------------------------------------------------------------------------------

    @written_out
    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: ArrayLike | None = None,
        where: str | Condition | None = None,
        instruction: str | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Hits:
        """The k best chunks for a question, best first; fewer only if the index, or the options, leave no more.

        The list has `notes`: what there is to say of the whole answer, such as that the index has no word of it.

        Args:
            query: the question; it is text, and no query language: quotes, `+`, `-` and `field:value` mean nothing.
            k: 1 or more.
            vector: (dim,) floats in place of a question; with one, its vector, so that no model encodes it.
            where: a condition on metadata, such as `ragidx.field("year") >= 1900`; as text, `year >= 1900`.
            instruction: the task sentence put before the question for the model; None: the index's own; empty: none.

        Raises:
            QueryError: the question is empty, an option is out of range, or the condition is wrong.
            ModelError: the index's model is not here, or is another.
        """
        _check_options("Index.search", options, SearchKeywords)
        queries = None if query is None else [query]
        vectors = None if vector is None else np.asanyarray(vector)[None]
        return self.searcher.search(queries, vectors=vectors, k=k, where=where, instruction=instruction, **options)[0]

    @written_out
    def search_batch(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        where: str | Condition | None = None,
        instruction: str | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[Hits]:
        """As `search`, for many questions at once: they are encoded and searched in batches."""
        _check_options("Index.search_batch", options, SearchKeywords)
        return self.searcher.search(queries, k=k, where=where, instruction=instruction, **options)

    @written_out
    def search_vectors(
        self,
        vectors: ArrayLike,
        k: int = 10,
        *,
        where: str | Condition | None = None,
        **options: Unpack[VectorKeywords],
    ) -> list[Hits]:
        """As `search`, for vectors (q, dim), which are brought to unit length. A vector has no words."""
        _check_options("Index.search_vectors", options, VectorKeywords)
        return self.searcher.search(vectors=vectors, k=k, where=where, **options)

    @written_out
    def rank_documents(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        *,
        vectors: ArrayLike | None = None,
        where: str | Condition | None = None,
        instruction: str | None = None,
        **options: Unpack[RankKeywords],
    ) -> list[list[tuple[str, float]]]:
        """The k best documents for each question, or vector, as (document id, score): its best chunk counts."""
        _check_options("Index.rank_documents", options, RankKeywords)
        return self.searcher.rank_documents(
            queries, k=k, vectors=vectors, where=where, instruction=instruction, **options
        )

    # -- what it holds --------------------------------------------------------------------------------------------

    def get(self, ids: Sequence[str], *, missing: Literal["error", "skip"] = "error") -> list[Document]:
        """Documents by their ids, in the order asked for.

        Texts are whole: as a reader, or a program, gave them.

        Args:
            ids: ids of documents.
            missing: what to do with an id that the index has not: an error, or nothing.

        Raises:
            QueryError: the index has no such document.
        """
        from ragidx.retriever.contents import documents_by_id

        return documents_by_id(self.searcher.store, ids, missing=missing)

    def chunks(self, ids: Sequence[str] | None = None, *, document: str | None = None) -> list[Chunk]:
        """Chunks by their ids, in the order asked for, or those of a document, in that of its text; with neither, all.

        `to_batches` gives them batch by batch.

        Raises:
            QueryError: the index has no such chunk or document.
        """
        from ragidx.retriever.contents import chunks

        return chunks(self.searcher.store, ids, document)

    def vectors(self, ids: Sequence[str], *, decoded: bool = False) -> NDArray[np.float32]:
        """(n, dim): the vectors of chunks, as they are stored, in the order of the ids.

        Args:
            ids: ids of chunks.
            decoded: whether vectors are decoded, where an index stores codes alone: a search compares these.

        Raises:
            QueryError: the index has no such chunk, or codes alone and `decoded` is false.
        """
        from ragidx.retriever.contents import vectors

        return vectors(self.searcher.store, ids, decoded=decoded)

    def documents(self, *, where: str | Condition | None = None, source: str | None = None) -> Iterator[Document]:
        """All documents, or those of which a chunk fulfils a condition, or of one source, in the order of the index."""
        from ragidx.retriever.contents import documents

        return documents(self.searcher.store, where, source)

    def count(self, where: str | Condition | None = None) -> int:
        """How many documents there are, or how many of them have a chunk that fulfils a condition."""
        from ragidx.retriever.contents import count

        return count(self.searcher.store, where)

    def values(self, field: str, *, where: str | Condition | None = None, limit: int = 20) -> list[tuple[Scalar, int]]:
        """The commonest values of a field of `schema`, each with the number of its chunks, the most frequent first.

        Raises:
            QueryError: there is no such field, or the condition is wrong.
        """
        from ragidx.retriever.contents import values

        return values(self.searcher.store, field, where, limit)

    def to_batches(
        self, columns: Sequence[str] | None = None, *, where: str | Condition | None = None, decoded: bool = False
    ) -> Iterator[Any]:
        """The chunks as `pyarrow.RecordBatch`es, one at a time.

        Args:
            columns: chunk_id, doc_id, text, heading, start, end, line, page, `vector` (float16), and fields of
                `schema`; None: all but the vector.
            where: a condition on metadata.
            decoded: as of `vectors`.

        Raises:
            QueryError: there is no such column, or the condition is wrong.
        """
        from ragidx.retriever.contents import batches

        return batches(self.searcher.store, columns, where, decoded=decoded)

    @property
    def searcher(self) -> Searcher:
        """The state that is shown, for the rooms inside ragidx."""
        return self._shown()

    def _shown(self) -> Searcher:
        searcher = self._open  # once: another thread may close the index
        if searcher is None:
            raise ValueError(f"the index {self._name!r} was closed; open it again")
        return searcher


@written_out
class Index(Reader):
    """An index folder. Safe to use from several threads; a context manager.

    A model that was moved must have the same weights; a server is looked for where it was only if that is this machine.
    The device `cuda` searches the index, too.

    Args:
        path: the index folder; None: the index is in memory, in this process alone, and gone with the object.
        create: whether the index is made at the first write where there is none, with options as of `ragidx.build`, and
            `dim` for vectors: `create={"dim": 384, "index_type": "flat"}`. Until then it has no rows.
        refresh: "auto": each call shows the newest committed state; None: one state is shown, until `refresh` or a
            change by this object.

    Attributes:
        report: report of the last build by this object; None where there was none.

    Raises:
        IndexFormatError: there is no index, or it is damaged, or of another format.
        SpecError: there is no device of that name, or it is a GPU that is not on this machine; or there is no table.
    """

    def __init__(
        self,
        path: str | Path | None = "ragidx-index",
        *,
        create: bool | NewKeywords = False,
        refresh: Literal["auto"] | None = None,
        **place: Unpack[PlaceKeywords],
    ) -> None:
        _check_options("Index", place, PlaceKeywords)
        self.report: BuildReport | None = None
        self._new: dict[str, Any] | None = None if create is False else {} if create is True else dict(create)
        _check_options("create", self._new or {}, NewKeywords)
        if refresh not in ("auto", None):
            raise SpecError(f"refresh is {refresh!r}", 'give "auto" or None', where="`refresh`")
        self._refresh = refresh
        self._gone: Callable[[], object] | None = None  # takes the folder away that stands for memory
        if path is None:
            from ragidx.pipelines.maintain import create as making

            path, self._gone = making.room_in_memory(self)
            making.create(path, self._new or {}, exist_ok=True)
        self._path = Path(path)
        self._name = "in memory" if self._gone else str(path)
        placed: dict[str, Any] = {"endpoint": (self._new or {}).get("endpoint"), **place}
        self._place = ModelPlace(**placed)
        self._changing = Lock()
        self._in_batch = set[int]()  # threads that have a batch open
        self._open = self._newest()

    def __repr__(self) -> str:
        state = "closed" if self._open is None else f"generation {self.generation}, {self.info().n_chunks:,} chunks"
        return f"<ragidx.Index {self._name if self._gone else repr(self._name)}: {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is unpickled, it opens the newest state of the same folder.

        Raises:
            SpecError: it is in memory.
        """
        if self._gone:
            hint = "give it a folder: ragidx.Index(path, create=True)"
            raise SpecError("an index in memory is one process's and one object's alone", hint)
        more: dict[str, Any] = {"create": False if self._new is None else self._new, "refresh": self._refresh}
        return functools.partial(type(self), **more, **dataclasses.asdict(self._place)), (self._path.absolute(),)

    def close(self) -> None:
        """Release the files and the model, which is freed when no other index uses it; an index in memory is gone."""
        super().close()
        if self._gone:
            self._gone()

    def refresh(self) -> bool:
        """Show the newest committed state from now on; whether it is another than before. No model is loaded again.

        Raises:
            IndexFormatError: the index is gone, or damaged now.
        """
        with self._changing:
            before = self._shown()
            self._open = self._newest(before)
            return self._open is not before

    @property
    def searcher(self) -> Searcher:
        """The state that is shown, for the rooms inside ragidx."""
        if self._refresh == "auto" and get_ident() not in self._in_batch:
            self.refresh()
        return self._shown()

    def _newest(self, before: Searcher | None = None) -> Searcher:
        """The committed state; without rows where the first write is to make the index."""
        if self._new is not None:
            from ragidx.pipelines.maintain.create import is_to_come, without_rows

            if is_to_come(self._path):
                return before or without_rows(self._path, self._new, self._place)
            self._new = None
        return Searcher.open(self._path, self._place, before)

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The folder, as it was named; of an index in memory the one that stands for it."""
        return self._path

    def sources(self) -> tuple[SourceEntry, ...]:
        """The folders and files that its documents come from."""
        from ragidx.indexer.store.source_list import sources_of

        manifest = self.searcher.store.manifest
        return sources_of(manifest.notes, self._path)

    def history(self) -> list[Manifest]:
        """The kept generations, the committed one first."""
        from ragidx.indexer.writing.history import history

        return copy.deepcopy(history(self.searcher.store.path))

    def verify(self) -> list[str]:
        """Read all of the folder and check it; one line for each fault, none where it is intact.

        That is the committed state and the kept ones before it, whichever of them is shown.
        """
        from ragidx.indexer.store.verify import verify

        return verify(self.searcher.store.path)

    def export(
        self,
        to: str,
        *,
        replace: bool = False,
        strict: bool = False,
        decoded: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Write all rows to a target; the same state again does nothing, a later one writes what changed.

        Args:
            to: `parquet:FILE`; `datasets:DIR`, which Hugging Face's `load_dataset` reads; or a table of an engine:
                `lancedb:DIR`, `postgresql://HOST/DATABASE`, `qdrant:URL`, `milvus:URL`, with its name after `#`.
            replace: write all anew, whatever is there.
            strict: end before anything is written if the target cannot hold all rows.
            decoded: write decoded vectors, where the index stores codes alone.
            on_progress: called with the rows that were read, and all of them.

        Raises:
            SpecError: there is no such kind of target, the index has no rows, the target holds something else, or, with
                `strict`, it cannot hold all rows.
            RagidxError: it cannot be written.
        """
        from ragidx.pipelines.integrations.export import export

        told = on_progress or (lambda done, total: None)
        return export(self.searcher.folder, to, replace=replace, strict=strict, decoded=decoded, on_progress=told)

    # -- changes --------------------------------------------------------------------------------------------------

    @written_out
    def build(
        self,
        sources: Corpus = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[BuildKeywords],
    ) -> BuildReport:
        """Bring the index up to date with its sources, or with one of them, or with a file of precomputed vectors.

        Args:
            sources: names of the sources that are read; None: all.
            on_progress: called a few times a second.

        Raises:
            RagidxError: of the subclass that says what to do; the committed state is then what it was.
        """
        with self._changed():
            self.report = _built(sources, self._path, on_progress, options)
        return self.report

    @written_out
    def add_source(
        self,
        path: str | Path | Sequence[str | Path],
        *,
        name: str | None = None,
        on_progress: OnProgress | None = None,
        **options: Unpack[ReadKeywords],
    ) -> BuildReport:
        """Put folders or files beside the sources of the index: they alone are read and encoded, in one commit.

        Args:
            path: folders or files that become sources.
            name: name of the one new source; its documents' ids begin with it. None: the folder's own.
            on_progress: called a few times a second.
        """
        from ragidx.pipelines.ingest.build import add

        with self._changed():
            self.report = add(path, self._path, name=name, on_progress=on_progress, **options)
        return self.report

    def remove_source(self, name: str) -> int:
        """Take a source out of the index with all of its documents, whose number is returned; files are not touched."""
        from ragidx.pipelines.maintain.delete import remove_source

        with self._changed():
            return remove_source(name, self._path)

    @written_out
    def plan(
        self, sources: Corpus = None, *, on_progress: OnProgress | None = None, **options: Unpack[PlanKeywords]
    ) -> Plan:
        """What `build` would do with the same arguments, and what it would take, without building."""
        from ragidx.pipelines.plan.plan import plan

        return plan(sources, self.searcher.store.path, on_progress=on_progress, **options)

    @written_out
    def upgrade(
        self, *, on_progress: OnProgress | None = None, **options: Unpack[UpgradeIndexKeywords]
    ) -> UpgradeReport:
        """Make the vectors anew, by another model say, and swap them in one commit unless answers would get worse.

        The new index is made beside this one, which can be asked and written meanwhile. `rollback` brings the old
        vectors back. With the index's own model, options that are not named are the index's own. Vectors are swapped if
        the lower bound of new - old, the difference in nDCG@10 on `queries`, is above -`margin`.

        Args:
            on_progress: called a few times a second.

        Raises:
            SpecError: the index holds precomputed vectors, or an option does not say how vectors are made.
            ModelError: the index's own model is not here, or does not load; `force` without queries does not need it.
            QueryError: a model gives no vector for a query.
            CorpusError: a source cannot be read, queries and judgements have faults, or too few queries can be made.
            BusyError: the index is being upgraded, or at the end another process wrote it for too long.
        """
        from ragidx.pipelines.experiments.trials.upgrade import Upgrade

        made: Any = dict(options)
        swap = {name: made.pop(name) for name in SwapKeywords.__annotations__ if name in made}
        with self._changed():
            report = Upgrade(self.searcher, made).run(on_progress=on_progress, **swap)
            if report.committed:
                self._place = dataclasses.replace(
                    self._place, model=None, adapters=None, pooler=None, endpoint=options.get("endpoint")
                )
        return report

    @written_out
    def adapt(self, *, on_progress: OnTraining | None = None, **options: Unpack[AdaptKeywords]) -> AdaptReport:
        """Train a linear map of the stored vectors on the index's own documents; commit it where answers get better.

        No document is encoded again. `rollback` brings the old vectors back. Nothing is trained on documents that
        `qrels` name, or that the sentences in place of queries are of.

        Args:
            on_progress: called when a stage begins.

        Raises:
            SpecError: the index has no model, an option is out of range, or too few pairs can be made.
            ModelError: the index's own model is not here, or does not load.
            CorpusError: files have faults, or too few queries can be made.
            BusyError: another process adapts, upgrades or writes the index.
        """
        from ragidx.pipelines.experiments.trials.adapt import adapt

        with self._changed():
            return adapt(self.searcher, on_progress=on_progress, **options)

    @written_out
    def train_questions(
        self, *, on_progress: OnTraining | None = None, **options: Unpack[QuestionsKeywords]
    ) -> QuestionsReport:
        """Train a table that encodes questions without the model, on the index's own chunks, and commit it.

        It encodes questions from then on where answers are not worse by it; `Index(path, questions=...)` decides
        otherwise. `rollback` takes it out.

        Args:
            on_progress: called when a stage begins.

        Raises:
            SpecError: the index has no model, or one without layers, or an option is out of range.
            ModelError: the index's own model is not here, does not load, or its tokenizer is not known.
            CorpusError: files have faults, or too few queries or no table can be made.
            BusyError: another process adapts, upgrades or writes the index.
        """
        from ragidx.pipelines.experiments.trials.questions import train_questions

        with self._changed():
            return train_questions(self.searcher, on_progress=on_progress, **options)

    def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        where: str | Condition | None = None,
        missing: Literal["error", "skip"] = "error",
        dry_run: bool = False,
        compact: bool = True,
        timeout: float = 60.0,
    ) -> DeleteReport:
        """Delete documents by id or by a condition, in one commit; later builds skip what was of a folder.

        Args:
            ids: ids of documents; of precomputed vectors, also of rows; an empty list deletes nothing.
            where: a condition as in a search. With ids, only what is theirs and fulfils it.
            missing: whether an id that the index does not have is an error or skipped.
            dry_run: a condition as in a search. With ids, only what is theirs and fulfils it.
            compact: whether the commit may drop the dead rows of segments of which a third is dead.
            timeout: seconds to wait for another writer.

        Raises:
            QueryError: there is no such id, or the condition is wrong.
            BusyError: another writer holds the index for longer.
        """
        from ragidx.pipelines.maintain.delete import delete

        with self._changed():
            opened = self.searcher.folder
            return delete(
                self._path,
                ids=ids,
                where=where,
                missing=missing,
                dry_run=dry_run,
                compact=compact,
                opened=opened,
                timeout=timeout,
            )

    def rollback(self, generation: int) -> int:
        """Commit the content of a kept generation as a new one, whose number is returned."""
        from ragidx.indexer.writing.history import rollback

        with self._changed():
            return rollback(self._path, generation).generation

    def compact(self, *, everything: bool = False, on_stage: OnStage | None = None) -> ReshapeReport:
        """Merge small segments and drop dead rows; `everything`: of all segments where there is anything to gain."""
        from ragidx.pipelines.maintain.rewrite import compact

        with self._changed():
            return compact(self._path, everything=everything, on_stage=on_stage or _silent)

    def shrink(self, dim: int, *, on_stage: OnStage | None = None) -> ReshapeReport:
        """Keep the first `dim` dimensions of each vector; `rollback` brings the wide index back."""
        from ragidx.pipelines.maintain.rewrite import shrink

        with self._changed():
            return shrink(self._path, dim=dim, on_stage=on_stage or _silent)

    @written_out
    def reindex(
        self,
        target: str | Path,
        *,
        dim: int | None = None,
        on_stage: OnStage | None = None,
        **options: Unpack[AnnKeywords],
    ) -> ReshapeReport:
        """Make another index of the state that is shown, in `target`: narrower, of another type, or both."""
        from ragidx.pipelines.maintain.rewrite import reindex

        store = self.searcher.folder
        return reindex(store.path, target, dim=dim, on_stage=on_stage or _silent, opened=store, **options)

    @classmethod
    @written_out
    def create(
        cls,
        path: str | Path = "ragidx-index",
        *,
        dim: int | None = None,
        exist_ok: bool = False,
        **options: Unpack[CreateKeywords],
    ) -> Self:
        """An empty index, committed now and open: `Index(path, create=...)` makes it at the first write, or opens it.

        Args:
            path: a folder that is empty or does not exist.
            dim: width of the vectors that will be given; None: the index is for documents.
            exist_ok: open the index that is there already, as it is.

        Raises:
            SpecError: there is an index, or an option is wrong.
        """
        from ragidx.pipelines.maintain.create import create

        create(Path(path), {**options, "dim": dim}, exist_ok=exist_ok)
        return cls(path, endpoint=options.get("endpoint"))

    def add(self, documents: Iterable[Document] | Document, *, compact: bool = True, timeout: float = 60.0) -> int:
        """Add a program's documents, or replace those of the same ids, in one commit; unchanged ones make none.

        They are stored whole, and read again like files when the index is rebuilt. One without a text is skipped, as an
        empty file is by a build; `batch()` says which.

        Args:
            documents: texts with ids of your own; or one alone.
            compact: whether the commit may drop the dead rows of segments of which a third is dead.
            timeout: seconds to wait for another writer.

        Returns:
            How many were new or changed.

        Raises:
            CorpusError: a document has no id, or what an index cannot hold; nothing is added then.
            BusyError: another writer held the index for so long.
        """
        with self.batch(compact=compact, timeout=timeout) as batch:
            batch.add(documents)
            return batch.n_added + batch.n_changed

    def add_vectors(
        self,
        ids: Iterable[str | int],
        vectors: ArrayLike,
        *,
        texts: Sequence[str | None] | None = None,
        metadata: Sequence[Mapping[str, object]] | None = None,
        doc_ids: Iterable[str | int] | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Add rows of an index of precomputed vectors, or replace those of the same ids, in one commit.

        Args:
            ids: n, each once.
            vectors: (n, dim) floats; brought to length 1.
            texts: n, shown with a hit; None: none.
            metadata: n, values by name, for conditions; None: none.
            doc_ids: n; rows of one document share its id. None: each row is a document of its own.
            timeout: seconds to wait for another writer.

        Raises:
            SpecError: the index holds encoded texts.
            CorpusError: a vector is zero or not finite, an id is repeated, or a value is nothing that metadata can be.
            BusyError: another writer held the index for so long.
        """
        with self.batch(timeout=timeout) as batch:
            batch.add_vectors(ids, vectors, texts=texts, metadata=metadata, doc_ids=doc_ids)

    @contextlib.contextmanager
    def batch(self, *, compact: bool = True, timeout: float = 60.0) -> Iterator[Batch | VectorBatch]:
        """Many changes of documents, or of precomputed vectors, in one commit; none if an exception leaves the block.

            with index.batch() as batch:
                batch.add(documents)
                batch.delete(["faq-1"]); batch.delete(where="year < 1900")

        The index is locked for other writers until the end of the block. Of two changes of one document the later wins.

        Args:
            compact: as of `add`.
            timeout: seconds to wait for another writer.

        Raises:
            BusyError: another writer held the index for so long.
        """
        from ragidx.pipelines.maintain.batch import Batch, VectorBatch

        with self._changed():
            is_given = self.spec.precomputed is not None
            state, thread = self.searcher, get_ident()
            batch = (
                VectorBatch(state.folder, timeout, compact=compact)
                if is_given
                else Batch(state, timeout, compact=compact)
            )
            self._in_batch.add(thread)
            try:
                with batch:
                    yield batch
            finally:
                self._in_batch.discard(thread)

    @contextlib.contextmanager
    def _changed(self) -> Iterator[None]:
        """A change, which the index shows afterwards."""
        _ = self._shown()
        if get_ident() in self._in_batch:
            raise ValueError("a batch of this index is open: call its members, or end it first")
        if self._new is not None:
            from ragidx.pipelines.maintain.create import create

            create(self._path, self._new, exist_ok=True, timeout=60.0)
            self.refresh()
        yield
        self.refresh()


@written_out
class RemoteIndex(Reader):
    """A table of an engine that has the rows of an index: asked as the index is. Safe to use from several threads.

    Questions are encoded by the index's own model and filter, here. Hits have the cosines of the index; hybrid search
    is by the engine's own full-text search, where it has one, and fuses places.

    Args:
        target: `lancedb:DIR`, `postgresql://HOST/DATABASE`, `qdrant:URL` or `milvus:URL`, with `#NAME` of the table.

    Raises:
        SpecError: there is no such engine or table, or the table is none of an index.
        EngineError: the engine does not answer.
    """

    def __init__(self, target: str, **place: Unpack[PlaceKeywords]) -> None:
        _check_options("RemoteIndex", place, PlaceKeywords)
        from ragidx.pipelines.integrations.engines.remote import RemoteSearcher

        self._target = target
        self._place = ModelPlace(**place)
        self._open: RemoteSearcher | None = RemoteSearcher.open(target, self._place)
        self._name = str(self._open.store.path)

    def __repr__(self) -> str:
        return f"<ragidx.RemoteIndex {self._name!r}{': closed' if self._open is None else ''}>"

    def close(self) -> None:
        """Release the connection and the model."""
        if self._open is not None:
            self._open.store.table.close()
        super().close()

    def refresh(self) -> bool:
        """Show the state that the engine has now; whether it is another than before.

        Raises:
            EngineError: the engine does not answer.
            SpecError: the table is gone.
        """
        from ragidx.pipelines.integrations.engines.remote import RemoteSearcher

        before = self.searcher
        self._open = RemoteSearcher.open(self._target, self._place, before)
        return self._open is not before


def connect(target: str, **place: Any) -> RemoteIndex:
    """A table of an engine that has the rows of an index, to be asked; the arguments are those of `RemoteIndex`."""
    return RemoteIndex(target, **place)


@written_out
def build(
    sources: Corpus = None,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[BuildKeywords],
) -> Index:
    """Make or update the index of a corpus, and open it.

    An option that is not given, and a field that a filter or chunks do not name, is what the index was built with, else
    the model's preset, else the default. Several devices may encode: `device="cuda:0,cuda:1"`.

    Args:
        sources: a folder, a file, a BEIR folder, or `-` for standard input; or several folders and files, the sources
            of the index; or these by name, also with globs of their own: `{"a": {"path": "a", "exclude": ["x/"]}}`. Of
            an index that exists: those of its sources that are read; None: all.
        index: the index folder.
        on_progress: called a few times a second.

    Returns:
        The index, with what was done and skipped as `index.report`.

    Raises:
        RagidxError: of the subclass that says what to do; the committed state is then what it was.
    """
    report = _built(sources, index, on_progress, options)
    opened = Index(index, endpoint=options.get("endpoint"))
    opened.report = report
    return opened


@written_out
def search(
    indexes: Sequence[Index | str | Path],
    query: str | None = None,
    k: int = 10,
    *,
    vector: ArrayLike | None = None,
    where: str | Condition | None = None,
    instruction: str | None = None,
    **options: Unpack[SearchKeywords],
) -> Hits:
    """The k best chunks of several indexes for a question, best first; each hit has its `index`.

    They are ranked as in one index of all their documents, with the same scores, where the words of all are stemmed
    alike and their vectors are of one space: the same fingerprint but for how the corpus was cut (the content of the
    model, method, template, pooling, filter and, where it is fitted, its fit), the same number of dimensions, and
    questions that are encoded alike. Where a search needs what differs, each index answers by itself, and hits are
    fused by places, with the score 1 / (60 + place).

    Args:
        indexes: open ones, or folders, which are opened for this question; equal places are in this order.
        query: text of the question.
        k: 1 or more.
        vector: (dim,) floats in place of a question, or its own, where the vectors are of one space.
        where: a condition; a field that an index does not have is null in its rows.
        instruction: as for `Index.search`.

    Returns:
        The hits; `by_places` says why they were fused by places, and is empty where they were ranked as one.

    Raises:
        IndexFormatError: one of the folders holds no index.
        QueryError: as for `Index.search`; or no index is named, or one twice.
        ModelError: a model is not here, or is another.
    """
    from ragidx.retriever.several_indexes import Several

    _check_options("search", options, SearchKeywords)
    if isinstance(indexes, str | Path | Index):
        raise TypeError("expected a list of indexes, got one")
    several = Several([(one if isinstance(one, Index) else Index(one)).searcher for one in indexes])
    queries = None if query is None else [query]
    vectors = None if vector is None else np.asanyarray(vector)[None]
    asked: dict[str, Any] = {"k": k, "where": where, **options}
    [answer] = several.search(queries, vectors=vectors, instruction=instruction, **asked)
    answer.by_places = several.by_places(in_words=query is not None, has_vectors=vector is not None, **asked)
    return answer


def _built(
    sources: Corpus, index: str | Path, on_progress: OnProgress | None, options: Mapping[str, Any]
) -> BuildReport:
    """The report of a build, of a corpus or of precomputed vectors."""
    options = dict(options)
    vectors, questions = options.pop("vectors", None), options.pop("questions", None)
    if questions is not None:
        from ragidx.indexer.model_files import expanded
        from ragidx.pipelines.experiments.trials.questions import questions_for

        table = questions_for(expanded(questions), Path(index), options if vectors is None else None)
        report = _built(sources, index, on_progress, options | {"vectors": vectors})
        return dataclasses.replace(report, generation=table.into(Path(index)))
    if vectors is None:
        from ragidx.pipelines.ingest.build import build as build_corpus

        if options.pop("vector_field", None) is not None or options.pop("made_by", ""):
            raise TypeError("vector_field and made_by are about vectors")
        return build_corpus(sources, index, on_progress=on_progress, **options)
    from ragidx.pipelines.vectors import build_vectors

    if sources is not None:
        raise TypeError("give sources or vectors, not both")
    return build_vectors(vectors, index, on_progress=on_progress, **options)


def _check_options(member: str, given: Mapping[str, Any], keywords: type) -> None:
    """Refuse a name that a member does not take, as Python would."""
    for name in given:
        if name not in keywords.__annotations__:
            raise TypeError(f"{member}() got an unexpected keyword argument '{name}'")


def _silent(stage: str, rows: int, done: int) -> None:
    pass
