"""Requests made from the OpenAPI document, valid and broken: no answer is a 500 or undocumented.

The short form runs with the suite, the whole one by `make test-slow`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks as all_checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks as openapi_checks

from ebbtide.api import ProblemDocument
from ebbtide.spec import NAME_PATTERN
from tests.worlds.gateway import TOKEN, a_job, condition
from tests.worlds.serving import served

AUTH = {"Authorization": f"Bearer {TOKEN}"}
CHECKS = [
    all_checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
]
SHORT = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SHORT_BODIES = settings(SHORT, max_examples=60)
LONG = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


document = json.loads(Path("docs/api/openapi.json").read_text("utf-8"))
schema = schemathesis.openapi.from_dict(document)  # from_path reads JSON as YAML, in 10 s
# Making whole jobs from their schema takes minutes: the short form breaks a good one instead.
light = schema.exclude(path=["/v1/jobs", "/v1/jobs:validate"], method="POST")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(rate_per_second=1e6, rate_burst=1_000_000) as gateway:
        for name, kind in (("demo", "Running"), ("done", "Complete")):
            gateway.do(gateway.world.put_job(name, conditions=[condition(kind)]))
        yield gateway.url


def ask(case: Any, url: str) -> None:
    """Send the case, to a job that exists where its name could be one."""
    name = (case.path_parameters or {}).get("name")
    if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name):
        case.path_parameters["name"] = "demo" if len(name) % 2 else "done"
    case.call_and_validate(base_url=url, headers=AUTH, checks=CHECKS)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@st.composite
def broken_jobs(draw: st.DrawFn) -> Any:
    """A job document with one to three of its values replaced, removed or added to."""
    job: Any = a_job()
    for _ in range(draw(st.integers(1, 3))):
        places = list(_holders(job))
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[key] = draw(JUNK)
            case "remove":
                holder.pop(key)
            case _ if isinstance(holder, dict):
                holder[draw(st.text(max_size=10))] = draw(JUNK)
        if not any(_holders(job)):
            break
    return job


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _holders(inner)


def sent(url: str, path: str, body: bytes, media_type: str) -> httpx.Response:
    headers = {**AUTH, "Idempotency-Key": "k", "Content-Type": media_type}
    with httpx.Client(verify=False) as client:  # noqa: S501 - loading certificates takes longest
        return client.post(f"{url}{path}", content=body, headers=headers)


@SHORT_BODIES
@given(broken_jobs(), st.sampled_from(["/v1/jobs", "/v1/jobs:validate"]))
def test_no_broken_job_breaks_the_gateway(url: str, job: Any, path: str) -> None:
    answer = sent(url, path, json.dumps(job).encode(), "application/json")
    assert answer.status_code in (200, 201, 400, 409, 422), answer.text
    if answer.is_error:
        assert ProblemDocument.model_validate_json(answer.content).status == answer.status_code


@SHORT_BODIES
@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/yaml"]))
def test_no_bytes_break_the_gateway(url: str, body: bytes, media_type: str) -> None:
    answer = sent(url, "/v1/jobs:validate", body, media_type)
    assert answer.status_code in (400, 422), answer.text


@light.parametrize()
@SHORT
def test_no_request_breaks_the_gateway(case: Any, url: str) -> None:
    ask(case, url)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_request_of_many_breaks_the_gateway(url: str) -> None:
    for found in schema.get_all_operations():  # not parametrized: that alone takes 20 s
        assert isinstance(found, Ok)

        @LONG
        @given(found.ok().as_strategy())
        def run(case: Any) -> None:
            ask(case, url)

        run()
