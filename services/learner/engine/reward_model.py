"""A reward model learns from pairs (Bradley-Terry; Ouyang et al., arXiv 2203.02155, equation 1).

A language model's body with one number on top, read at the last token of prompt and answer, as
`ebbtide.engines.reward_model` reads it. The loss of a pair is -log sigmoid(r(better) - r(worse)),
and with centring c also c (r(better) + r(worse))^2 (Eisenstein et al., arXiv 2312.09244), the mean
over pairs. As in `dpo`, a first pass finds each score's slope, so that the two answers of a pair
may lie in any micro-batch of any rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification

from ebbtide.errors import Refused
from ebbtide.spec import RewardModelSpec
from services.learner.core.samples import MicroBatch
from services.learner.engine.gang import Gang
from services.learner.engine.lora import Adapters
from services.learner.engine.optimiser import Optimiser, Stepped, of_pairs
from services.learner.engine.policy import is_small, layers_of, meet_in_last, prepare, shard
from services.learner.engine.updates import Batch, on_device

_FIGURES = ("loss", "accuracy", "margin", "chosen_reward", "rejected_reward")


class Scoring(torch.nn.Module):
    """A body and the head on top of it. `prefix`: the body's name in transformers' own model."""

    def __init__(self, body: Any, head: torch.nn.Module, *, prefix: str) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.prefix = prefix

    def forward(self, tokens: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Scores (N, 1) at the flattened positions `last` of `tokens` (rows, width)."""
        hidden = self.body(input_ids=tokens, use_cache=False).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, last)
        scores: torch.Tensor = self.head(chosen)
        return scores


class ScoreModel:
    """The model that learns, sharded; has what publishing asks of a policy."""

    def __init__(self, module: Scoring, *, small: bool) -> None:
        self.module = module
        self.aliases: dict[str, str] = {}
        self.adapters: Adapters | None = None
        self.small = small

    def exported(self, full: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Its parameters under transformers' names."""
        body = {n: t for n, t in full.items() if n.startswith("body.")}
        named = {f"{self.module.prefix}.{n.removeprefix('body.')}": t for n, t in body.items()}
        return {**named, "score.weight": full["head.weight"]}


class Preferences:
    """Runs the updates of one Learn, one after the other."""

    def __init__(
        self, *, gang: Gang, model: ScoreModel, optimiser: Optimiser, spec: RewardModelSpec
    ) -> None:
        self._gang = gang
        self._model = model
        self._optimiser = optimiser
        self._centring = spec.centring

    def learn(self, updates: Sequence[Sequence[MicroBatch]]) -> dict[str, float]:
        """Do each update from this rank's micro-batches; return the metrics of the step.

        Means over updates of the mean over pairs, by the names of `dpo`: rewards are the scores.
        """
        return of_pairs([self._update(batches) for batches in updates])

    def gradient(self, batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Add the gradient of one update; return its figures."""
        mine = [on_device(batch, self._gang.device) for batch in batches]
        scores = self._scores(mine)
        margins, sums = scores[0] - scores[1], scores.sum(0)
        lean, centre = torch.sigmoid(-margins), 2 * self._centring * sums
        slopes = torch.stack([centre - lean, centre + lean]) / len(margins)
        for i, batch in enumerate(mine):
            meet_in_last(self._model.module, last=i == len(mine) - 1, small=self._model.small)
            scored = self._score(batch)
            weights = (
                slopes[_worse(batch), batch.groups] if batch.real else torch.zeros_like(scored)
            )
            (scored * weights.float()).sum().backward()  # type: ignore[no-untyped-call]
        losses = -logsigmoid(margins) + self._centring * sums**2
        told = (losses, (margins > 0).double(), margins, *scores)
        tokens = sum(float(len(batch.targets)) for batch in mine if batch.real)
        total = self._gang.total(torch.tensor(tokens, dtype=torch.float64))
        figures = {n: float(t.mean()) for n, t in zip(_FIGURES, told, strict=True)}
        return {**figures, "computed_tokens": float(total)}

    def _update(self, batches: Sequence[MicroBatch]) -> tuple[dict[str, float], Stepped]:
        figures = self.gradient(batches)
        return figures, self._optimiser.step(finite=math.isfinite(figures["loss"]))

    @torch.no_grad()
    def _scores(self, batches: Sequence[Batch]) -> torch.Tensor:
        """Of the better and worse answers of all ranks, (2, pairs)."""
        most = max((int(b.groups.max()) for b in batches if b.real), default=0)
        pairs = int(self._gang.largest(torch.tensor([most]))) + 1
        found = torch.zeros(2, pairs, dtype=torch.float64, device=self._gang.device)
        for batch in batches:  # dummies too: the ranks compute in step
            scores = self._score(batch).double()
            if batch.real:
                found.index_put_((_worse(batch), batch.groups), scores)
        return self._gang.total(found)

    def _score(self, batch: Batch) -> torch.Tensor:
        scores: torch.Tensor = self._model.module(batch.tokens, batch.where[_ends(batch)] + 1)
        return scores.squeeze(-1).float()


def _ends(batch: Batch) -> torch.Tensor:
    """Of each sequence, the place of its last token among the chosen ones."""
    return batch.counts.cumsum(0) - 1


def _worse(batch: Batch) -> torch.Tensor:
    """1 for a worse answer, 0 for a better one, (sequences,)."""
    return (batch.advantages[_ends(batch)] < 0).long()


def load_score_model(
    folder: Path,
    gang: Gang,
    *,
    mixed_precision: bool,
    checkpointing: bool = False,
    offload: bool = False,
) -> ScoreModel:
    """Read a language model, or a reward model to go on with, and shard it; raises Refused.

    A head that is not there begins at 0: at first every answer is worth 0.
    """
    try:
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="sdpa",
            num_labels=1,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        detail = f"{folder} cannot be loaded as reward model: {error}"
        raise Refused(detail, field="/model/uri") from error
    model, told = loaded
    head = getattr(model, "score", None)
    if head is None:
        detail = (
            f"{folder} has no head that reads the last token: a language model's body is needed"
        )
        raise Refused(detail, field="/model/uri")
    if "score.weight" in told["missing_keys"]:
        torch.nn.init.zeros_(head.weight)
    layers = layers_of(model)
    prepare(layers, checkpointing=checkpointing, backend="")
    module = Scoring(model.base_model, head, prefix=model.base_model_prefix)
    module.eval()
    small = is_small(module)
    shard(module, gang, layers=layers, small=small, mixed=mixed_precision, offload=offload)
    return ScoreModel(module, small=small)
