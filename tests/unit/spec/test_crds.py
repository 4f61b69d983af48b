from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ebbtide.generate.crds import decode_pool_crd, job_crd, runtime_crd, structural
from ebbtide.spec import RLHFJobSpec
from ebbtide.spec.check import check, dump
from tests.worlds.gateway import a_job

FORBIDDEN = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "title", "discriminator"}


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below `schema`, with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from schemas(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from schemas(schema[key], f"{path}[]")


def spec_schema() -> dict[str, Any]:
    return structural(RLHFJobSpec.model_json_schema())


def test_the_schema_is_structural() -> None:
    for path, schema in schemas(spec_schema()):
        assert FORBIDDEN & set(schema) == set(), path
        assert "type" in schema, path
        assert not ("properties" in schema and "additionalProperties" in schema), path


def test_exclusive_bounds_are_written_as_openapi_3_0_wants_them() -> None:
    found = dict(schemas(spec_schema()))[".training.temperature"]
    assert (found["minimum"], found["exclusiveMinimum"]) == (0, True)


def test_every_list_and_free_text_is_bounded() -> None:
    for path, schema in schemas(spec_schema()):
        if schema["type"] == "array":
            assert "maxItems" in schema, path


def test_a_union_has_the_fields_of_all_its_variants() -> None:
    train = dict(schemas(spec_schema()))[".dataset.train"]
    assert {"uri", "promptField", "task", "size"} <= set(train["properties"])
    assert train["properties"]["type"]["enum"] == ["jsonl", "parquet", "hf", "reasoning_gym"]
    assert train["required"] == ["type"]


def test_a_field_that_variants_fill_differently_keeps_its_own_fields() -> None:
    kl = dict(schemas(spec_schema()))[".algorithm.kl"]
    assert {"place", "estimator", "corrected", "target", "rate"} == set(kl["properties"])
    assert "default" not in kl["properties"]["place"]


def test_an_optional_object_is_there_to_be_filled_with_defaults() -> None:
    found = dict(schemas(spec_schema()))
    assert found[".decode"]["default"] == {}
    assert "default" not in found[".model"]
    assert found[".budget"]["nullable"] is True


def test_every_field_of_a_dumped_job_is_in_the_schema() -> None:
    def known(value: Any, schema: dict[str, Any], path: str) -> None:
        if isinstance(value, dict) and "properties" in schema:
            for name, inner in value.items():
                assert name in schema["properties"], f"{path}.{name}"
                known(inner, schema["properties"][name], f"{path}.{name}")
        for number, inner in enumerate(value if isinstance(value, list) else ()):
            known(inner, schema["items"], f"{path}[{number}]")

    known(dump(check(a_job()))["spec"], spec_schema(), "spec")


def test_the_definitions_are_named_as_kubernetes_wants() -> None:
    for text in (job_crd(), runtime_crd(), decode_pool_crd()):
        found = yaml.safe_load(text)
        plural, group = found["spec"]["names"]["plural"], found["spec"]["group"]
        assert found["metadata"]["name"] == f"{plural}.{group}"
    scale = found["spec"]["versions"][0]["subresources"]["scale"]
    assert scale["specReplicasPath"] == ".spec.replicas"
