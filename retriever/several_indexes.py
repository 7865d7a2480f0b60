"""Several indexes, asked as one.

    Several([one, other]).search(["a question"], k=10)[0]    hits of both, each with its `index`

They are ranked as one index of all their documents would rank them, same ids and same scores, where that can be done:
BM25 with the statistics of all rows, cosines with one vector of the question, z-scores over all live chunks. Cosines
and BM25 are equal bit for bit; sums of z-scores to the precision of float32, as of one index in several segments.

- Words are compared where the lexical parts of all were made alike: the same stemmer, in the same version.
- Vectors are compared where all are of one space: the same fingerprint but for how the corpus was cut (the content of
  the model, method, template, pooling, filter; of a filter that is fitted on a corpus, the same fit), the same number
  of dimensions, and questions that are encoded alike (default instruction, table of questions). Precomputed vectors
  have the same `made_by`, too.

Where a search needs what cannot be compared, each index answers by itself, in its own way, and the hits are fused by
places: 1 / (60 + place). Equal scores are ordered by chunk id, then by index; equal places by index. Equal ids in two
indexes are two rows, and one document to `per_document` and `rank_documents`. An index without chunks changes nothing.

A field of conditions that an index does not have is null in its rows. One that has several types in them is widened, as
in one index: whole numbers to numbers, all else to text; so are its values in hits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.specs import TABLE
from ragidx.indexer.store.rows import META, union
from ragidx.retriever.hit import Hits
from ragidx.retriever.models import FILTER_FILE, QUESTIONS_FILE
from ragidx.retriever.options import DENSE, SearchOptions
from ragidx.retriever.rows import FolderRows, Queries, needs_vectors
from ragidx.retriever.searcher import Searcher, before_reranking, check_questions
from ragidx.retriever.shaping import fused_hits, shaped_hits
from ragidx.retriever.where.binding import bind
from ragidx.retriever.where.conditions import Condition
from ragidx.retriever.where.masks import fields_of, schema_of

if TYPE_CHECKING:
    from ragidx.retriever.rerank import Reranker


class Several(Searcher):
    """Committed states of several indexes. Safe to use from several threads.

    Args:
        searchers: searchers of the indexes, in their order.

    Attributes:
        searchers: searchers of the indexes that have chunks; the first, if none has.

    Raises:
        QueryError: there is none, or two are the same index.
    """

    def __init__(self, searchers: Sequence[Searcher]) -> None:
        if not searchers:
            raise QueryError("no index is named", "name one or more", where="`indexes`")
        places = [one.store.path.resolve() for one in searchers]
        for number, place in enumerate(places):
            if place in places[:number]:
                path = str(searchers[number].store.path)
                raise QueryError("the index is named twice", "name each index once", where=path)
        self.searchers = [one for one in searchers if one.store.manifest.n_chunks] or searchers[:1]
        self._fields = union(*(schema_of(one.store) for one in searchers))
        super().__init__(
            FolderRows.joined([_widened(one.folder, self._fields) for one in self.searchers]), self.searchers[0].place
        )
        weights = {one.spec.weight for one in self.searchers}
        self.spec = dataclasses.replace(self.spec, weight=weights.pop() if len(weights) == 1 else None)

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: the fields of all."""
        return dict(self._fields)

    def search(
        self,
        queries: Sequence[str] | None = None,
        *,
        vectors: ArrayLike | None = None,
        instruction: str | None = None,
        **options: Any,
    ) -> list[Hits]:
        """The hits of each query, as of a searcher.

        Raises:
            QueryError: as for one index; or vectors are asked, and the indexes have no space in common.
        """
        why = self.by_places(in_words=queries is not None, has_vectors=vectors is not None, **options)
        if why and vectors is not None:
            raise QueryError(f"one vector cannot be compared in all indexes: {why}", "ask each index by itself")
        if not why or not queries:
            return super().search(queries, vectors=vectors, instruction=instruction, **options)
        check_questions(queries)
        answers, unknown = [], np.ones(len(queries), np.bool_)  # to all that encode them
        for one, store, own in zip(self.searchers, self.folder.parts, self._own(**options), strict=True):
            encoded = one.encode(queries, instruction) if needs_vectors(own) else None
            asked_here = Queries(encoded, queries)
            unknown &= np.array(asked_here.are_unknown or [False] * len(queries))
            found = shaped_hits(store, asked_here, before_reranking(own))
            answers.append([[dataclasses.replace(hit, index=str(store.path)) for hit in hits] for hits in found])
        asked = self.options(**options)
        fused = [fused_hits(of_query, before_reranking(asked)) for of_query in zip(*answers, strict=True)]
        reranked = fused if asked.rerank is None else self.reranked(queries, fused, asked)
        return self.noted(reranked, asked, unknown=unknown.tolist())

    def by_places(self, **options: Any) -> str:
        """Why a search with these options is answered by each index by itself; empty: by all as one.

        Raises:
            QueryError: as `search`.
        """
        stores = [one.store for one in self.searchers]
        spaces, words = [_space(one) for one in self.searchers], [store.manifest.lexical for store in stores]
        apart = [(place, name) for place, of in enumerate(spaces) for name in of if of[name] != spaces[0][name]]
        unlike = [place for place, spec in enumerate(words) if spec != words[0]]
        if not apart and not unlike:
            return ""
        options_of = self._own(**options)
        paths = [f"'{store.path}'" for store in stores]
        for place, its in enumerate(options_of):
            if its.mode != options_of[0].mode:
                return f"{paths[0]} is asked by {options_of[0].mode} search, {paths[place]} by {its.mode} search"
        if apart and (needs_vectors(options_of[0]) or options_of[0].mmr is not None):
            place, name = apart[0]
            return f"the vectors of {paths[0]} and {paths[place]} are of two spaces, which differ in the {name}"
        if unlike and options_of[0].mode != DENSE:
            return f"the words of {paths[0]} and {paths[unlike[0]]} were stemmed in two ways"
        return ""

    def options(self, **options: Any) -> SearchOptions:
        """The options of a search in all as one; where each index answers by itself, those of the first."""
        if self.by_places(**options):
            return self._own(**options)[0]
        where, other = self._bound(options)
        return dataclasses.replace(super().options(**other), where=where)

    @property
    def paths(self) -> list[str]:
        """The folders of those that have chunks, in their order."""
        return [str(part.path) for part in self.folder.parts]

    def load(self, instruction: str | None = None) -> None:
        """Load the models of all that have one; those of one space share it."""
        for one in self.searchers:
            if one.spec.encoder is not None or one is self.searchers[0]:
                one.load(instruction)

    def encode(self, queries: Sequence[str], instruction: str | None = None) -> NDArray[Any]:
        """As the first index encodes them, which keeps its model."""
        return self.searchers[0].encode(queries, instruction)

    def reranker(self, model: str, method: str) -> Reranker:
        """The reranker of the first index, which keeps it."""
        return self.searchers[0].reranker(model, method)

    def _own(self, **options: Any) -> list[SearchOptions]:
        """The options of a search in each index."""
        where, other = self._bound(options)
        return [dataclasses.replace(one.options(**other), where=where) for one in self.searchers]

    def _bound(self, options: dict[str, Any]) -> tuple[Condition | None, dict[str, Any]]:
        """The condition about the fields of all, and the other options."""
        where = options.get("where")
        other = {name: value for name, value in options.items() if name != "where"}
        return None if where is None else bind(where, self._fields), other


def _widened(store: FolderRows, fields: dict[str, str]) -> FolderRows:
    """A state that reads metadata in the kinds that all indexes have together."""
    named = [(name, column) for name, (column, _) in fields_of(store).items() if column.startswith(META)]
    return store.widened({column.removeprefix(META): fields[name] for name, column in named})


def _space(searcher: Searcher) -> dict[str, object]:
    """All that must be equal for vectors to be of one space, and questions to have one vector in it, by name."""
    spec, manifest = searcher.spec, searcher.store.manifest
    return {
        "model": spec.weights,
        "filter": (spec.filter, manifest.files.get(FILTER_FILE) if spec.filter.fitted else None),
        "number of dimensions": manifest.dim,
        "instruction": spec.encoder and spec.encoder.instruction,
        "table of questions": manifest.files.get(QUESTIONS_FILE) if searcher.questions == TABLE else None,
        "maker of the vectors": spec.precomputed,
        "method": dataclasses.replace(spec, chunk=ChunkSpec()).fingerprint(),
    }
