"""Figures of jobs for Prometheus: what is durable, once each."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ebbtide import labels, paths, usage
from ebbtide.catalogue import METRICS
from ebbtide.figures import SliceReport
from ebbtide.ports import Meta, Resource
from ebbtide.reports import (
    DecisionReport,
    EvalStats,
    LearnerReport,
    MigrationReport,
    PhaseSeconds,
    RewardStats,
    SampleCounts,
    SamplingReport,
    StepReport,
    TokenCounts,
)
from ebbtide.usage import Usage
from ebbtide.wire import Spent
from tests.worlds.gateway import World, condition

UID = "uid-1"
STATS = {"kl": 0.25, "clip_fraction_low": 0.125, "ratio_p99": 1.5, "value_loss": 2.0}
Series = dict[tuple[str, str], float]


def a_report(step: int, *, attempt: int = 1, tokens: int = 40, mean: float = 0.5) -> StepReport:
    return StepReport(
        job_uid=UID,
        step=step,
        attempt=attempt,
        epoch=1,
        policy=step,
        policy_digest="",
        next_policy=step + 1,
        next_policy_digest="",
        started_at=1000.0 + 10 * step,
        seconds=10.0,
        phases=PhaseSeconds(decode=6.0, learn=4.0),
        samples=SampleCounts(expected=8, accepted=7, valued=6, invalid=1, abandoned=1),
        tokens=TokenCounts(response=tokens, truncated=2, longest=9),
        rewards=RewardStats(
            mean=mean,
            std=0.1,
            minimum=0,
            maximum=1,
            components={"task": mean},
            pass_rate=0.75,
            timed_out=0.25,
        ),
        sampling=SamplingReport(
            temperature=0.5, max_new_tokens=9, group_size=2, age=0.25, oldest=1
        ),
        evaluation=EvalStats(mean=mean / 2, pass_at_k=mean, k=1, prompts=4, samples=4),
        learner=LearnerReport(tokens=tokens, stats=STATS),
        decision=DecisionReport(
            rule="kept", reason="", actors=3, scaling="static", prediction="blend"
        ),
        slices=(
            SliceReport(
                by="task", value="sums", samples=4, valued=4, tokens=9, truncated=1, reward=mean
            ),
            SliceReport(by="length", value="1-64", samples=2, valued=0, tokens=9, truncated=0),
        ),
        counted={"kv_pulls": {"imported": 2, "miss": 1}, "load_bytes": {"": 64}, "unheard-of": {}},
        migration=MigrationReport(rule="tau", ordered=3, moved=2, with_kv=2, failed=1),
    )


async def put(
    world: World, *reports: StepReport, attempt: int = 1, committed: int = 9, uid: str = UID
) -> None:
    for report in reports:
        data = report.model_dump_json(by_alias=True).encode()
        await world.blobs.put(paths.step_report(uid, report.step), data)
    status = {"progress": {"attempt": attempt, "step": committed}}
    await world.cluster.patch_status("RLHFJob", "default", "demo", status)


async def text_of(world: World) -> str:
    async with world.client() as api:
        answer = await api.get("/v1/metrics")
    assert answer.status_code == 200, answer.text
    return answer.text


async def figures(world: World) -> Series:
    """Values by metric and the labels, in order of their names, that tell a job's series apart."""
    families = text_string_to_metric_families(await text_of(world))
    return {
        (s.name, "/".join(v for k, v in s.labels.items() if k not in ("namespace", "rlhf_job"))): (
            s.value
        )
        for family in families
        for s in family.samples
    }


async def a_world(*reports: StepReport) -> World:
    world = World()
    await world.put_job()
    await put(world, *reports)
    return world


async def test_totals_are_sums_over_committed_steps() -> None:
    found = await figures(await a_world(a_report(0), a_report(1, tokens=60)))
    assert found["ebbtide_job_steps_total", ""] == 2
    assert found["ebbtide_job_tokens_total", "response"] == 100
    assert found["ebbtide_job_samples_total", "abandoned"] == 2
    assert found["ebbtide_job_phase_seconds_total", "decode"] == 12
    assert found["ebbtide_job_migrated_samples_total", "with_kv/tau"] == 4


async def test_what_actors_counted_outlives_them() -> None:
    found = await figures(await a_world(a_report(0), a_report(1)))
    assert found["ebbtide_job_kv_pulls_total", "imported"] == 4
    assert found["ebbtide_job_kv_pulls_total", "miss"] == 2
    assert found["ebbtide_job_load_bytes_total", ""] == 128


async def test_values_are_those_of_the_last_step_under_trls_names() -> None:
    found = await figures(await a_world(a_report(0), a_report(1, mean=0.75)))
    assert found["ebbtide_train_reward", ""] == 0.75
    assert found["ebbtide_train_kl", ""] == 0.25
    assert found["ebbtide_train_clip_ratio_low_mean", ""] == 0.125
    assert found["ebbtide_train_ratio", "0.99"] == 1.5
    assert found["ebbtide_train_value_loss", ""] == 2.0
    assert found["ebbtide_train_completions_clipped_ratio", ""] == pytest.approx(2 / 7)
    assert found["ebbtide_job_reward_gain", ""] == pytest.approx(0.125)  # held-out: 0.25 to 0.375


async def test_sampling_and_the_age_of_samples_are_those_of_the_last_step() -> None:
    found = await figures(await a_world(a_report(0)))
    assert found["ebbtide_train_pass_ratio", ""] == 0.75
    assert found["ebbtide_train_timed_out_ratio", ""] == 0.25
    assert found["ebbtide_train_temperature", ""] == 0.5
    assert found["ebbtide_train_limit_tokens", ""] == 9
    assert found["ebbtide_train_group_samples", ""] == 2
    assert found["ebbtide_train_sample_age_versions", "max"] == 1


async def test_slices_are_those_of_the_last_step_and_without_a_reward_show_none() -> None:
    found = await figures(await a_world(a_report(0), a_report(1, mean=0.75)))
    assert found["ebbtide_slice_reward", "task/sums"] == 0.75
    assert found["ebbtide_slice_truncated_ratio", "task/sums"] == 0.25
    assert found["ebbtide_slice_samples", "length/1-64"] == 2
    assert ("ebbtide_slice_reward", "length/1-64") not in found


async def test_a_step_that_a_restart_undid_counts_once_it_is_done_again() -> None:
    world = await a_world(a_report(0), a_report(1), a_report(2))
    async with world.client() as api:
        before = (await api.get("/v1/metrics")).text
        await put(world, a_report(1, attempt=2, tokens=7), attempt=2, committed=1)
        after = (await api.get("/v1/metrics")).text
    line = 'ebbtide_job_tokens_total{kind="response",namespace="default",rlhf_job="demo"} %s'
    assert line % "120.0" in before
    assert line % "47.0" in after


async def test_an_unknown_price_shows_seconds_and_no_money() -> None:
    world = await a_world()
    price = {"spec": {"prices": [{"pool": "p", "perHour": 36.0}], "budget": {"maxCost": 5.0}}}
    await world.cluster.patch("RLHFJob", "default", "demo", price)
    for pod, role, pool in (("d-0", "decode", "p"), ("s-0", "reward", "other")):
        held = Usage(UID, role, pod, pod, pool, 1, 0.0, 100.0, 100.0)
        await world.blobs.put(paths.usage(UID, pod, pod), usage.encode(held))
    await world.put_ledger(UID, [Spent(0, "decode", "d-0", "busy", 60.0)])
    found = await figures(world)
    assert found["ebbtide_job_cost_total", "busy/USD/decode"] == pytest.approx(0.6)
    assert found["ebbtide_job_cause_seconds_total", "unattributed/reward"] == 100.0
    assert ("ebbtide_job_cost_total", "unattributed/USD/reward") not in found
    assert found["ebbtide_job_unpriced_seconds_total", ""] == 100.0
    assert found["ebbtide_job_budget_cost", "USD"] == 5.0


async def test_every_name_is_in_the_catalogue_with_its_labels() -> None:
    families = list(text_string_to_metric_families(await text_of(await a_world(a_report(0)))))
    assert len(families) > 30
    for sample in [s for family in families for s in family.samples]:
        assert tuple(sample.labels) == tuple(sorted(METRICS[sample.name].label_names))


async def test_a_job_that_ended_long_ago_is_counted_and_shown_no_more() -> None:
    world = await a_world(a_report(0))
    ended = condition("Complete") | {"lastTransitionTime": "2020-01-01T00:00:00Z"}
    status = {"conditions": [ended]}
    await world.cluster.patch_status("RLHFJob", "default", "demo", status)
    found = await figures(world)
    assert found["ebbtide_jobs", "Complete"] == 1
    assert ("ebbtide_job_steps_total", "") not in found


async def test_targets_are_pods_that_run_the_operator_and_the_gateway() -> None:
    world = World(port=8470)
    own = {labels.JOB: "demo", labels.ROLE: "decode"}
    for name, phase in (("d-0", "Running"), ("d-1", "Succeeded")):
        await world.cluster.create(Resource("v1", "Pod", Meta(name=name, labels=own)))
        status = {"phase": phase, "healthPort": 4000}
        await world.cluster.patch_status("Pod", "default", name, status)
    told = Meta(name=labels.LEASE, annotations={labels.SCRAPE: "127.0.0.1:4001"})
    await world.cluster.create(Resource("coordination.k8s.io/v1", "Lease", told))
    async with world.client() as api:
        found = (await api.get("/v1/targets")).json()
    assert [one["targets"] for one in found] == [
        ["127.0.0.1:4000"],
        ["127.0.0.1:4001"],
        ["127.0.0.1:8470"],
    ]
    assert found[0]["labels"]["rlhf_job"] == "demo"


async def test_figures_need_a_token() -> None:
    async with World().client(token="") as api:
        for path in ("/v1/metrics", "/v1/targets"):
            assert (await api.get(path)).status_code == 401
