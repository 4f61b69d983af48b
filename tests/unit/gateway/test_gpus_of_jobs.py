"""A job that asks for a GPU, or for programs to be run, where there is neither."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.spec import NO_PROGRAMS
from ebbtide.spec.check import check
from services.gateway.app.preflight import look
from services.gateway.settings import GatewaySettings
from tests.worlds.gateway import a_job

WORDS = "this machine has no NVIDIA GPU (no /dev/nvidia0): use cpu or auto"
JUDGE = {"type": "model", "name": "m", "uri": "/m", "device": "cuda"}


def faults(gpus: int | None, **spec: Any) -> dict[str, str]:
    found = look(check(a_job(**spec)), paths=False, gpus=gpus)
    return {fault.pointer: fault.detail for fault in found.faults}


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"decode": {"device": "cuda"}}, "/spec/decode/device"),
        ({"learner": {"device": "cuda"}}, "/spec/learner/device"),
        ({"prefill": {"mode": "service", "device": "cuda"}}, "/spec/prefill/device"),
        ({"reward": {"components": [JUDGE]}}, "/spec/reward/components/0/device"),
    ],
    ids=["decode", "learner", "prefill", "reward"],
)
def test_a_role_that_needs_a_gpu_is_refused_where_there_is_none(
    spec: dict[str, Any], pointer: str
) -> None:
    assert faults(0, **spec) == {pointer: WORDS}


@pytest.mark.parametrize("gpus", [1, None])
def test_a_gpu_may_be_asked_for_where_there_is_one_or_jobs_run_elsewhere(gpus: int | None) -> None:
    assert faults(gpus, decode={"device": "cuda"}) == {}


def test_emulated_actors_need_no_gpu() -> None:
    assert faults(0, decode={"engine": "emulated", "device": "cuda"}) == {}


def test_a_part_that_no_pod_runs_needs_no_gpu() -> None:
    assert faults(0, prefill={"mode": "colocated", "device": "cuda"}) == {}


@pytest.mark.parametrize(
    ("settings", "here"),
    [
        ({"cluster": "/state/objects.db"}, True),
        ({"cluster": "kubernetes:/etc/kubeconfig"}, False),
        ({"cluster": "/state/objects.db", "check_paths": False}, False),
    ],
)
def test_jobs_run_on_this_machine_on_the_local_platform_alone(
    settings: dict[str, Any], here: bool
) -> None:
    assert GatewaySettings(blobs_url="memory:///", **settings).runs_here is here


def test_an_interval_of_evaluations_as_it_is_anyway_is_noted_where_nothing_is_evaluated() -> None:
    found = look(check(a_job(evaluation={"everySteps": 10})), paths=False)
    assert "/spec/evaluation/everySteps" in [one.pointer for one in found.warnings]
    found = look(check(a_job(evaluation={"prompts": 10})), paths=False)
    assert "/spec/evaluation/everySteps" not in [one.pointer for one in found.warnings]


def test_without_a_gpu_there_is_nothing_to_offload_from() -> None:
    asked = {"learner": {"cpuOffload": True}}
    assert "remove it" in faults(0, **asked)["/spec/learner/cpuOffload"]
    assert faults(1, **asked) == {}


def test_programs_of_answers_are_refused_where_none_are_run() -> None:
    reward = {"components": [{"type": "exact", "name": "e"}, {"type": "code", "name": "c"}]}
    job = check(a_job(reward=reward))
    refused = look(job, paths=False, programs=False).faults
    assert [(fault.pointer, fault.detail) for fault in refused] == [
        ("/spec/reward/components/1", NO_PROGRAMS)
    ]
    assert look(job, paths=False).faults == ()
