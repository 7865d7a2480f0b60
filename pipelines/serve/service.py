"""What a service does, whatever asks: HTTP, the page, agents. A place in the queue, a deadline, one state an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ragidx.corpora.errors import (
    BusyError,
    CorpusError,
    DefectError,
    EngineError,
    IndexFormatError,
    MachineError,
    ModelError,
    QueryError,
    RagidxError,
    SpecError,
)
from ragidx.corpora.records import Document
from ragidx.pipelines.serve import bodies
from ragidx.pipelines.serve.guard import RETRY, RefusedError, log
from ragidx.pipelines.serve.metrics import Metrics
from ragidx.pipelines.serve.served_index import Pools, Served, run
from ragidx.pipelines.serve.settings import Settings
from ragidx.pipelines.serve.writes import Writes
from ragidx.retriever.contents import documents_by_id
from ragidx.retriever.keywords import Rerank
from ragidx.retriever.rows import Queries, unit_queries
from ragidx.retriever.searcher import Searcher, check_questions

if TYPE_CHECKING:
    from ragidx.retriever.hit import Hits

T = TypeVar("T")

_STATUS: tuple[tuple[type[RagidxError], int], ...] = (
    (QueryError, 422),
    (SpecError, 422),
    (CorpusError, 422),
    (BusyError, 503),
)
_INSIDE = (
    ModelError,
    IndexFormatError,
    MachineError,
    EngineError,
    DefectError,
)  # their texts name places of this machine


class FoundHits(NamedTuple):
    """The hits of each question in one state; `took_ms` by stage."""

    state: Searcher
    mode: str
    hits: list[Hits]
    took_ms: dict[str, float]


class Service:
    """All that is served, whatever asks: HTTP, the page, agents.

    Args:
        indexes: the served indexes by name.
        settings: settings of the service.
        pools: thread pools of the service.
    """

    def __init__(self, indexes: dict[str, Served], settings: Settings, pools: Pools) -> None:
        self.indexes, self.settings, self.pools = indexes, settings, pools
        self.metrics = Metrics(indexes)
        self.writes = {name: Writes(served, settings.deadline_s) for name, served in indexes.items()}
        self.sockets: dict[str, str] = {}  # of this user, to the index that each is for
        self._n_working = 0

    async def in_turn(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do a piece of work, if there is a place for it, before the deadline."""
        if self._n_working >= self.settings.queue:
            raise RefusedError(503, "too many requests are waiting", "ask again in a second", kind="BusyError", **RETRY)
        self._n_working += 1
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                return await work()
        except TimeoutError:
            message = f"it took more than {self.settings.deadline_s:g} s"
            raise RefusedError(503, message, "ask again, or for less", kind="BusyError", **RETRY) from None
        finally:
            self._n_working -= 1

    def served(self, name: str | None, socket: str | None = None) -> Served:
        """The index of a name; where there is one alone, or the socket is of one, that."""
        name = name or self.sockets.get(socket or "") or (next(iter(self.indexes)) if len(self.indexes) == 1 else None)
        if name is None:
            known = ", ".join(sorted(self.indexes))
            raise RefusedError(
                422, "several indexes are served", f"name one of them: {known}", where="index", kind="QueryError"
            )
        if name not in self.indexes:
            known = ", ".join(sorted(self.indexes))
            raise RefusedError(404, "there is no such index", f"there is {known}", where="index", kind="QueryError")
        return self.indexes[name]

    async def answer(
        self,
        served: Served,
        queries: Sequence[str] | None,
        asked: bodies.Ranking | bodies.VectorSearch,
        written: Callable[[FoundHits], T],
        vectors: Any = None,
    ) -> T:
        """What is written of the hits of questions or vectors in one state, in the thread that has found them."""
        begun = time.perf_counter()
        state = served.current
        options = asked.model_dump(exclude={"index", "query", "queries", "vectors", "instruction", "rerank_top"})
        if options.pop("rerank", False):
            if served.rerank is None:
                raise RefusedError(
                    422,
                    "the service has no reranker",
                    "start it with --rerank MODEL",
                    where="rerank",
                    kind="QueryError",
                )
            options["rerank"] = Rerank(served.rerank, getattr(asked, "rerank_top", None) or 20)
        if queries is not None:
            check_questions(queries)
        search = state.options(in_words=queries is not None, **options)
        n_asked = len(queries) if queries is not None else len(vectors)
        if n_asked * search.k * (1 + 2 * search.context) > bodies.MAX_CHUNKS:
            message = f"an answer has at most {bodies.MAX_CHUNKS:,} chunks, the context of hits among them"
            raise RefusedError(422, message, "ask for fewer hits, or less at once", where="k", kind="QueryError")
        if vectors is None:
            texts = Queries(None, list(queries or ()))
        else:
            precomputed = state.spec.precomputed
            width = None if precomputed is None else precomputed.input_dim
            texts = Queries(unit_queries(vectors, state.store.manifest.dim, width, index=served.name))

        def write(hits: list[Hits], took: dict[str, float]) -> T:
            took["total"] = 1000 * (time.perf_counter() - begun)
            self.metrics.searched(took)
            return written(
                FoundHits(state, search.mode, hits, {stage: round(value, 3) for stage, value in took.items()})
            )

        return await served.search(state, texts, getattr(asked, "instruction", None), search, write)

    async def document(self, state: Searcher, name: str) -> Document:
        """A document of a state; ids are looked up in the index, and open no file."""
        if "\0" in name or not (found := await run(self.pools.reading, _documents_named, state, name)):
            raise RefusedError(404, "the index has no such document", kind="QueryError", where="id")
        return found[0]


def refused(fault: RagidxError, service: Service) -> RefusedError:
    """The answer for a failure; what names places of this machine goes to the log alone."""
    kind = type(fault).__name__
    status = next((status for of, status in _STATUS if isinstance(fault, of)), 503)
    if isinstance(fault, _INSIDE) or status == 503:
        log({"fault": kind, "message": str(fault)})
    if isinstance(fault, _INSIDE):
        what = "model" if isinstance(fault, ModelError) else "index"
        return RefusedError(503, f"the {what} cannot be used now", "the service's log says why", kind=kind, **RETRY)
    where = fault.where
    for name, served in service.indexes.items():
        for path in (served.path, *([] if served.state is None else [served.state.store.path])):
            where = where.replace(str(path), name)
    where = where.strip("`")
    return RefusedError(status, fault.message, fault.hint, where=where, kind=kind, **(RETRY if status == 503 else {}))


def describe(served: Served) -> dict[str, Any]:
    """What an index holds, without a place of this machine."""
    state = served.state
    about: dict[str, Any] = {
        "name": served.name,
        "ready": served.is_loaded,
        "problem": "a newer state cannot be shown: the log says why" if served.problem else "",
    }
    if state is None:
        return (
            about
            | dict.fromkeys(("generation", "n_documents", "n_chunks", "dimensions", "model", "mode"))
            | {"fields": {}}
        )
    manifest, encoder = state.store.manifest, state.spec.encoder
    return about | {
        "generation": manifest.generation,
        "n_documents": manifest.n_documents,
        "n_chunks": manifest.n_chunks,
        "dimensions": manifest.dim,
        "model": None if encoder is None else encoder.model.rstrip("/").rpartition("/")[2],
        "mode": state.options().mode,
        "fields": state.schema,
    }


def _documents_named(state: Searcher, name: str) -> list[Document]:
    return documents_by_id(state.store, [name], missing="skip")
