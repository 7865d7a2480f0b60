"""What can be asked over HTTP: the table of routes, and the description that is made from it and the bodies."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

import ragidx
from ragidx.pipelines.serve import bodies

_EVERY = (400, 401, 403, 421, 500)  # statuses that each route can have
_BODY = (408, 413, 415, 422)
_LENGTH = {"minLength": 1, "maxLength": bodies.MAX_ID}
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", **_LENGTH}}
_INDEX = {"name": "index", "in": "query", "schema": {"type": "string"}, "description": "Which, of several."}
_RANGE = [
    {"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}}
    for name in ("start", "end")
]


@dataclass(frozen=True)
class Route:
    """One thing that the service does.

    Attributes:
        method, path: method and path of the request.
        summary: one line for the description of the interface.
        do: the method of `Handlers` that does it.
        takes, gives: types of the bodies of the request and of the answer.
        is_work: whether the request takes a place in the queue, and has a deadline.
        faults: statuses above 400 that it can have, beside those of every route.
    """

    method: str
    path: str
    summary: str
    do: str
    takes: type[BaseModel] | None = None
    gives: type[BaseModel] | None = None
    is_work: bool = True
    faults: tuple[int, ...] = (404, 422, 503)


ROUTES = (
    Route("POST", "/v1/search", "Ask a question.", "search", bodies.Search, bodies.Answer),
    Route("POST", "/v1/search:batch", "Ask questions.", "search_batch", bodies.SearchBatch, bodies.Answers),
    Route("POST", "/v1/vector", "Search by vectors.", "vector", bodies.VectorSearch, bodies.Answers),
    Route("POST", "/v1/embeddings", "Encode texts.", "embeddings", bodies.Embed, bodies.Embeddings),
    Route("GET", "/v1/documents/{id}", "Read a document.", "read", None, bodies.DocumentOut),
    Route("PUT", "/v1/documents/{id}", "Add or replace a document.", "put", bodies.DocumentIn, bodies.Changed),
    Route("DELETE", "/v1/documents/{id}", "Delete a document.", "delete", None, bodies.Changed),
    Route("GET", "/v1/info", "What is served.", "info", None, bodies.Info, False, ()),
    Route("GET", "/healthz", "Whether the process answers.", "healthz", None, bodies.Health, False, ()),
    Route("GET", "/readyz", "Whether each index is open.", "readyz", None, bodies.Health, False, (503,)),
    Route("GET", "/metrics", "Counters, for Prometheus.", "metrics_text", None, None, False, ()),
    Route("GET", "/openapi.json", "This description.", "openapi", None, None, False, ()),
)


@functools.cache
def description() -> dict[str, Any]:
    """OpenAPI 3.1 of all routes."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(bodies.FaultBody, "serialization")]
    for route in ROUTES:
        models += [(route.takes, "validation")] if route.takes else []
        models += [(route.gives, "serialization")] if route.gives else []
    schemas = models_json_schema(list(dict.fromkeys(models)), ref_template="#/components/schemas/{model}")[1]["$defs"]
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ragidx", "version": ragidx.__version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    statuses = {*_EVERY, *route.faults, *(_BODY if route.takes else ())}
    answers: dict[str, Any] = {
        str(status): {"description": HTTPStatus(status).phrase, "content": _json(bodies.FaultBody)}
        for status in sorted(statuses)
    }
    if route.path == "/readyz":
        answers["503"]["content"] = _json(bodies.Health)
    content = {"text/plain": {"schema": {"type": "string"}}} if route.path == "/metrics" else _json(route.gives)
    operation: dict[str, Any] = {
        "operationId": route.do,
        "summary": route.summary,
        "responses": {"200": {"description": "OK", "content": content}} | answers,
    }
    if route.takes:
        operation["requestBody"] = {"required": True, "content": _json(route.takes)}
    if "{id}" in route.path:
        operation["parameters"] = [_ID, _INDEX, *(_RANGE if route.method == "GET" else ())]
    return operation


def _json(model: type[BaseModel] | None) -> dict[str, Any]:
    schema = {"type": "object"} if model is None else {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"application/json": {"schema": schema}}
