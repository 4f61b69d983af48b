"""One job's learner and one engine in this process: draw, score, freeze, learn, publish.

Everything but planner and pods is the platform's own: rollouts and manifests go through a blob
store, policies through publications, samples through the torch engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebbtide import paths
from ebbtide.engines.loading import load_policy
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.ports import Admission, Blobs
from ebbtide.rl.advantages import group_advantages
from ebbtide.rl.batching import Candidate, lay_out
from ebbtide.rl.shaping import penalty_of, shaped
from ebbtide.spec import PolicyGradientSpec, RLHFJobSpec
from ebbtide.testing.clock import VirtualClock
from ebbtide.testing.engines import Outcome, admission, decode
from ebbtide.wire import (
    BatchManifest,
    Fence,
    Learn,
    Learned,
    LearnToken,
    PolicyRef,
    Rollout,
    SampleKey,
    Timings,
    encode,
    pack_ints,
    pack_mask,
)
from services.learner.app.lane import Lane
from services.learner.app.rank import Rank
from services.learner.app.reading import Reader
from services.learner.engine.gang import Gang
from services.learner.engine.publishing import write_skeleton
from services.learner.engine.trainer import DTYPES, build_trainer
from services.planner.core.config import baseline_of, moves_nothing_at_zero

UID = "curves"
Score = Callable[[Sequence[int], Sequence[int]], float]
"""Reward of (prompt, answer)."""


@dataclass(frozen=True)
class Stepped:
    """One step: rewards of its samples in order, the learner's figures by name."""

    rewards: list[float]
    stats: dict[str, float]


def open_rank(
    spec: RLHFJobSpec, gang: Gang, blobs: Blobs, folder: Path, *, attempt: int = 1
) -> Rank:
    """A rank that has not started, staging in `folder`."""
    model, skeleton = Path(spec.model.uri), folder / f"skeleton-{attempt}"
    dtype = DTYPES[spec.model.dtype]
    write_skeleton(skeleton, model=model, tokenizer=model, chat_template=None, dtype=dtype)
    trainer = build_trainer(spec, gang, model)
    reader = Reader(blobs=blobs, spec=spec, rank=0, ranks=1, layout=trainer.rows)
    return Rank(
        uid=UID,
        attempt=attempt,
        trainer=trainer,
        reader=reader,
        lane=Lane(threads=1),
        blobs=blobs,
        clock=VirtualClock(),
        skeleton=skeleton,
        staging=folder,
        verify=False,
        patience=0.0,
    )


class Loop:
    """`rank` has started. `stop`: the token that ends an answer; `seed`: of the samples."""

    def __init__(
        self, spec: RLHFJobSpec, rank: Rank, blobs: Blobs, *, stop: int, seed: int = 0
    ) -> None:
        assert isinstance(spec.algorithm, PolicyGradientSpec)
        self._spec = spec
        self._algorithm = spec.algorithm
        self.rank = rank
        self._blobs = blobs
        self._stop = stop
        self._seed = seed
        self.engine = TorchEngine(Limits(slots=64, width=32, prefix_rows=32))

    async def close(self) -> None:
        """End the engine."""
        await self.engine.close()

    async def step(self, step: int, prompts: Sequence[Sequence[int]], score: Score) -> Stepped:
        """Draw a group for each prompt from the current policy and learn from all of them."""
        policy, index = self.rank.progress.policy, self.rank.progress.index
        assert policy is not None
        assert index is not None
        await load_policy(policy, index, blobs=self._blobs, engine=self.engine, tolerance=1e-3)
        size = self._algorithm.group_size
        texts = [prompt for prompt in prompts for _ in range(size)]
        drawn = await decode(self.engine, [self._wanted(step, i, t) for i, t in enumerate(texts)])
        answers = [drawn[i] for i in range(len(texts))]
        rewards = [score(text, answer.tokens) for text, answer in zip(texts, answers, strict=True)]
        manifest = await self._freeze(step, policy, texts, answers, rewards)
        return Stepped(rewards, await self._learn(manifest))

    def _wanted(self, step: int, i: int, prompt: Sequence[int]) -> Admission:
        policy = self.rank.progress.policy
        assert policy is not None
        return admission(
            policy,
            seq=i,
            prompt=prompt,
            max_new=self._spec.training.max_response_tokens,
            stops=(self._stop,),
            temperature=self._spec.training.temperature,
            noise=b"%d %d %d" % (self._seed, step, i),
        )

    async def _freeze(
        self,
        step: int,
        policy: PolicyRef,
        texts: Sequence[Sequence[int]],
        answers: Sequence[Outcome],
        rewards: Sequence[float],
    ) -> BatchManifest:
        """As the planner does it: shaped rewards, baselines of groups, a layout for one rank."""
        algorithm, size = self._algorithm, self._algorithm.group_size
        candidates: list[Candidate] = []
        for start in range(0, len(texts), size):
            part = range(start, start + size)
            totals = shaped(
                [rewards[i] for i in part],
                [len(answers[i].tokens) for i in part],
                limit=self._spec.training.max_response_tokens,
                penalty=penalty_of(algorithm.length_penalty),
            )
            gains = group_advantages(totals, baseline_of(algorithm))
            for i, gain in zip(part, gains, strict=True):
                key = SampleKey(UID, step, start // size, i - start)
                candidates.append(await self._kept(key, policy, texts[i], answers[i], gain))
        layout = lay_out(
            candidates,
            ranks=1,
            microbatch_tokens=self._spec.training.micro_batch_tokens,
            drop_zero=algorithm.zero_variance == "drop",
            skip_zero=moves_nothing_at_zero(algorithm),
        )
        return BatchManifest(
            job_uid=UID,
            attempt=policy.attempt,
            step=step,
            base=policy,
            rows=layout.rows,
            tokens=layout.tokens,
            sequences=layout.sequences,
            ranks=1,
            microbatches=layout.microbatches,
        )

    async def _kept(
        self, key: SampleKey, policy: PolicyRef, prompt: Sequence[int], answer: Outcome, gain: float
    ) -> Candidate:
        end, n = answer.finished, len(answer.tokens)
        assert {span.policy for span in end.spans} == {policy}
        rollout = Rollout(
            key=key,
            dispatch=end.dispatch,
            prompt_id=str(prompt),
            prompt_tokens=pack_ints(prompt),
            tokens=end.tokens,
            logprobs=end.logprobs,
            action_mask=pack_mask([1] * n),
            spans=end.spans,
            finish=end.finish,
            timings=Timings(0, 0, 0),
            actor="here",
        )
        ref = await self._blobs.put(paths.rollouts(key, end.dispatch), encode(rollout))
        return Candidate(key, ref, n, gain, len(prompt))

    async def _learn(self, manifest: BatchManifest) -> dict[str, float]:
        place = paths.batch(UID, manifest.attempt, manifest.step)
        ref = await self._blobs.put(place, encode(manifest))
        token = LearnToken(manifest.attempt, manifest.step, ref.digest)
        outcome = await self.rank.obey(Learn(Fence(manifest.attempt, 1), token, ref))
        assert isinstance(outcome, Learned), outcome
        return {stat.name: stat.value for stat in outcome.stats}
