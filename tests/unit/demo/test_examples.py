"""The example jobs are valid, and the demonstration changes only what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.cli import files
from ebbtide.demo.material import Material
from ebbtide.demo.run import DEMO, WARM_START, Wishes, example, placed
from ebbtide.spec.check import check

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def wishes(tmp_path: Path, **changes: float | str | None) -> Wishes:
    return Wishes(tmp_path, EXAMPLES, tmp_path, seed=3, port=0, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_a_valid_job(path: Path) -> None:
    check(files.read(path))


def test_there_are_the_two_jobs_of_the_demonstration() -> None:
    assert {WARM_START, DEMO} <= {path.name for path in FILES}


def test_a_control_run_changes_the_learning_rate_of_the_demo_alone(tmp_path: Path) -> None:
    control = wishes(tmp_path, learning_rate=0.0)
    rates = [example(control, n)["spec"]["training"]["learningRate"] for n in (WARM_START, DEMO)]
    assert rates == [0.003, 0.0]


def test_the_engine_and_the_actors_are_those_of_the_demo_alone(tmp_path: Path) -> None:
    other = wishes(tmp_path, engine="vllm", actors=2)
    warm, decode = (example(other, n)["spec"].get("decode", {}) for n in (WARM_START, DEMO))
    assert "engine" not in warm
    assert (decode["engine"], decode["replicas"], decode["maxReplicas"]) == ("vllm", 2, 2)
    check(example(other, DEMO))


def test_the_seed_reaches_both_jobs(tmp_path: Path) -> None:
    seeds = {example(wishes(tmp_path), n)["spec"]["seed"] for n in (WARM_START, DEMO)}
    assert seeds == {3}


def test_the_jobs_read_the_material_wherever_it_lies(tmp_path: Path) -> None:
    spec = placed(example(wishes(tmp_path), DEMO), Material(tmp_path))["spec"]
    places = [
        spec["model"]["uri"],
        *(part["uri"] for part in spec["dataset"].values() if isinstance(part, dict)),
    ]
    assert places == [str(tmp_path / n) for n in ("model", "prompts.jsonl", "held-out.jsonl")]
