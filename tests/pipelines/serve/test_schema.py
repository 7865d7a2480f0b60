"""Schemathesis asks all that the description of the interface allows, and more; and the description itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ragidx.pipelines.serve.interface import ROUTES, description

from .conftest import TOKEN, Running, make_index, running

schemathesis = pytest.importorskip("schemathesis", reason="the package schemathesis is not installed")
from schemathesis.generation.feedback import FeedbackSources  # noqa: E402
from schemathesis.pytest._test_builder import build_operation_test  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service that can do all."""
    with running({"docs": make_index(tmp_path_factory.mktemp("schema") / "docs")}, writable=True, token=TOKEN) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [(route.method, route.path) for route in ROUTES])
def test_the_interface_is_as_described(method: str, path: str, everything: Running) -> None:
    """Its cases take seconds to make: here, not where tests are collected, which each process does."""
    schema = schemathesis.openapi.from_dict(description())

    def check(case: Any) -> None:
        answer = case.call(base_url=everything.url, headers={"Authorization": f"Bearer {TOKEN}"})
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])
        is_valid = case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE and "{id}" not in path
        if is_valid and answer.status_code >= 400:
            # what no schema says: conditions, widths of vectors, ids and names that are there
            assert answer.json()["error"]["type"] in ("QueryError", "SpecError", "CorpusError"), answer.text

    build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=check,
        given_kwargs={},
        feedback=FeedbackSources(),
        explicit_settings=SETTINGS,
    )()


def test_every_route_is_described(served: Running) -> None:
    found = served.ask("GET", "/openapi.json").body
    assert {(method.upper(), path) for path, methods in found["paths"].items() for method in methods} == {
        (route.method, route.path) for route in ROUTES
    }
    assert found["components"]["schemas"]["Search"]["additionalProperties"] is False
