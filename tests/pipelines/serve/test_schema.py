"""Schemathesis asks all that the description of the interface allows, and more; and the description itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ragidx.pipelines.serve.interface import ROUTES, description

from .conftest import TOKEN, Running, make_index, running

schemathesis = pytest.importorskip("schemathesis", reason="the package schemathesis is not installed")
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

schema = schemathesis.openapi.from_dict(description())


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service that can do all."""
    with running({"docs": make_index(tmp_path_factory.mktemp("schema") / "docs")}, writable=True, token=TOKEN) as found:
        yield found


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_interface_is_as_described(case: Any, everything: Running) -> None:
    answer = case.call(base_url=everything.url, headers={"Authorization": f"Bearer {TOKEN}"})
    case.validate_response(answer, excluded_checks=[positive_data_acceptance])
    is_valid = case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE and "{id}" not in case.operation.path
    if is_valid and answer.status_code >= 400:
        # what no schema says: conditions, widths of vectors, ids and names that are there
        assert answer.json()["error"]["type"] in ("QueryError", "SpecError", "CorpusError"), answer.text


def test_every_route_is_described(served: Running) -> None:
    found = served.ask("GET", "/openapi.json").body
    assert {(method.upper(), path) for path, methods in found["paths"].items() for method in methods} == {
        (route.method, route.path) for route in ROUTES
    }
    assert found["components"]["schemas"]["Search"]["additionalProperties"] is False
