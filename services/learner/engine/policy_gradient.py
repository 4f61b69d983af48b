"""One frozen batch of rollouts: one or more updates, and what they tell about the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ebbtide.spec import PolicyGradientSpec, PpoSpec, TrainingSpec
from services.learner.core.control import KlControl
from services.learner.core.metrics import BINS, MAXES, SUMS, alarm, update_stats
from services.learner.core.mini_batches import mini_batch
from services.learner.core.progress import Course, Progress
from services.learner.core.repetition import repeated
from services.learner.core.samples import MicroBatch
from services.learner.engine.corrections import correct
from services.learner.engine.credit import assign, assign_with_values
from services.learner.engine.critic import Critic, Target
from services.learner.engine.gang import Gang
from services.learner.engine.objectives import objective_of
from services.learner.engine.objectives.kl import kl_term
from services.learner.engine.objectives.tokens import Tokens
from services.learner.engine.optimiser import Optimiser, Stepped
from services.learner.engine.policy import Policy, Scored
from services.learner.engine.proximal import Proximal, interpolated, interpolates, weighed
from services.learner.engine.tally import Made, tally
from services.learner.engine.updates import Batch, accumulate, on_device

Totals = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class _Part:
    """Micro-batches of one update; `done`: updates that the batch has had before it.

    `scale` of its losses: denominators are the whole batch's, whose loss is the mean over parts.
    """

    micro_batches: range
    done: int = 0
    scale: int = 1


class PolicyGradient:
    """Learns from its own samples.

    `reference`: frozen policy of the KL, None without one. `critic`: PPO's.
    """

    def __init__(
        self,
        *,
        gang: Gang,
        policy: Policy,
        reference: Policy | None,
        optimiser: Optimiser,
        algorithm: PolicyGradientSpec,
        training: TrainingSpec,
        critic: Critic | None = None,
    ) -> None:
        self.critic = critic
        self._gang = gang
        self._policy = policy
        self._reference = reference
        self._optimiser = optimiser
        self._algorithm = algorithm
        self._objective = objective_of(algorithm)
        self._passes = training.updates_per_batch
        self._parts = training.mini_batches
        self._correction = weighed(algorithm)
        self._interpolates = interpolates(algorithm)
        self._temperature = training.temperature
        kl = algorithm.kl
        self.control = KlControl(algorithm.kl_coefficient, kl.target, kl.rate)
        """The KL coefficient, which may follow a target; part of a checkpoint."""

    def learn(self, batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Update from this rank's `batches` (equally many on every rank); return the metrics.

        Mismatch is that of the first pass, at the weights that sampled; the rest is the last
        pass's. Old log-probabilities are those before any update: with one update the ratio is
        exactly 1. Micro-batch i is of mini-batch i modulo their number.
        """
        mine = [on_device(batch, self._gang.device) for batch in batches]
        reference = self._reference_logprobs(mine)
        mine, kl, targets = self._credited(mine, reference)
        old = self._before(mine)
        passes = [self._pass(mine, old, reference, number) for number in range(self._passes)]
        stats = self._summary(passes) | self._repeated(batches)
        if kl is not None:
            stats["kl"] = kl
        if self._algorithm.decoupled is not None:
            stats[f"proximal_{self._algorithm.decoupled.proximal}"] = 1.0
        if self.critic is not None:
            stats |= self.critic.learn(mine, targets, passes=self._passes)
        self.control = self.control.after(stats["kl"])
        return stats

    @property
    def course(self) -> Course:
        """What is a part of a checkpoint beside the tensors."""
        if self.critic is None:
            return Course(self.control.coefficient)
        updates = self.critic.optimiser.updates
        return Course(self.control.coefficient, self.critic.steps, updates)

    def resume(self, progress: Progress) -> None:
        """Go on from the `course` of a checkpoint."""
        course = progress.course
        if course.kl_coefficient is not None:
            self.control = replace(self.control, coefficient=course.kl_coefficient)
        if self.critic is not None:
            self.critic.steps = course.critic_steps
            self.critic.optimiser.updates = course.critic_updates

    def gradient(self, batches: Sequence[MicroBatch], old: Sequence[torch.Tensor]) -> float:
        """Leave the gradient of one pass on the parameters, without a step; return the loss.

        For checks against other implementations; `old` gives each batch's old
        log-probabilities.
        """
        mine = [on_device(batch, self._gang.device) for batch in batches]
        reference = self._reference_logprobs(mine)
        mine, _, _ = self._credited(mine, reference)
        sums, _ = self._accumulate(_Part(range(len(mine))), mine, list(old), reference)
        return float(self._gang.total(sums)[SUMS.index("loss")])

    def _summary(self, passes: Sequence[dict[str, float]]) -> dict[str, float]:
        mismatch = {k: v for k, v in passes[0].items() if k.startswith("mismatch_")}
        skipped = sum(stats["skipped_updates"] for stats in passes)
        return {
            **passes[-1],
            **mismatch,
            "mismatch_alarm": float(alarm(mismatch, self._algorithm.mismatch)),
            "skipped_updates": skipped,
            "kl_coefficient": self.control.coefficient,
        }

    def _repeated(self, batches: Sequence[MicroBatch]) -> dict[str, float]:
        counts = [repeated(batch) for batch in batches if batch.real]
        mine = torch.tensor(counts, dtype=torch.float64, device=self._gang.device).reshape(-1, 2)
        again, every = self._gang.total(mine.sum(0)).tolist()
        return {"repeated_ngrams": again / every} if every else {}

    def _credited(
        self, batches: list[Batch], reference: Sequence[torch.Tensor | None]
    ) -> tuple[list[Batch], float | None, list[Target]]:
        """The batches with their final advantages, KL per token in the reward, critic's targets."""
        gaps, spec = self._gaps(batches, reference), self._algorithm
        beta = self.control.coefficient
        targets: list[Target] = []
        if self.critic is None:
            credit = assign(batches, gaps, coefficient=beta, algorithm=spec, gang=self._gang)
        else:
            assert isinstance(spec, PpoSpec)
            values = self.critic.values(batches)
            credit, returns = assign_with_values(
                batches, values, gaps, coefficient=beta, algorithm=spec, gang=self._gang
            )
            targets = [Target(v, r) for v, r in zip(values, returns, strict=True)]
        pairs = zip(batches, credit.advantages, strict=True)
        return [replace(batch, advantages=found) for batch, found in pairs], credit.kl, targets

    def _gaps(
        self, batches: list[Batch], reference: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor] | None:
        """Reference less policy, log-probabilities of each batch, where the reward needs them."""
        if self._reference is None or self._algorithm.kl.place != "reward":
            return None
        current = self._logprobs(self._policy, batches)
        return [r - c for r, c in zip(reference, current, strict=True) if r is not None]

    def _before(self, batches: Sequence[Batch]) -> list[torch.Tensor | None]:
        """Log-probabilities before any update; None: the first pass has them, or estimates them."""
        if self._parts == 1 or self._interpolates:
            return [None] * len(batches)
        first = mini_batch(len(batches), 0, self._parts)
        later = [i for i in range(len(batches)) if i not in first]
        found = self._logprobs(self._policy, [batches[i] for i in later])
        known = dict(zip(later, found, strict=True))
        return [known.get(i) for i in range(len(batches))]

    def _pass(
        self,
        batches: Sequence[Batch],
        old: list[torch.Tensor | None],
        reference: Sequence[torch.Tensor | None],
        number: int,
    ) -> dict[str, float]:
        """All mini-batches once, an update each; figures are over all of them, but the last norm."""
        totals: list[Totals] = []
        done: list[Stepped] = []
        for j in range(self._parts):
            picked = mini_batch(len(batches), j, self._parts)
            part = _Part(picked, done=number * self._parts + j, scale=self._parts)
            sums, maxes = self._accumulate(part, batches, old, reference)
            totals.append((self._gang.total(sums), self._gang.largest(maxes)))
            done.append(self._stepped(totals[-1][0]))
        total = torch.stack([sums for sums, _ in totals]).sum(0).tolist()
        largest = torch.stack([maxes for _, maxes in totals]).amax(0).tolist()
        kinds = len(SUMS)
        return {
            **update_stats(total[:kinds], largest, bins=total[kinds:]),
            "grad_norm": done[-1].grad_norm,
            "learning_rate": done[-1].rate,
            "skipped_updates": float(sum(not stepped.done for stepped in done)),
        }

    def _stepped(self, sums: torch.Tensor) -> Stepped:
        """Apply what was accumulated; one mini-batch of several may have no answer: then nothing."""
        tokens, loss = (float(sums[SUMS.index(name)]) for name in ("tokens", "loss"))
        warming = self.critic is not None and self.critic.warming
        empty = self._parts > 1 and not tokens
        return self._optimiser.step(finite=math.isfinite(loss), hold=warming or empty)

    def _accumulate(
        self,
        part: _Part,
        batches: Sequence[Batch],
        old: list[torch.Tensor | None],
        reference: Sequence[torch.Tensor | None],
    ) -> Totals:
        device = self._gang.device
        sums = torch.zeros(len(SUMS) + BINS, dtype=torch.float64, device=device)
        maxes = torch.ones(len(MAXES), dtype=torch.float64, device=device)

        def losses_of(place: int, scored: Scored) -> torch.Tensor:
            nonlocal sums, maxes
            i = part.micro_batches[place]
            before = self._proximal(batches[i], scored, old[i], part.done)
            old[i] = before.logprobs if before.exact else None
            losses, (added, largest) = self._losses(batches[i], scored, before, reference[i])
            if batches[i].real:
                sums, maxes = sums + added, torch.maximum(maxes, largest)
            return losses * part.scale

        accumulate(
            self._policy,
            [batches[i] for i in part.micro_batches],
            temperature=self._temperature,
            losses_of=losses_of,
            explore=self._algorithm.entropy_coefficient > 0,
        )
        return sums, maxes

    def _proximal(
        self, batch: Batch, scored: Scored, old: torch.Tensor | None, done: int
    ) -> Proximal:
        """The policy before the batch's first update, `done` updates ago; `old`: if it is known."""
        if old is not None:
            return Proximal(old)
        if not self._interpolates:
            return Proximal(scored.logprobs.detach())
        version = self._passes * self._parts
        estimate = interpolated(
            scored.logprobs, batch.rollout, batch.ages, done=done, version=version
        )
        return Proximal(estimate, exact=False, near=done == 0)

    def _losses(
        self, batch: Batch, scored: Scored, proximal: Proximal, reference: torch.Tensor | None
    ) -> tuple[torch.Tensor, Totals]:
        spec, old = self._algorithm, proximal.logprobs
        tokens = Tokens(scored.logprobs, old, batch.advantages, batch.counts)
        surrogate = self._objective(tokens)
        correction = correct(old, batch.rollout, batch.counts, self._correction)
        each, kl = surrogate.losses, None
        if correction.weight is not None:
            each = each * correction.weight
        if reference is not None and spec.kl.place == "loss":
            kl = kl_term(tokens, reference, spec.kl)
            each = each + self.control.coefficient * kl
        if spec.entropy_coefficient:
            each = each - spec.entropy_coefficient * scored.entropy
        made = Made(
            batch.advantages,
            each * batch.weights,
            surrogate,
            kl,
            correction,
            old=old,
            fresh=(batch.ages == 0) & proximal.near,
            ages=batch.ages,
        )
        return made.losses, tally(made, rollout=batch.rollout, entropy=scored.entropy)

    def _reference_logprobs(self, batches: Sequence[Batch]) -> list[torch.Tensor | None]:
        if self._reference is None:
            return [None] * len(batches)
        return [*self._logprobs(self._reference, batches)]

    @torch.no_grad()
    def _logprobs(self, policy: Policy, batches: Sequence[Batch]) -> list[torch.Tensor]:
        return [
            policy.score(
                b.tokens, b.where, b.targets, temperature=self._temperature, shared=b.shared
            ).logprobs
            for b in batches
        ]
