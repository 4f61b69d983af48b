"""Routes over what a job left in the blob store: step reports, checkpoints, samples."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query
from starlette.responses import JSONResponse, Response

from ebbtide import paths
from ebbtide.api import CheckpointList, Metrics, SampleList, SampleWhole, StepDecision
from ebbtide.errors import NotFound
from ebbtide.ports import Resource
from ebbtide.wire import BatchManifest, Manifest, Ref, Rollout, SampleKey, decode
from services.gateway.app.documents import add, answers
from services.gateway.app.histories import Histories
from services.gateway.app.parts import JobName, Parts
from services.gateway.app.texts import Tokenizers
from services.gateway.core import samples
from services.gateway.core.history import StepView

_AHEAD = 16

Place = Annotated[int, Path(ge=0, le=2**31)]
Limit = Annotated[int, Query(ge=1, le=100, description="At most so many.")]


class ArtifactRoutes:
    """Handlers; all of them only read."""

    def __init__(self, *, parts: Parts, histories: Histories) -> None:
        self._parts, self._histories = parts, histories
        self._tokenizers = Tokenizers(blobs=parts.blobs)

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        decided = answers(200, StepDecision, 400, 404, 422)
        path = "/v1/jobs/{name}/steps/{step}/decision"
        add(router, "GET", path, self.get_decision, decided)
        one = answers(200, SampleWhole, 404, 422)
        path = "/v1/jobs/{name}/samples/{step}/{group}/{index}"
        add(router, "GET", path, self.get_sample, one)
        for handler, model in (
            (self.get_metrics, Metrics),
            (self.get_checkpoints, CheckpointList),
            (self.get_samples, SampleList),
        ):
            noun = handler.__name__.partition("_")[2]
            add(
                router,
                "GET",
                f"/v1/jobs/{{name}}/{noun}",
                handler,
                answers(200, model, 400, 404, 422),
            )

    async def get_metrics(
        self,
        name: JobName,
        after: Annotated[
            int, Query(ge=-1, le=2**31, description="Only steps after this one.")
        ] = -1,
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
    ) -> Response:
        """Step reports in step order."""
        job = await self._parts.job(name)
        found = await self._parts.blobs.list(paths.step_reports(job.metadata.uid))
        steps = [path for path in found if _number(path) > after]
        chosen = steps[:limit]
        items = [msgspec.json.decode(data) for data in await self._read_all(chosen)]
        following = str(_number(chosen[-1])) if len(steps) > limit else None
        return JSONResponse({"items": items, "next": following})

    async def get_decision(
        self,
        name: JobName,
        step: Annotated[int, Path(ge=0, le=2**31, description="Number of the step.")],
    ) -> Response:
        """How a committed step was laid out and why, and what it came to."""
        job = await self._parts.job(name)
        try:
            data = await self._parts.blobs.get(paths.step_report(job.metadata.uid, step))
        except NotFound:
            raise NotFound(f"step {step} is not committed yet", field="step") from None
        report = msgspec.json.decode(data)
        if report.get("decision") is None:
            raise NotFound(f"step {step} decoded nothing: there was no decision", field="step")
        currency = report["cost"]["currency"]
        found = {"step": step, "currency": currency, "decision": report["decision"]}
        found |= {"migration": moved} if (moved := report.get("migration")) else {}
        return JSONResponse(found)

    async def get_checkpoints(self, name: JobName) -> Response:
        """Committed checkpoints that retention has kept, newest first."""
        uid = (await self._parts.job(name)).metadata.uid
        refs = (await self._histories.of(uid)).checkpoints
        items: list[dict[str, Any]] = []
        for ref in reversed(refs.values()):
            try:
                data = await self._parts.blobs.fetch(ref)
            except NotFound:
                continue
            items.append(
                _checkpoint_view(ref, decode(data, Manifest), self._parts.settings.blobs_url)
            )
        return JSONResponse({"items": items})

    async def get_samples(
        self,
        name: JobName,
        step: Annotated[int | None, Query(ge=0, le=2**31, description="Default: the last.")] = None,
        purpose: Annotated[Literal["train", "eval"] | None, Query()] = None,
        after: Annotated[str | None, Query(max_length=512, description="Cursor.")] = None,
        limit: Limit = 20,
    ) -> Response:
        """Accepted samples of one step in key order, with texts, scores and versions."""
        job = await self._parts.job(name)
        uid = job.metadata.uid
        history = await self._histories.of(uid)
        chosen_step = max(history.steps, default=0) if step is None else step
        view = await self._histories.step(uid, chosen_step)
        keys, following = samples.page(
            view.keys(purpose), step=chosen_step, after=after, limit=limit
        )
        advantages = await self._advantages(history.frozen.get(chosen_step))
        rollouts = await self._rollouts(view, keys)
        items = await self._sample_views(job, view, rollouts, advantages)
        return JSONResponse({"step": chosen_step, "items": items, "next": following})

    async def get_sample(
        self,
        name: JobName,
        step: Place,
        group: Place,
        index: Place,
        turn: Annotated[int, Query(ge=0, le=2**31)] = 0,
    ) -> Response:
        """One accepted sample whole: texts, tokens, score, advantage, versions, hand-outs."""
        job = await self._parts.job(name)
        uid = job.metadata.uid
        view = await self._histories.step(uid, step)
        key = view.present(SampleKey(uid, step, group, index, turn))
        if key not in view.accepted:
            raise NotFound(f"step {step} has no accepted sample {group}/{index}", field="index")
        history = await self._histories.of(key.job_uid)
        advantages = await self._advantages(history.frozen.get(step))
        rollouts = await self._rollouts(view, [key])
        (shown,) = await self._sample_views(job, view, rollouts, advantages)
        return JSONResponse(samples.whole(shown, rollouts[0], view.handed[key]))

    async def _rollouts(self, view: StepView, keys: list[SampleKey]) -> list[Rollout]:
        refs = [view.ref(key) for key in keys]
        blobs = await asyncio.gather(*(self._parts.blobs.fetch(ref) for ref in refs))
        return [decode(data, Rollout) for data in blobs]

    async def _sample_views(
        self,
        job: Resource,
        view: StepView,
        rollouts: list[Rollout],
        advantages: Mapping[SampleKey, float],
    ) -> list[dict[str, Any]]:
        policies = {span.policy: None for rollout in rollouts for span in rollout.spans}
        text = await self._tokenizers.decoder(job, policies)
        return [
            samples.view(
                rollout,
                decode=text,
                purpose=view.purpose(rollout.key.group),
                scored=view.scored.get(rollout.key),
                advantage=advantages.get(rollout.key),
            )
            for rollout in rollouts
        ]

    async def _advantages(self, manifest: Ref | None) -> Mapping[SampleKey, float]:
        if manifest is None:
            return {}
        try:
            batch = decode(await self._parts.blobs.fetch(manifest), BatchManifest)
        except NotFound:
            return {}
        return {row.key: row.advantage for row in batch.rows}

    async def _read_all(self, wanted: list[str]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(wanted), _AHEAD):
            window = wanted[first : first + _AHEAD]
            found += await asyncio.gather(*map(self._parts.blobs.get, window))
        return found


def _number(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])


def _checkpoint_view(ref: Ref, manifest: Manifest, store: str) -> dict[str, Any]:
    folder = manifest.index.path.rpartition("/")[0]
    return {
        "step": manifest.step,
        "attempt": manifest.attempt,
        "policyVersion": manifest.policy.n,
        "policyDigest": manifest.policy.digest,
        "policyPath": folder,
        "policyUri": paths.outside(store, folder),
        "manifest": ref.path,
        "parent": manifest.parent.path if manifest.parent else None,
        "dataCursor": manifest.data_cursor,
        "counters": {counter.name: counter.value for counter in manifest.counters},
    }
