"""Generated files are what the code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebbtide.generate.files import generated
from services.gateway.app.server import openapi

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "content"), generated().items())
def test_a_generated_file_is_current(name: str, content: str) -> None:
    assert (ROOT / name).read_text("utf-8") == content, "run `make generate`"


def test_the_openapi_document_is_current() -> None:
    assert (ROOT / "docs/api/openapi.json").read_text("utf-8") == openapi(), "run `make generate`"


def test_every_operation_has_a_summary_and_an_error_it_can_answer_with() -> None:
    document = json.loads(openapi())
    operations = [o for path in document["paths"].values() for o in path.values()]
    assert len(operations) == 21
    for operation in operations:
        assert operation["description"], operation["operationId"]
        assert {"401", "429"} <= set(operation["responses"]), operation["operationId"]


def test_every_field_of_the_job_is_on_its_page() -> None:
    page = (ROOT / "docs/job.md").read_text("utf-8")
    schema = json.loads((ROOT / "docs/api/rlhfjob.schema.json").read_text("utf-8"))
    names = {name for model in schema["$defs"].values() for name in model.get("properties", {})}
    assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []


def test_every_field_of_the_job_has_a_description() -> None:
    schema = json.loads((ROOT / "docs/api/rlhfjob.schema.json").read_text("utf-8"))
    bare = [
        f"{model}.{name}"
        for model, fields in schema["$defs"].items()
        for name, field in fields.get("properties", {}).items()
        if "description" not in field
    ]
    assert bare == []
