"""What each route of the service does."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import ragidx
from ragidx.corpora.errors import QueryError, RagidxError
from ragidx.corpora.records import Document
from ragidx.indexer.arrays import Floats
from ragidx.indexer.normalize import l2_normalize
from ragidx.pipelines.serve import bodies
from ragidx.pipelines.serve.guard import RETRY, RefusedError, is_local
from ragidx.pipelines.serve.interface import Route, description
from ragidx.pipelines.serve.served_index import BATCH, NotReadyError, Served, run
from ragidx.pipelines.serve.service import FoundHits, Service, describe, refused
from ragidx.pipelines.serve.writes import Writes
from ragidx.retriever.hit import json_values
from ragidx.retriever.passages import hits_json, stem_of
from ragidx.retriever.searcher import Searcher

Model = TypeVar("Model", bound=BaseModel)


class Handlers:
    """What each route does."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def search(self, request: Request) -> Response:
        """POST /v1/search."""
        asked = await _parsed(request, bodies.Search)
        request.state.query = asked.query
        served = self.service.served(asked.index, _socket(request))

        def written(found: FoundHits) -> Response:
            stemmer, [hits] = found.state.stemmer, found.hits
            shown = hits_json(hits, asked.query, stem_of(stemmer))
            about = {"query": asked.query, "stemmer": stemmer, "notes": hits.notes, "hits": shown}
            return _answer(served, asked, found, about)

        return await self.service.answer(served, [asked.query], asked, written)

    async def search_batch(self, request: Request) -> Response:
        """POST /v1/search:batch."""
        asked = await _parsed(request, bodies.SearchBatch)
        served = self.service.served(asked.index, _socket(request))
        request.state.query = asked.queries

        def written(found: FoundHits) -> Response:
            stem = stem_of(found.state.stemmer)
            answers = [
                {"query": query, "notes": hits.notes, "hits": hits_json(hits, query, stem)}
                for query, hits in zip(asked.queries, found.hits, strict=True)
            ]
            return _answer(served, asked, found, {"answers": answers})

        return await self.service.answer(served, asked.queries, asked, written)

    async def vector(self, request: Request) -> Response:
        """POST /v1/vector."""
        body = await _parsed(request, bodies.VectorSearch)
        served = self.service.served(body.index, _socket(request))
        if len({len(vector) for vector in body.vectors}) > 1:
            raise RefusedError(
                422, "the vectors have several widths", "send vectors of one width", where="vectors", kind="QueryError"
            )
        with np.errstate(over="ignore"):  # what is too large for float32 is refused as not finite
            vectors = np.array(body.vectors, np.float64).astype(np.float32)

        def written(found: FoundHits) -> Response:
            answers = [
                {"query": None, "notes": hits.notes, "hits": [hit.to_json() for hit in hits]} for hits in found.hits
            ]
            return _answer(served, body, found, {"answers": answers})

        return await self.service.answer(served, None, body, written, vectors)

    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings: vectors as the index has them, in the form of OpenAI's interface."""
        _refuse_token_ids(await request.body())
        body = await _parsed(request, bodies.Embed)
        name, sign, side = body.model.partition(":")
        if sign and side != "query":
            message = "a model is NAME for documents, or NAME:query for questions"
            raise RefusedError(404, message, where="model", kind="QueryError")
        served = self.service.served(name)
        state = served.current
        if state.spec.encoder is None:
            message = "the index has no model: it holds precomputed vectors"
            raise RefusedError(422, message, where="model", kind="QueryError")
        if sign:
            vectors = await served.encoded(state, body.input)
        else:
            # in parts: questions, the deadline and the end of the service need not wait for all of them
            starts, pool = range(0, len(body.input), BATCH), self.service.pools.encoding
            vectors = np.concatenate([await run(pool, _documents, state, body.input, start) for start in starts])
        width = vectors.shape[1]
        if (body.dimensions or width) > width:
            message = f"the vectors have {width} dimensions"
            raise RefusedError(422, message, "ask for at most as many", where="dimensions", kind="QueryError")
        if body.dimensions:
            vectors = l2_normalize(vectors[:, : body.dimensions]).vectors
        as_text, rows = body.encoding_format == "base64", vectors.astype("<f4")

        def written() -> Response:
            embedded = (base64.b64encode(row.tobytes()).decode() if as_text else row.tolist() for row in rows)
            data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(embedded)]
            usage = {"prompt_tokens": 0, "total_tokens": 0}
            return JSONResponse({"object": "list", "model": body.model, "data": data, "usage": usage})

        return await run(self.service.pools.searching, written)

    async def read(self, request: Request) -> Response:
        """GET /v1/documents/{id}."""
        served = self.service.served(request.query_params.get("index"), _socket(request))
        start, end = _character(request, "start"), _character(request, "end")
        state = served.current
        document = await self.service.document(state, request.path_params["id"])
        first = min(start or 0, len(document.text))
        last = len(document.text) if end is None else max(first, min(end, len(document.text)))
        return JSONResponse(
            {
                "index": served.name,
                "generation": state.store.manifest.generation,
                "id": document.id,
                "text": document.text[first:last],
                "start": first,
                "end": last,
                "n_characters": len(document.text),
                "metadata": json_values(document.metadata),
            }
        )

    async def put(self, request: Request) -> Response:
        """PUT /v1/documents/{id}."""
        writes = self._writes(request)
        asked = await _parsed(request, bodies.DocumentIn)
        name = request.path_params["id"]
        if "\0" in name:
            raise RefusedError(422, "the id has a NUL", "give another", where="id")
        if len(name) > bodies.MAX_ID:
            raise RefusedError(422, f"the id has more than {bodies.MAX_ID:,} characters", "give another", where="id")
        generation = await writes.add(Document(name, asked.text, asked.metadata, markdown=asked.markdown))
        return JSONResponse({"index": writes.served.name, "generation": generation, "id": name})

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/documents/{id}."""
        writes, name = self._writes(request), request.path_params["id"]
        generation = await writes.delete(name)
        if generation is None:
            raise RefusedError(404, "the index has no such document", kind="QueryError", where="id")
        return JSONResponse({"index": writes.served.name, "generation": generation, "id": name})

    def _writes(self, request: Request) -> Writes:
        if not self.service.settings.writable:
            raise RefusedError(403, "the service only reads", "start it with --writable")
        served = self.service.served(request.query_params.get("index"), _socket(request))
        _ = served.current
        return self.service.writes[served.name]

    async def info(self, request: Request) -> Response:
        """GET /v1/info."""
        found = [describe(served) for served in self.service.indexes.values()]
        rerank = None if self.service.settings.rerank is None else "yes"
        about = {"version": ragidx.__version__, "writable": self.service.settings.writable, "rerank": rerank}
        return JSONResponse(about | {"indexes": found})

    async def healthz(self, request: Request) -> Response:
        """GET /healthz."""
        return JSONResponse({"status": "ok", "indexes": {}})

    async def readyz(self, request: Request) -> Response:
        """GET /readyz: 503 until each index is open and its model loaded; an index that is stale is named, with 200."""
        states = {}
        for name, served in self.service.indexes.items():
            opening = "opening" if served.state is None else "loading the model"
            states[name] = ("stale" if served.problem else "ready") if served.is_loaded else opening
            if not served.is_loaded and served.problem:
                states[name] = "failed"
        ready = all(state in ("ready", "stale") for state in states.values())
        status = "ok" if ready and "stale" not in states.values() else "stale" if ready else "not ready"
        return JSONResponse({"status": status, "indexes": states}, 200 if ready else 503)

    async def metrics_text(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(self.service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        return JSONResponse(description())


def endpoint(handlers: Handlers, route: Route) -> Callable[[Request], Awaitable[Response]]:
    """What a route does, with failures as answers."""

    async def do(request: Request) -> Response:
        request.scope["state"]["route"] = route.path
        work = functools.partial(getattr(handlers, route.do), request)
        try:
            response: Response = await (handlers.service.in_turn(work) if route.is_work else work())
        except NotReadyError as fault:
            message, hint = "the index is being opened", "ask again in a second; /readyz says when it is open"
            if str(fault):
                message, hint = "the index cannot be opened", "the service's log says why"
            raise RefusedError(503, message, hint, kind="BusyError", **RETRY) from None
        except RagidxError as fault:
            raise refused(fault, handlers.service) from fault
        return response

    return do


def _answer(
    served: Served, asked: bodies.Ranking | bodies.VectorSearch, found: FoundHits, own: dict[str, Any]
) -> Response:
    """What the answers of all searches have, and their own."""
    manifest = found.state.store.manifest
    about = {"index": served.name, "generation": manifest.generation, "created": manifest.created}
    about |= {"where": asked.where, "k": asked.k, "mode": found.mode, "words_by": found.state.store.words_by}
    content = to_json(about | own | {"took_ms": found.took_ms}, inf_nan_mode="null")  # three times as fast as `json`
    return Response(content, media_type="application/json")


async def _parsed(request: Request, model: type[Model]) -> Model:
    """The body of a request, checked."""
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as fault:
        message, where, kind = bodies.wrong(fault)
        status = 400 if kind == "json_invalid" else 422
        raise RefusedError(status, message, "/openapi.json describes the body", where=where) from fault


def _refuse_token_ids(body: bytes) -> None:
    """Clients of OpenAI's service may send ids of its own tokens, which mean nothing to another model."""
    try:
        texts = json.loads(body).get("input")
    except (ValueError, AttributeError, RecursionError):
        return  # it is refused as what it is
    first = texts[0] if isinstance(texts, list) and texts else None
    if isinstance(first, int | list) and not isinstance(first, bool):
        raise RefusedError(
            400,
            "the texts are ids of tokens, which are another model's",
            "send texts: in LangChain set check_embedding_ctx_length=False",
            where="input",
        )


def _documents(state: Searcher, texts: Sequence[str], start: int) -> Floats:
    """Vectors of some documents from a place on, none of them zero."""
    vectors = state.embedder.embed_document(texts[start : start + BATCH])
    zero = np.flatnonzero(~vectors.any(axis=1))
    if zero.size:
        number = start + zero[0] + 1
        raise QueryError(f"the model gives no vector for text {number}", "send texts with words", where="input")
    return vectors


def _character(request: Request, name: str) -> int | None:
    value = request.query_params.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise RefusedError(422, "a number of characters is expected", where=name)
    return int(value)


def _socket(request: Request) -> str | None:
    """The socket of this user that a request came over."""
    return request.scope["server"][0] if is_local(request.scope) else None
