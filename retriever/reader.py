"""IndexReader: a committed state of an index, searched with vectors.

query vectors (q, dim), of any length but zero -> unit length -> search each segment -> merge -> hits. A reader is a
snapshot: what is committed later does not change it, and `refresh` gives a reader of the newest state. If an index of
precomputed vectors was shrunk, query vectors may have the old width: they are cut as the stored vectors were.
`Retriever` takes questions in words, and loads the model that encodes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError
from ragidx.indexer.devices import check_device
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.store import Store
from ragidx.indexer.store.topk import Place
from ragidx.retriever.hit import Hit
from ragidx.retriever.options import ONE_A_DOCUMENT, RankKeywords, SearchKeywords, SearchOptions, search_options
from ragidx.retriever.query_vectors import unit_queries
from ragidx.retriever.ranking import Queries, Rank, rank
from ragidx.retriever.shaping import shaped_hits
from ragidx.retriever.where.masks import matching_rows, schema_of


class IndexReader:
    """A committed state of an index. Safe to use from several threads.

    Args:
        store: the opened index; `IndexReader.open` opens one.
        device: where it searches, for the readers that `refresh` gives.
    """

    def __init__(self, store: Store, *, device: str = "cpu") -> None:
        if not isinstance(store, Store):
            raise TypeError(f"expected a Store, got {store!r}: open an index folder with `open`")
        self.store, self._device = store, device
        self.spec = IndexSpec.from_json(dict(store.manifest.spec), where=str(store.path))

    @classmethod
    def open(cls, path: str | Path = "ragidx-index", *, device: str = "cpu") -> IndexReader:
        """The index in a folder.

        Args:
            path: the index folder.
            device: `cuda` or `cuda:1` searches there, with torch, as far as its memory goes; anything else on the CPU.

        Raises:
            IndexFormatError: there is no index, or it is damaged or newer.
            SpecError: there is no device of that name, or it is a GPU that is not on this machine.
        """
        check_device(device)
        store = Store.open(path)
        store.move(device)
        return cls(store, device=device)

    def refresh(self) -> IndexReader:
        """A reader of the newest state; this one where nothing was committed since.

        Raises:
            IndexFormatError: the index is gone, or damaged or newer now.
        """
        try:
            if read_manifest(self.store.path) == self.store.manifest:
                return self
        except FileNotFoundError:
            pass  # opening says it better
        return IndexReader.open(self.store.path, device=self._device)

    @property
    def generation(self) -> int:
        """The number of the state: each commit of an index has a higher one."""
        return self.store.manifest.generation

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self.store.manifest.dim

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
        return schema_of(self.store)

    def __len__(self) -> int:
        """How many chunks there are."""
        return self.store.manifest.n_chunks

    def search(
        self, vectors: ArrayLike, k: int = 10, where: str | None = None, **options: Unpack[SearchKeywords]
    ) -> list[list[Hit]]:
        """The k best chunks for each query, best first; fewer only if the index, or the options, leave no more.

        Args:
            vectors: (q, dim) numbers; brought to length 1. Of an index of precomputed vectors that was shrunk, also
                (q, as many as were given): cut to the first `dim`.
            k: 1 or more.
            where: a condition on metadata, such as `subject == "history" and year >= 1900`.
            options: `SearchKeywords`: dim, rerank_dim, min_score, per_document, fold, mmr, context. A vector has no
                words, so the search is dense.

        Raises:
            QueryError: a vector is zero, not finite or of another width, an option is out of range, or the condition is
                wrong.
        """
        asked = search_options(self.store, k, where, **options)
        return self.hits(Queries(vectors=self._unit(vectors)), asked)

    def search_documents(
        self, vectors: ArrayLike, k: int = 10, where: str | None = None, **options: Unpack[RankKeywords]
    ) -> list[list[tuple[str, float]]]:
        """The k best documents for each query as (document id, score): a document's best chunk counts.

        Args and errors are those of `search`.
        """
        asked = dataclasses.replace(search_options(self.store, k, where, **options), shape=ONE_A_DOCUMENT)
        return ranked_documents(self.hits(Queries(vectors=self._unit(vectors)), asked))

    def hits(self, queries: Queries, options: SearchOptions) -> list[list[Hit]]:
        """As `search`, of queries as the options need them, and of options made for this index."""
        return shaped_hits(self.store, self._rank(queries, options), len(queries), options)

    def get(self, chunk_ids: Sequence[str] | None = None, *, doc_id: str | None = None) -> list[Row]:
        """What the index holds of some chunks, in the order asked for, or of a document, in that of its text.

        Args:
            chunk_ids: ids of chunks.
            doc_id: the id of a document, in place of them.

        Raises:
            QueryError: the index has no such chunk or document.
        """
        if (chunk_ids is None) == (doc_id is None):
            raise TypeError("get takes chunk ids or a document's id, one of the two")
        if doc_id is not None:
            rows = self.store.rows([place for place, _ in self._places("doc_id", [doc_id])])
            if not rows:
                raise QueryError(f"the index has no document '{doc_id}'", "ids are those that queries show")
            return sorted(rows, key=lambda row: (row.start, row.end))
        if chunk_ids is None or isinstance(chunk_ids, str):
            raise TypeError("expected a list of chunk ids, got one string")
        found = {name: place for place, name in self._places("chunk_id", chunk_ids)}
        missing = [name for name in chunk_ids if name not in found]
        if missing:
            more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            raise QueryError(f"the index has no chunk '{missing[0]}'{more}", "ids are those that queries show")
        return self.store.rows([found[name] for name in chunk_ids])

    def _rank(self, queries: Queries, options: SearchOptions) -> Rank:
        """The search for some of the queries, by their numbers, and k, with all else that the options say."""
        masks = self.store.masks(None if options.where is None else matching_rows(self.store, options.where))
        return lambda numbers, k: rank(self.store, queries.of(numbers), k, masks, options)

    def _unit(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """(q, dim) of length 1."""
        precomputed = self.spec.precomputed
        given_dim = None if precomputed is None else precomputed.given_dim
        return unit_queries(vectors, self.dim, given_dim, index=self.store.path)

    def _places(self, column: str, names: Sequence[str]) -> Iterator[tuple[Place, str]]:
        """Where the rows are that are alive and have one of these names in a column, in the order of the index."""
        wanted = pa.array(list(dict.fromkeys(names)), pa.large_string())
        for number, segment in enumerate(self.store.segments):
            dead, first = self.store.dead[number], 0
            for batch in segment.batches([column]):
                values = batch.column(0)
                hits = pc.is_in(values, value_set=wanted).to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(hits).tolist():
                    if dead is None or not dead[first + row]:
                        yield (number, first + row), values[row].as_py()
                first += len(values)


def ranked_documents(answers: Iterable[Sequence[Hit]]) -> list[list[tuple[str, float]]]:
    """(document id, score) of hits that have one chunk of each document."""
    return [[(hit.doc_id, hit.score) for hit in hits] for hits in answers]
