"""Routes over the job object: submit, validate, list, get, cancel, suspend, resume, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import JSONResponse, Response

from ebbtide.api import Job, JobList, JobState, Validation
from ebbtide.errors import Conflict, NotFound
from ebbtide.ports import Resource
from ebbtide.spec import RLHFJob
from ebbtide.spec.check import Fault, Invalid
from services.gateway.app.bodies import read_document
from services.gateway.app.documents import DOCUMENT_BODY, add, answers
from services.gateway.app.endings import ending
from services.gateway.app.estimates import Estimates
from services.gateway.app.parts import KIND, IfMatch, JobName, Parts, job_response, tenant
from services.gateway.app.preflight import Findings
from services.gateway.app.trials import refusals
from services.gateway.core import changes, listing, preconditions, submit
from services.gateway.core.problems import Problem
from services.gateway.core.views import job_view

Preflight = Callable[[RLHFJob], Findings]
PREFLIGHT_SECONDS = 10.0

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Required. The same key and payload get the first answer again.",
    ),
]


class JobRoutes:
    """Handlers; `preflight` looks at what the schema cannot know."""

    def __init__(self, *, parts: Parts, preflight: Preflight, estimates: Estimates) -> None:
        self._parts, self._estimates = parts, estimates
        self._preflight = preflight
        self._in_flight: set[tuple[str, str]] = set()

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        jobs, job = "/v1/jobs", "/v1/jobs/{name}"
        body = {"openapi_extra": DOCUMENT_BODY}
        written = (400, 413, 415, 422)
        add(router, "POST", jobs, self.submit_job, answers(201, Job, *written, 409), **body)
        add(
            router,
            "POST",
            f"{jobs}:validate",
            self.validate_job,
            answers(200, Validation, *written),
            **body,
        )
        add(router, "GET", jobs, self.list_jobs, answers(200, JobList, 400, 422))
        add(router, "GET", job, self.get_job, answers(200, Job, 304, 404, 422))
        changed = (400, 404, 409, 412, 422)
        add(router, "DELETE", job, self.delete_job, answers(204, None, *changed))
        for handler in (self.cancel_job, self.suspend_job, self.resume_job):
            verb = handler.__name__.partition("_")[0]
            add(router, "POST", f"{job}/{verb}", handler, answers(202, Job, *changed))

    async def submit_job(self, request: Request, idempotency_key: Key = None) -> Response:
        """Create a job from its document (JSON or YAML by Content-Type)."""
        key = submit.require_key(idempotency_key)
        claim = (tenant(request), key)
        if claim in self._in_flight:
            headers = {"Retry-After": "1"}
            raise Problem("in-flight", "Ask again for the first answer.", headers=headers)
        self._in_flight.add(claim)
        try:
            return await self._submit(request, key)
        finally:
            self._in_flight.discard(claim)

    async def _submit(self, request: Request, key: str) -> Response:
        namespace = self._parts.settings.namespace
        document = await read_document(request)
        submission = submit.prepare(document, tenant=tenant(request), key=key, namespace=namespace)
        if first := await self._first_answer(submission):
            return _replayed(first)
        await self._check(submission.job)
        try:
            created = await self._parts.cluster.create(submit.resource(submission))
        except Conflict:
            first = await self._parts.job(submission.name)
            if submit.is_replay(first, submission):
                return _replayed(first)
            raise _taken(first) from None
        answer = job_response(created, status=201)
        answer.headers["Location"] = f"/v1/jobs/{created.metadata.name}"
        return answer

    async def _first_answer(self, submission: submit.Submission) -> Resource | None:
        labels = {
            submit.KEY_LABEL: submission.key_hash,
            submit.TENANT_LABEL: submission.tenant,
        }
        cluster, namespace = self._parts.cluster, self._parts.settings.namespace
        found, _ = await cluster.list(KIND, namespace, labels)
        return next((job for job in found if submit.is_replay(job, submission)), None)

    async def _check(self, job: RLHFJob) -> Findings:
        try:
            async with asyncio.timeout(PREFLIGHT_SECONDS):
                findings = await asyncio.to_thread(self._preflight, job)
                if self._parts.trials and not findings.faults:
                    namespace = self._parts.settings.namespace
                    faults = await refusals(job, trials=self._parts.trials, namespace=namespace)
                    findings = msgspec.structs.replace(findings, faults=faults)
        except TimeoutError:
            raise Problem("unavailable", "Looking at what the job names took too long.") from None
        if findings.faults:
            raise Invalid(findings.faults)
        return findings

    async def validate_job(
        self,
        request: Request,
        estimate: Annotated[
            bool, Query(description="Also what the job would take and cost.")
        ] = False,
    ) -> Response:
        """Dry run: every fault at once, as a problem with `errors`; nothing is executed."""
        namespace = self._parts.settings.namespace
        document = await read_document(request)
        try:
            prepared = submit.prepare(
                document, tenant=tenant(request), key="validate", namespace=namespace
            )
        except Invalid as error:
            raise Problem("invalid", str(error), errors=error.faults) from None
        findings = await self._check(prepared.job)
        return JSONResponse(
            {
                "valid": True,
                "name": prepared.name,
                "warnings": [_fault_view(item) for item in findings.warnings],
                "estimate": await self._estimates.of(prepared.job) if estimate else None,
            }
        )

    async def list_jobs(
        self,
        state: Annotated[list[JobState] | None, Query(description="Only these states.")] = None,
        label: Annotated[
            list[str] | None, Query(description="Only with this label, key=value.")
        ] = None,
        after: Annotated[str | None, Query(max_length=512, description="Cursor.")] = None,
        limit: Annotated[int, Query(ge=1, le=100, description="At most so many.")] = 50,
    ) -> Response:
        """Jobs, newest first."""
        query = listing.Query(tuple(state or ()), listing.parse_labels(label or ()))
        namespace = self._parts.settings.namespace
        found, _ = await self._parts.cluster.list(KIND, namespace, dict(query.labels) or None)
        chosen, following = listing.page(found, query, after=after, limit=limit)
        return JSONResponse({"items": [job_view(job) for job in chosen], "next": following})

    async def get_job(
        self,
        name: JobName,
        if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
    ) -> Response:
        """One job. The ETag is its resource version."""
        job = await self._parts.job(name)
        version = job.metadata.resource_version
        if preconditions.unchanged(if_none_match, version):
            return Response(status_code=304, headers={"ETag": preconditions.etag(version)})
        return job_response(job, state=await ending(job, blobs=self._parts.blobs))

    async def cancel_job(self, name: JobName, if_match: IfMatch = None) -> Response:
        """Ask for the end of the job; it drains, then shows the state Cancelled."""
        return await self._change("cancel", name, if_match)

    async def suspend_job(self, name: JobName, if_match: IfMatch = None) -> Response:
        """Free every pod of the job after a checkpoint; `resume` goes on from there."""
        return await self._change("suspend", name, if_match)

    async def resume_job(self, name: JobName, if_match: IfMatch = None) -> Response:
        """Go on with a suspended job."""
        return await self._change("resume", name, if_match)

    async def _change(self, verb: str, name: str, if_match: str | None) -> Response:
        expect = preconditions.expected(if_match)
        job = await self._parts.job(name)
        _require_version(job, expect)
        patch = changes.patch_for(verb, job)
        if patch is not None:
            job = await self._patch(name, patch, expect)
        return job_response(job, status=202)

    async def _patch(self, name: str, patch: Any, expect: str | None) -> Resource:
        namespace = self._parts.settings.namespace
        try:
            return await self._parts.cluster.patch(KIND, namespace, name, patch, expect)
        except Conflict as error:
            raise Problem("precondition-failed", error.detail) from None

    async def delete_job(
        self,
        name: JobName,
        if_match: IfMatch = None,
        force: Annotated[bool, Query(description="Also a job that has not ended.")] = False,
    ) -> Response:
        """Remove the job object and all it owns; its blobs stay."""
        expect = preconditions.expected(if_match)
        job = await self._parts.job(name)
        _require_version(job, expect)
        changes.check_delete(job, force=force)
        namespace = self._parts.settings.namespace
        with suppress(NotFound):  # someone else deleted it since the look: it is gone
            await self._parts.cluster.delete(KIND, namespace, name, job.metadata.uid)
        return Response(status_code=204)


def _require_version(job: Resource, expect: str | None) -> None:
    version = job.metadata.resource_version
    if expect is not None and version != expect:
        raise Problem("precondition-failed", f"The job has version {version}, not {expect}.")


def _taken(other: Resource) -> Problem:
    name = other.metadata.name
    if other.metadata.deletion_timestamp is not None:
        going = f"Another job named {name} is on its way out: ask again when it is gone."
        return Problem("conflict", going, headers={"Retry-After": "2"})
    way = "choose another metadata.name, or delete that job first"
    return Problem("conflict", f"The name {name} is taken by another job: {way}.")


def _replayed(job: Resource) -> Response:
    answer = job_response(job, status=201)
    answer.headers["Location"] = f"/v1/jobs/{job.metadata.name}"
    answer.headers["Idempotent-Replayed"] = "true"
    return answer


def _fault_view(fault: Fault) -> dict[str, str]:
    return {"pointer": fault.pointer, "detail": fault.detail}
