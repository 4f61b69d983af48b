"""docs/job.md: every field of a job with type, default, bounds and meaning (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ebbtide.spec import RLHFJob

_HEAD = """# The job: every field

Generated from `ebbtide/spec` by `make generate`; change the fields there, not this page.

A job is one YAML or JSON document, the same text for `ebbtide submit`, the REST API and
`kubectl`. A field that is not listed here is an error. `required` fields have no default.
"""

_BOUNDS = (
    ("minimum", ">= {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "<= {}"),
    ("exclusiveMaximum", "< {}"),
    ("minLength", ">= {} characters"),
    ("maxLength", "<= {} characters"),
    ("minItems", ">= {} items"),
    ("maxItems", "<= {} items"),
    ("maxProperties", "<= {} entries"),
    ("pattern", "matches `{}`"),
)

Schema = Mapping[str, Any]


def job_page() -> str:
    """The page's text."""
    schema = RLHFJob.model_json_schema()
    parts = [_HEAD, *_sections("", schema, schema["$defs"], {})]
    return "\n".join(parts).rstrip() + "\n"


def _sections(path: str, schema: Schema, defs: Schema, shown: dict[str, str]) -> Iterator[str]:
    """Of `schema` and of what is in it; `shown`: where a kind of object was written out before."""
    first = shown.setdefault(schema["title"], path)
    if first != path:
        yield f"## `{path}`\n\nAs `{first}`.\n"
        return
    yield _section(path, schema, defs)
    for name, field in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        for variant, suffix in _objects(field, defs):
            yield from _sections(inner + suffix, variant, defs, shown)


def _section(path: str, schema: Schema, defs: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {_type(field, defs)} | {_default(name, field, required)} "
        f"| {_bounds(field, defs)} | {field.get('description', '')} |"
        for name, field in schema["properties"].items()
    ]
    about = " ".join(schema.get("description", "").split())
    head = "| field | type | default | bounds | meaning |\n| --- | --- | --- | --- | --- |"
    return f"## `{path or 'the document'}`\n\n{about}\n\n{head}\n" + "\n".join(rows) + "\n"


def _objects(field: Schema, defs: Schema) -> Iterator[tuple[Schema, str]]:
    """The objects that a field can hold, each with what its path gets: [] or its variant."""
    branches = [branch for branch in _branches(field) if branch.get("type") != "null"]
    for branch in branches:
        if "items" in branch:
            yield from (
                (schema, f"[]{suffix}") for schema, suffix in _objects(branch["items"], defs)
            )
        elif "$ref" in branch:
            schema = _resolve(branch, defs)
            kind = schema.get("properties", {}).get("type", {})
            names = [kind["const"]] if "const" in kind else kind.get("enum", [])
            yield schema, f" ({', '.join(names)})" if names else ""


def _branches(field: Schema) -> list[Schema]:
    found: list[Schema] = []
    for branch in field.get("anyOf") or field.get("oneOf") or [field]:
        found += _branches(branch) if ("anyOf" in branch or "oneOf" in branch) else [branch]
    return found


def _resolve(schema: Schema, defs: Schema) -> Schema:
    found: Schema = defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _type(field: Schema, defs: Schema) -> str:
    words = []
    for branch in _branches(field):
        schema = _resolve(branch, defs)
        if "const" in schema or "enum" in schema:
            words += [f"`{value}`" for value in schema.get("enum", [schema.get("const")])]
        elif schema.get("type") == "array":
            words.append(f"list of {_type(schema['items'], defs)}")
        elif schema.get("type") == "object" and "properties" not in schema:
            values = schema.get("additionalProperties", {})
            words.append("object" if values is True else f"map to {_type(values, defs)}")
        else:
            words.append(str(schema.get("type", "any")))
    return " or ".join(dict.fromkeys(words))


def _default(name: str, field: Schema, required: Any) -> str:
    if name in required:
        return "required"
    if "default" in field:
        value = field["default"]
        return "unset" if value is None else f"`{json.dumps(value)}`"
    return "its own defaults"


def _bounds(field: Schema, defs: Schema) -> str:
    words: list[str] = []
    for branch in _branches(field):
        schema = {**_resolve(branch, defs), **branch}
        words += [text.format(_escape(schema[key])) for key, text in _BOUNDS if key in schema]
    return ", ".join(dict.fromkeys(words))


def _escape(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace("|", "\\|")
