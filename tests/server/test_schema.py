"""The OpenAPI schema, fuzzed by schemathesis: no 5xx, and every answer is what the schema says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from elias.model.model import Model
from helpers.serving import Running, running

TOKEN = "the-token-of-the-fuzzer"
# Valid JSON that makes no sense (an unknown label, two ids for one text) is refused with 422: a schema cannot say so.
LEFT_OUT = [positive_data_acceptance]
OPERATIONS = [
    "POST /v1/predict",
    "POST /v1/paths",
    "POST /v1/feedback",
    "POST /v1/reload",
    "GET /v1/models",
    "GET /v1/model",
    "GET /v1/labels",
    "GET /v1/labels/{label}",
    "GET /v1/clusters/{cluster}",
    "GET /v1/index",
    "GET /v1/projects",
    "GET /v1/projects/{project_id}",
    "POST /v1/projects/{project_id}/suggest",
    "POST /v1/projects/{project_id}/suggest-batch",
    "GET /health",
    "GET /ready",
    "GET /metrics",
]


@pytest.fixture(scope="module")
def target(tiny_model: Model, tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("feedback") / "feedback.jsonl"
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, token=TOKEN, feedback=file) as found:
        yield found


@pytest.fixture(scope="module")
def operations(target: Running) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    return {result.ok().label: result.ok() for result in schema.get_all_operations()}


def test_every_operation_is_fuzzed(operations: dict[str, Any]) -> None:
    assert set(operations) == set(OPERATIONS)


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_the_schema_holds(operations: dict[str, Any], label: str, mode: GenerationMode) -> None:
    fuzz(operations[label], mode, examples=12)


@pytest.mark.slow
@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_the_schema_holds_for_long(operations: dict[str, Any], label: str, mode: GenerationMode) -> None:
    fuzz(operations[label], mode, examples=500)


def fuzz(operation: Any, mode: GenerationMode, examples: int) -> None:
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.path_parameters or operation.body):
        pytest.skip("it takes no input that could be invalid")

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    def attempt(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and "project_id" in (case.path_parameters or {}):
            case.path_parameters["project_id"] = "tiny"  # a random one would only ever be answered with 404
        answer = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code < 500
        case.validate_response(answer, excluded_checks=LEFT_OUT)

    attempt()
