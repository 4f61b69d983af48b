"""The same by torchrl's generalized_advantage_estimate and ClipPPOLoss; run by the interpreter of torchrl's own environment.

Knows nothing of ebbtide. Reads `rollouts.npz` and `cases.json` from the folder given, writes one
`torchrl-<number>.npz` per case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.functional import generalized_advantage_estimate


def main(folder: Path) -> None:
    """Compute every case."""
    rollouts = np.load(folder / "rollouts.npz")
    data = {name: torch.from_numpy(rollouts[name]) for name in rollouts.files}
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        np.savez(folder / f"torchrl-{number}.npz", **compute(data, case))


def compute(data: dict[str, torch.Tensor], case: dict[str, Any]) -> dict[str, Any]:
    """Advantages before they are normalised, value targets, both losses and their gradients."""
    steps = trajectories(data, case)
    after = steps["next"]
    advantages, targets = generalized_advantage_estimate(
        case["gamma"],
        case["gae_lambda"],
        steps["state_value"],
        after["state_value"],
        after["reward"],
        after["done"],
        after["terminated"],
    )
    # The module GAE would take a mask's last step for a cut one, whatever `terminated` says.
    steps.update({"advantage": advantages, "value_target": targets})
    policy = table(data["policy"])
    critic = table(data["critic"])
    found = loss_module(policy, critic, case, data["temperature"])(steps)
    (found["loss_objective"] + found["loss_critic"]).backward()
    at = data["mask"]
    return {
        "advantages": steps["advantage"][at].squeeze(-1).numpy(),
        "targets": steps["value_target"][at].squeeze(-1).numpy(),
        "loss": found["loss_objective"].detach().numpy(),
        "value_loss": found["loss_critic"].detach().numpy(),
        "policy_gradient": gradient(policy),
        "critic_gradient": gradient(critic),
    }


def table(values: torch.Tensor) -> torch.nn.Embedding:
    """A row for each token."""
    rows, width = values.shape
    return torch.nn.Embedding(rows, width, _weight=values.clone())


def gradient(module: torch.nn.Embedding) -> Any:
    """That of all rows."""
    found = module.weight.grad
    assert found is not None
    return found.numpy()


def trajectories(data: dict[str, torch.Tensor], case: dict[str, Any]) -> TensorDict:
    """One trajectory for each answer; it is over, and not cut, at its last chosen token."""
    mask, counts = data["mask"], data["mask"].sum(1)
    last = torch.arange(mask.shape[1])[None] == counts[:, None] - 1
    rewards = last * data["rewards"][:, None]
    rewards = rewards - case["kl_coefficient"] * (data["old"] - data["reference"])
    values = data["values"]
    after = torch.nn.functional.pad(values[:, 1:], (0, 1))
    over = (last | ~mask)[..., None]
    return TensorDict(
        {
            "state": data["states"],
            "action": data["actions"],
            "action_log_prob": data["old"],
            "state_value": values[..., None],
            "shifted_valid": mask,
            "next": {
                "state_value": after[..., None],
                "reward": rewards[..., None],
                "done": over,
                "terminated": over,
            },
        },
        batch_size=mask.shape,
    )


def loss_module(
    policy: torch.nn.Module, critic: torch.nn.Module, case: dict[str, Any], temperature: Any
) -> ClipPPOLoss:
    """The loss with every option that matters stated."""
    logits = TensorDictModule(
        torch.nn.Sequential(policy, Divided(float(temperature))), ["state"], ["logits"]
    )
    actor = ProbabilisticActor(
        logits,
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    loss = ClipPPOLoss(
        actor,
        TensorDictModule(critic, ["state"], ["state_value"]),
        clip_epsilon=(case["clip_low"], case["clip_high"]),
        clip_value=case["value_clip"],
        loss_critic_type="l2",
        critic_coeff=0.5,
        entropy_bonus=False,
        normalize_advantage=True,
        reduction="mean",
        functional=False,
    )
    loss.loss_mask_key = "shifted_valid"
    return loss


class Divided(torch.nn.Module):
    """Logits at a temperature."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Divide."""
        return logits / self.by


if __name__ == "__main__":
    main(Path(sys.argv[1]))
