"""CustomResourceDefinitions from the specification (pure).

Kubernetes wants structural schemas: no references, no branches that add fields, nullable instead
of a null type. A union of objects therefore becomes one object with the fields of all; which
belong together is checked by the gateway and the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from ebbtide.spec import GROUP, DecodePoolSpec, RLHFJobSpec
from ebbtide.spec.observed import DecodePoolStatus, JobStatus
from ebbtide.spec.runtime import ClusterRLHFRuntimeSpec

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "enum", "default", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "maxProperties", "pattern", "required",
)  # fmt: skip
_EXACT = 2**53
"""The API server reads bounds as floats: above this they are rounded, and 2**63 - 1 overflows."""
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_HEADER = "# Generated from ebbtide/spec by `make generate`; do not edit.\n"

_LISTS: Mapping[str, Schema] = {
    name: {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    for name, key in (("conditions", "type"), ("roles", "name"), ("prices", "pool"))
} | {"release": {"x-kubernetes-list-type": "set"}}
"""Lists whose items are told apart: none is there twice, and two writers can each keep their own."""


CATEGORY = "ebbtide"
"""`kubectl get ebbtide` lists all kinds. Not rlhf: kubectl takes a category before a short name."""


class Rule(NamedTuple):
    """A CEL rule of a definition; `field` is where a violation is shown."""

    rule: str
    message: str
    field: str = ""


JOB_RULES = (
    Rule(
        "self.algorithm.type in ['sft', 'dpo', 'reward-model'] || has(self.recorded)"
        " || has(self.reward)",
        "reward is required but for sft, dpo and reward-model, or with recorded",
    ),
    Rule(
        "!has(self.recorded) || !(self.algorithm.type in ['sft', 'dpo', 'reward-model'])",
        "recorded is not for algorithm.type sft, dpo or reward-model: remove it",
        ".recorded",
    ),
    Rule(
        "!has(self.recorded) || !has(self.dataset.eval)",
        "dataset.eval is not for a job with recorded: remove it",
        ".dataset",
    ),
    Rule(
        "!(self.algorithm.type in ['sft', 'dpo', 'reward-model']) || !has(self.dataset.eval)",
        "dataset.eval is not for algorithm.type sft, dpo or reward-model: remove it",
        ".dataset",
    ),
    Rule(
        "self.mode != 'rollout-only' || (!has(self.recorded)"
        " && !(self.algorithm.type in ['sft', 'dpo', 'reward-model']))",
        "mode rollout-only is for jobs that sample: remove it",
    ),
    Rule(
        "self.mode != 'rollout-only' || !has(self.training.lora)",
        "training.lora is not for mode rollout-only, which learns nothing: remove it",
        ".training",
    ),
    Rule(
        "!has(self.budget) || self.prices.size() > 0",
        "budget needs prices: add prices[] or remove budget",
    ),
    Rule(
        "self.decode.minReplicas <= self.decode.replicas"
        " && self.decode.replicas <= self.decode.maxReplicas",
        "decode.replicas must lie between minReplicas and maxReplicas",
        ".decode",
    ),
    Rule(
        "self.prefill.mode != 'service' || self.decode.engine == 'torch'",
        "prefill.mode service needs decode.engine torch: no other has KV",
        ".prefill",
    ),
    Rule(
        "!self.model.uri.matches('^[a-z0-9+.-]+://[^/]*@')",
        "model.uri must hold no credentials: name a secret",
        ".model",
    ),
    Rule("self.mode == oldSelf.mode", "mode cannot be changed: make a new job", ".mode"),
    Rule("self.model == oldSelf.model", "model cannot be changed: make a new job", ".model"),
    Rule(
        "self.dataset == oldSelf.dataset", "dataset cannot be changed: make a new job", ".dataset"
    ),
    Rule(
        "self.algorithm.type == oldSelf.algorithm.type",
        "algorithm.type cannot be changed: make a new job",
        ".algorithm",
    ),
    Rule(
        "self.learner.ranks == oldSelf.learner.ranks || oldSelf.suspend",
        "learner.ranks can be changed only while the job is suspended",
        ".learner",
    ),
    Rule(
        "has(self.runtimeRef) == has(oldSelf.runtimeRef)"
        " && (!has(self.runtimeRef) || self.runtimeRef == oldSelf.runtimeRef)",
        "runtimeRef cannot be changed: make a new job",
        ".runtimeRef",
    ),
    Rule(
        "has(self.recorded) == has(oldSelf.recorded)"
        " && (!has(self.recorded) || self.recorded == oldSelf.recorded)",
        "recorded cannot be changed: make a new job",
        ".recorded",
    ),
)
POOL_RULES = (Rule("self.job == oldSelf.job", "job cannot be changed", ".job"),)
NAME_RULE = Rule("self.metadata.name.size() <= 40", "metadata.name has at most 40 characters")
_JOB_COLUMNS = (
    ("State", "string", ".status.phase"),
    ("Why", "string", ".status.reason"),
    ("Step", "integer", ".status.progress.step"),
    ("Ready", "integer", ".status.roles[?(@.name=='decode')].ready"),
    ("Decode", "integer", ".status.roles[?(@.name=='decode')].desired"),
    ("Cost", "number", ".status.cost.accrued"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_JOB_WIDE = (
    ("Steps", "integer", ".spec.training.totalSteps"),
    ("Policy", "integer", ".status.policy.version"),
    ("Attempt", "integer", ".status.attempt"),
    ("Restarts", "integer", ".status.restarts"),
    ("Currency", "string", ".status.cost.currency"),
)
_POOL_COLUMNS = (
    ("Job", "string", ".spec.job"),
    ("Wanted", "integer", ".spec.replicas"),
    ("Ready", "integer", ".status.readyReplicas"),
    ("Pending", "integer", ".status.pendingReplicas"),
    ("Draining", "integer", ".status.drainingReplicas"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


_RUNTIME_COLUMNS = (
    ("Image", "string", ".spec.image"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def job_crd() -> str:
    """YAML of the RLHFJob definition."""
    spec = _with_lists(structural(RLHFJobSpec.model_json_schema())) | _rules(JOB_RULES)
    names = {"kind": "RLHFJob", "plural": "rlhfjobs", "singular": "rlhfjob", "shortNames": ["rlhf"]}
    columns = [*_columns(_JOB_COLUMNS), *_columns(_JOB_WIDE, priority=1)]
    return _crd(names, (spec, status_schema(JobStatus)), columns, {"status": {}})


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
    spec = _with_lists(structural(DecodePoolSpec.model_json_schema())) | _rules(POOL_RULES)
    parts = (spec, status_schema(DecodePoolStatus))
    return _crd(names, parts, _columns(_POOL_COLUMNS), {"status": {}, "scale": scale})


def runtime_crd() -> str:
    """YAML of the ClusterRLHFRuntime definition: of no namespace, and without a status."""
    names = {
        "kind": "ClusterRLHFRuntime",
        "plural": "clusterrlhfruntimes",
        "singular": "clusterrlhfruntime",
        "shortNames": ["rlhfrt"],
    }
    spec = structural(ClusterRLHFRuntimeSpec.model_json_schema())
    columns = _columns(_RUNTIME_COLUMNS)
    return _crd(names, (spec, None), columns, {}, scope="Cluster")


def status_schema(model: type[BaseModel]) -> Schema:
    """Of a status: no default is written into what only its writers may fill."""
    return _with_lists(_without_defaults(structural(model.model_json_schema())))


def _with_lists(schema: Schema) -> Schema:
    parts = schema["properties"].items()
    return {**schema, "properties": {n: {**part, **_LISTS.get(n, {})} for n, part in parts}}


def _without_defaults(schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in plain:
        parts = plain["properties"].items()
        plain["properties"] = {name: _without_defaults(part) for name, part in parts}
    for key in ("items", "additionalProperties"):
        if key in plain:
            plain[key] = _without_defaults(plain[key])
    return plain


def _rules(rules: Sequence[Rule]) -> Schema:
    return {
        "x-kubernetes-validations": [
            {"rule": r.rule, "message": r.message} | ({"fieldPath": r.field} if r.field else {})
            for r in rules
        ]
    }


def _columns(columns: Sequence[tuple[str, str, str]], *, priority: int = 0) -> list[dict[str, Any]]:
    wide = {"priority": priority} if priority else {}
    return [{"name": n, "type": kind, "jsonPath": path, **wide} for n, kind, path in columns]


def _crd(
    names: Mapping[str, Any],
    parts: tuple[Schema, Schema | None],
    columns: Sequence[Mapping[str, Any]],
    subresources: Mapping[str, Any],
    *,
    scope: str = "Namespaced",
) -> str:
    spec, status = parts
    whole = {
        "type": "object",
        "description": spec.get("description", ""),
        "required": ["spec"],
        "properties": {"spec": spec} | ({"status": status} if status else {}),
        **_rules((NAME_RULE,)),
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": dict(subresources),
        "additionalPrinterColumns": [dict(column) for column in columns],
        "schema": {"openAPIV3Schema": whole},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {**names, "categories": [CATEGORY]},
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
    if found.get("maximum", 0) > _EXACT:
        del found["maximum"]
        found["format"] = "int64"
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
    elif schema.get("additionalProperties"):
        found |= _map_values(schema["additionalProperties"], defs)
    return found


def _defaulted(field: Schema, *, needed: bool) -> Schema:
    """The API server fills defaults only into objects that exist: give these an empty one."""
    optional = not needed and "properties" in field and not field.get("required")
    return {**field, "default": {}} if optional and not field.get("nullable") else field


def _map_values(values: Mapping[str, Any] | bool, defs: Mapping[str, Any]) -> Schema:
    if isinstance(values, bool) or "anyOf" in values:  # anything, or scalars of several types
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
