"""Episodes through the real planner, actors and scorers over fakes, with kills between turns."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ebbtide.demo import tokenizer as demo
from ebbtide.errors import NotFound
from ebbtide.rewards.environments import calculator
from ebbtide.rewards.outcomes import Answer, Judged, Reply, Worth
from ebbtide.runtime import Process
from ebbtide.spec import EnvironmentSpec, RewardSpec, RuleReward
from ebbtide.testing.clock import run_virtual
from ebbtide.wire import (
    Accepted,
    Continued,
    Rollout,
    Scored,
    decode,
    unpack_floats,
    unpack_mask,
)
from services.reward import core
from services.reward.app.episodes import Episodes
from services.reward.app.intake import Intake
from services.reward.app.library import Library, Words
from services.reward.app.metrics import RewardMetrics
from services.reward.app.outlet import Outlet
from services.reward.app.scoring import Scoring
from tests.checker.verdict import examine
from tests.flow.planner.rig import UID, Rig

TURNS, LIMIT, REPLY = 3, 100, "12"
ENVIRONMENT = {"name": "calculator", "maxTurns": TURNS}
SIZES = {"totalSteps": 2, "promptsPerStep": 3, "maxResponseTokens": LIMIT}


class EpisodeRig(Rig):
    """With real scorers, whose environment takes half a second and ends a third of the turns."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        super().__init__(folder, seed=seed, environment=ENVIRONMENT, training=SIZES)
        self.tokenizer = demo.build()
        self.asked = 0

    async def respond(self, answer: Answer) -> core.Verdict:
        """A function of the transcript, as an environment must be."""
        self.asked += 1
        await self.clock.sleep(0.5)
        last = answer.transcript[-1].content
        ends = len(last) % 3 == 0
        assert calculator(answer, {}) == Reply(None)
        return Judged((Reply(None if ends else REPLY),), (0.0,))

    async def judge(self, answer: Answer) -> core.Verdict:
        return Judged((Worth(float(len(answer.response) % 2)),), (0.0,))

    async def _score(self, process: Process) -> None:
        spec = RewardSpec(components=(RuleReward(type="exact", name="c"),))
        metrics = RewardMetrics(registry=process.registry, components=spec.components)
        words = Words(tokenizer=self.tokenizer, stop_ids=frozenset({0}))
        breaker = core.Breaker(limit=9, rest=5.0)
        outlet = Outlet(bus=self.bus, clock=self.clock, log=process.log, instance="scorer")
        episodes = Episodes(
            spec=EnvironmentSpec(name="calculator", max_turns=TURNS),
            ask=self.respond,
            blobs=self.objects,
            words=words,
            limit=LIMIT,
            deaths=core.Deaths(limit=9, what="environment"),
            metrics=metrics,
        )
        scoring = Scoring(
            spec=spec,
            library=Library(blobs=self.objects, words=words, role="user"),
            judge=self.judge,
            episodes=episodes,
            breaker=breaker,
            clock=self.clock,
            metrics=metrics,
            log=process.log,
            scorer="scorer",
            scorer_digest="digest",
        )
        intake = Intake(
            bus=self.bus,
            scoring=scoring,
            outlet=outlet,
            breaker=breaker,
            clock=self.clock,
            metrics=metrics,
            log=process.log,
            job_uid=UID,
            capacity=16,
        )
        process.spawn(self._tell_scorer(), name="beats")
        process.spawn(outlet.run(), name="outlet")
        await intake.run(process.drain, drain_seconds=5.0)

    async def rollout(self, record: Accepted) -> Rollout:
        return decode(await self.objects.fetch(record.ref), Rollout)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtual(scenario)


def of(rig: Rig, kind: type) -> list[Any]:
    return [record for record in rig.records() if isinstance(record, kind)]


async def ends_well(rig: EpisodeRig) -> None:
    progress = await rig.outcome()
    assert progress["outcome"] == "complete", progress
    assert examine(rig.evidence()).faults() == {}
    await rig.stop()


def test_a_job_with_turns_runs_from_start_to_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = EpisodeRig(tmp_path)
        await rig.start()
        await ends_well(rig)
        turns = {record.key.turn for record in of(rig, Scored)}
        assert turns == {0, 1, 2}, "episodes of every length were there"

    run(scenario())


def test_every_rollout_of_an_episode_holds_the_one_before_and_its_reply(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = EpisodeRig(tmp_path)
        await rig.start()
        await ends_well(rig)
        reply = rig.tokenizer.encode(REPLY).ids
        before = {r.key: await rig.rollout(r) for r in of(rig, Accepted)}
        for record in of(rig, Accepted):
            whole = before[record.key]
            given = np.flatnonzero(unpack_mask(whole.action_mask) == 0)
            assert len(given) == len(reply) * record.key.turn == record.n_given
            assert np.isnan(unpack_floats(whole.logprobs)).nonzero()[0].tolist() == given.tolist()

    run(scenario())


@pytest.mark.parametrize("role", ["planner", "decode", "reward", "learner"])
def test_a_role_that_is_killed_between_turns_costs_time_and_no_turn(
    tmp_path: Path, role: str
) -> None:
    async def scenario() -> None:
        rig = EpisodeRig(tmp_path)
        await rig.start()
        for pause in (2.9, 2.3, 3.1):
            await rig.clock.sleep(pause)
            await rig.kill(role)
        await ends_well(rig)
        keys = [record.key for record in of(rig, Accepted)]
        assert role == "learner" or len(keys) == len(set(keys)), "a turn was accepted twice"

    run(scenario())


def test_a_bad_network_and_lost_stores_cost_no_episode(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = EpisodeRig(tmp_path, seed=5)
        rig.chaos.lose, rig.chaos.repeat, rig.chaos.delay = 0.05, 0.1, 0.5
        await rig.start(actors=3)
        await rig.clock.sleep(5.0)
        rig.bus.empty()
        await rig.clock.sleep(2.0)
        rig.hot.flush()
        await rig.kill("decode")
        await ends_well(rig)
        assert len({record.key for record in of(rig, Continued)}) == len(of(rig, Continued))

    run(scenario())


def test_what_a_turn_begins_from_is_durable_before_it_is_handed_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = EpisodeRig(tmp_path)
        await rig.start()
        while not of(rig, Continued):
            await rig.clock.sleep(0.1)
        try:
            for record in of(rig, Continued):
                await rig.objects.fetch(record.given)
        except NotFound as missing:
            raise AssertionError("handed out from what is not there") from missing
        await rig.stop()

    run(scenario())
