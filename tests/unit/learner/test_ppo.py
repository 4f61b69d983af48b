"""PPO's advantages against their formula, and its critic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.learner.engine.credit import gae
from services.learner.engine.critic import Target, value_losses
from services.learner.engine.gang import Gang
from tests.unit.learner.gangs import Parts, close, lay, parameters_of, run_ranks, samples

COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=4)
SHARE = st.floats(0, 1)


def by_the_formula(
    values: list[float], rewards: list[float], gamma: float, lam: float
) -> list[float]:
    """Equation 16 of arXiv 1506.02438, term by term, for one answer."""
    after = [*values[1:], 0.0]
    deltas = [r + gamma * n - v for r, n, v in zip(rewards, after, values, strict=True)]
    return [
        sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:]))
        for t in range(len(deltas))
    ]


@given(COUNTS, SHARE, SHARE, st.integers(0, 99))
def test_advantages_are_those_of_the_formula(
    counts: list[int], gamma: float, lam: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values, rewards = rng.normal(size=(2, sum(counts)))
    found = gae(torch.tensor(values), torch.tensor(rewards), torch.tensor(counts), gamma, lam)
    ends = np.cumsum(counts)[:-1]
    wanted = [
        a
        for v, r in zip(np.split(values, ends), np.split(rewards, ends), strict=True)
        for a in by_the_formula(v.tolist(), r.tolist(), gamma, lam)
    ]
    assert np.allclose(found.numpy(), wanted)


def test_with_lambda_one_a_token_gets_what_came_less_its_value() -> None:
    values, rewards = torch.tensor([0.5, 0.2, 0.1]), torch.tensor([0.0, 0.0, 1.0])
    found = gae(values, rewards, torch.tensor([3]), 1.0, 1.0)
    assert torch.allclose(found, torch.tensor([0.5, 0.8, 0.9]))


@pytest.mark.parametrize(
    ("value", "clip", "loss"),
    [(0.1, 0.2, 0.405), (0.9, 0.2, 0.32), (0.9, None, 0.005), (-0.5, 0.2, 1.125)],
)
def test_a_value_gains_nothing_by_moving_further_than_the_clip(
    value: float, clip: float | None, loss: float
) -> None:
    target = Target(old=torch.zeros(1), returns=torch.ones(1))
    assert float(value_losses(torch.tensor([value]), target, clip)) == pytest.approx(loss)


WARMING = {"warmup_steps": 1, "learning_rate": 1e-2}
PPO = {"type": "ppo", "critic": {"learning_rate": 1e-2, "value_clip": None}}


def test_the_critic_learns_what_answers_are_worth(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, algorithm=PPO, training={"learning_rate": 0.0})
    stats = [parts.learner.learn(lay(samples(12))) for _ in range(25)]
    assert stats[0]["value_explained"] == pytest.approx(0.0, abs=1e-6)
    assert stats[-1]["value_loss"] < 0.5 * stats[0]["value_loss"]
    assert stats[-1]["value_explained"] > 0.3


def test_while_the_critic_warms_up_the_policy_stays(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, algorithm={"type": "ppo", "critic": WARMING})
    assert parts.learner.critic is not None
    policy, critic = parts.parameters(), parameters_of(parts.learner.critic.module)
    parts.learner.learn(lay(samples(12)))
    assert all(np.array_equal(policy[n], p) for n, p in parts.parameters().items())
    assert not close(critic, parameters_of(parts.learner.critic.module))
    assert parts.optimiser.updates == 0
    parts.learner.learn(lay(samples(12)))
    assert not close(policy, parts.parameters())


def critic_after(gang: Gang, model: str) -> dict[str, np.ndarray]:
    parts = Parts(gang, Path(model), algorithm=PPO, training={"updates_per_batch": 2})
    for step in range(2):
        parts.learner.learn(lay(samples(11, seed=step), rank=gang.rank, ranks=gang.size))
    assert parts.learner.critic is not None
    found = parameters_of(parts.learner.critic.module)
    # Scores hardly depend on a key's bias: its gradient is rounding, which Adam makes whole steps of.
    return {name: values for name, values in found.items() if not name.endswith("k_proj.bias")}


def test_the_critic_of_two_ranks_is_that_of_one(gang: Gang, model: Path, tmp_path: Path) -> None:
    one = critic_after(gang, str(model))
    assert close(one, run_ranks(2, critic_after, tmp_path, str(model))[1], limit=1e-4)
