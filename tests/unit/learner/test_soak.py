"""The real engine samples what the learner published: their probabilities stay the same for long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ebbtide import paths
from ebbtide.ports import EngineFinished
from ebbtide.rl.batching import Candidate, lay_out
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.engines import admission
from ebbtide.wire import (
    BatchManifest,
    Dispatch,
    Learned,
    PolicyRef,
    Rollout,
    SampleKey,
    Span,
    Timings,
    encode,
    pack_ints,
    pack_mask,
)
from services.learner.app.rank import Rank
from services.learner.engine.gang import Gang
from tests.unit.engines.rigs import decoder, drain, give
from tests.unit.learner.builders import UID, a_rank, job_spec, learn_of
from tests.unit.learner.test_rank import policy_of

PROMPTS = ((5,), (9, 8, 7), (4, 4), (1, 2, 3, 4, 5, 6))
STEPS = 8


@dataclass(frozen=True)
class Published:
    """A publication as the engine's rig wants it."""

    folder: Path
    policy: PolicyRef

    @property
    def path(self) -> Path:
        return self.folder / "index.msgpack"


async def published(rank: Rank, blobs: FakeBlobs, folder: Path) -> Any:
    for path in await blobs.list(paths.job(UID)):
        await blobs.local(await blobs.put(path, blobs.objects[path]))
    policy = policy_of(rank)
    return Published(folder / "local" / paths.policy(UID, 1, policy.n), policy)


def sampled(tiny: Any) -> list[EngineFinished]:
    engine = decoder(tiny)
    give(
        engine,
        [
            admission(tiny.policy, seq=i, prompt=PROMPTS[i // 2], max_new=12, stops=(1,))
            for i in range(2 * len(PROMPTS))
        ],
    )
    return [event for event in drain(engine) if isinstance(event, EngineFinished)]


async def batch(blobs: FakeBlobs, step: int, policy: PolicyRef, ends: list[EngineFinished]) -> Any:
    candidates = []
    for end in ends:
        i = end.dispatch.seq
        key, n = SampleKey(UID, step, i // 2, i % 2), len(end.tokens) // 4
        rollout = Rollout(
            key=key,
            dispatch=Dispatch(1, 1, i),
            prompt_id="p",
            prompt_tokens=pack_ints(PROMPTS[i // 2]),
            tokens=end.tokens,
            logprobs=end.logprobs,
            action_mask=pack_mask([True] * n),
            spans=(Span(0, n, policy),),
            finish=end.finish,
            timings=Timings(0, 0, 0),
            actor="a",
        )
        ref = await blobs.put(paths.rollouts(key, rollout.dispatch), encode(rollout))
        sign = 1.0 if i % 2 else -1.0
        candidates.append(Candidate(key, ref, n, sign, len(PROMPTS[i // 2])))
    layout = lay_out(candidates, ranks=1, microbatch_tokens=64)
    manifest = BatchManifest(
        job_uid=UID,
        attempt=1,
        step=step,
        base=policy,
        rows=layout.rows,
        tokens=layout.tokens,
        sequences=layout.sequences,
        ranks=1,
        microbatches=layout.microbatches,
    )
    return await learn_of(blobs, manifest)


@pytest.mark.parametrize(
    "training",
    [
        {"learning_rate": 0.0},
        {"learning_rate": 1e-2},
        {"learning_rate": 1e-2, "lora": {"rank": 3, "alpha": 12.0}},
    ],
    ids=["still", "all weights", "adapters"],
)
async def test_what_the_engine_says_of_its_tokens_stays_what_the_learner_says(
    gang: Gang, model: Path, tmp_path: Path, training: dict[str, Any]
) -> None:
    blobs = FakeBlobs(folder=tmp_path / "local")
    rank = a_rank(gang, job_spec(model, total_steps=STEPS, **training), blobs, tmp_path)
    await rank.start(None)
    worst, digests = [], set()
    for step in range(STEPS):
        tiny = await published(rank, blobs, tmp_path)
        outcome = await rank.obey(await batch(blobs, step, tiny.policy, sampled(tiny)))
        assert isinstance(outcome, Learned), outcome
        figures = {stat.name: stat.value for stat in outcome.stats}
        worst.append(figures["mismatch_ratio_max"])
        digests.add(outcome.policy.digest)
    assert max(worst) < 1 + 1e-4
    assert len(digests) == (1 if training["learning_rate"] == 0.0 else STEPS)
