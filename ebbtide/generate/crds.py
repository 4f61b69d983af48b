"""CustomResourceDefinitions from the specification (pure).

Kubernetes wants structural schemas: no references, no branches that add fields, nullable instead
of a null type. A union of objects therefore becomes one object with the fields of all; which
belong together is checked by the gateway and the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ebbtide.spec import GROUP, DecodePoolSpec, RLHFJobSpec

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "enum", "default", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "maxProperties", "pattern", "required",
)  # fmt: skip
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_HEADER = "# Generated from ebbtide/spec by `make generate`; do not edit.\n"

_JOB_RULES = (
    ("self.algorithm.type == 'sft' || has(self.reward)", "reward is required but for sft"),
    ("!has(self.budget) || self.prices.size() > 0", "budget needs prices"),
    (
        (
            "self.decode.minReplicas <= self.decode.replicas"
            " && self.decode.replicas <= self.decode.maxReplicas"
        ),
        "decode.replicas must lie between minReplicas and maxReplicas",
    ),
)
_JOB_COLUMNS = (
    ("State", "string", ".status.phase"),
    ("Step", "integer", ".status.progress.step"),
    ("Cost", "number", ".status.cost.accrued"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_POOL_COLUMNS = (
    ("Desired", "integer", ".spec.replicas"),
    ("Ready", "integer", ".status.readyReplicas"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def job_crd() -> str:
    """YAML of the RLHFJob definition."""
    spec = structural(RLHFJobSpec.model_json_schema())
    spec["x-kubernetes-validations"] = [{"rule": r, "message": m} for r, m in _JOB_RULES]
    names = {"kind": "RLHFJob", "plural": "rlhfjobs", "singular": "rlhfjob", "shortNames": ["rlhf"]}
    return _crd(names, spec, _JOB_COLUMNS, {"status": {}})


def decode_pool_crd() -> str:
    """YAML of the DecodePool definition, with the scale subresource."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    names = {
        "kind": "DecodePool",
        "plural": "decodepools",
        "singular": "decodepool",
        "shortNames": ["dpool"],
    }
    spec = structural(DecodePoolSpec.model_json_schema())
    return _crd(names, spec, _POOL_COLUMNS, {"status": {}, "scale": scale})


def _crd(
    names: Mapping[str, Any],
    spec: Schema,
    columns: Sequence[tuple[str, str, str]],
    subresources: Mapping[str, Any],
) -> str:
    whole = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": spec, "status": dict(_OPEN)},
        "x-kubernetes-validations": [
            {"rule": "self.metadata.name.size() <= 40", "message": "at most 40 characters"}
        ],
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": dict(subresources),
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns
        ],
        "schema": {"openAPIV3Schema": whole},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {**names, "categories": ["rlhf"]},
            "versions": [version],
        },
    }
    return _HEADER + yaml.safe_dump(definition, sort_keys=False, width=100, allow_unicode=True)


def structural(schema: Mapping[str, Any]) -> Schema:
    """A pydantic JSON schema as a structural schema."""
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Schema:
    if "$ref" in schema:
        target = defs[schema["$ref"].rpartition("/")[2]]
        return _convert({**target, **{k: v for k, v in schema.items() if k != "$ref"}}, defs)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return _union(schema, branches, defs)
    found = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in schema:
            found |= {bound: schema[exclusive], exclusive: True}
    if "items" in schema:
        found["items"] = _convert(schema["items"], defs)
    if "properties" in schema:
        needed = schema.get("required", ())
        found["properties"] = {
            name: _defaulted(_convert(part, defs), needed=name in needed)
            for name, part in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), Mapping):
        found |= _map_values(schema["additionalProperties"], defs)
    return found


def _defaulted(field: Schema, *, needed: bool) -> Schema:
    """The API server fills defaults only into objects that exist: give these an empty one."""
    optional = not needed and "properties" in field and not field.get("required")
    return {**field, "default": {}} if optional and not field.get("nullable") else field


def _map_values(values: Mapping[str, Any], defs: Mapping[str, Any]) -> Schema:
    if "anyOf" in values:  # scalars of several types
        return dict(_OPEN)
    return {"additionalProperties": _convert(values, defs)}


def _union(schema: Mapping[str, Any], branches: Sequence[Any], defs: Mapping[str, Any]) -> Schema:
    some = [_convert(branch, defs) for branch in branches if branch.get("type") != "null"]
    found = some[0] if len(some) == 1 else _merged(some)
    if len(some) < len(branches):
        found["nullable"] = True
    own = {key: schema[key] for key in ("description", "default") if key in schema}
    if own.get("default", ...) is None:
        del own["default"]
    return {**found, **own}


def _merged(variants: Sequence[Schema]) -> Schema:
    """One object with the fields of all variants; required is what all require."""
    fields: dict[str, Schema] = {}
    for variant in variants:
        for name, field in variant.get("properties", {}).items():
            fields[name] = _common(fields[name], field) if name in fields else dict(field)
            fields[name].pop("default", None)  # a default of one variant is wrong for another
    needed = set.intersection(*(set(variant.get("required", ())) for variant in variants))
    found: Schema = {"type": "object", "required": sorted(needed), "properties": fields}
    return found if needed else {k: v for k, v in found.items() if k != "required"}


def _common(one: Schema, other: Schema) -> Schema:
    """What holds for both; enums and fields are united."""
    kept = {key: value for key, value in one.items() if other.get(key) == value}
    if "enum" in one and "enum" in other:
        kept["enum"] = [*one["enum"], *(v for v in other["enum"] if v not in one["enum"])]
        kept.setdefault("description", "One of the variants.")
    if "properties" in one and "properties" in other:
        kept |= _merged([one, other])
    return kept
