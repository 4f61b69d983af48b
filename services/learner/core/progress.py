"""What a learner has done so far: the part of its state that is not tensors."""

from __future__ import annotations

import msgspec

from ebbtide.wire import Learned, LearnToken, PolicyRef, Ref, Stat, Wire

FILE = "progress.msgpack"


class Applied(Wire, frozen=True):
    """An update that is in the parameters and not published yet."""

    token: LearnToken
    stats: tuple[Stat, ...]
    seconds: float


class Published(Wire, frozen=True, tag="published"):
    """Rank 0's word to the others: the parameters are published at `index`, in `seconds`.

    `size`: of all files, bytes.
    """

    policy: PolicyRef
    index: Ref
    seconds: float
    size: int = 0


class Course(Wire, frozen=True):
    """State of an algorithm: the KL coefficient, batches and updates of the critic."""

    kl_coefficient: float | None = None
    critic_steps: int = 0
    critic_updates: int = 0


class Progress(Wire, frozen=True):
    """State after `step` steps; identical on every rank.

    `policy` and `index`: the current publication. `updates`: updates of the optimiser, the
    schedule's position; `skipped`: those that a non-finite gradient voided. `last`: answer to
    the last Learn, so that a repeated token is answered and not run again. `rng`: torch's
    generator on the CPU (nothing draws from it today; restored all the same).
    `course`: what the algorithm has become.
    """

    step: int = 0
    policy: PolicyRef | None = None
    index: Ref | None = None
    updates: int = 0
    skipped: int = 0
    last: Learned | None = None
    applied: Applied | None = None
    rng: bytes = b""
    course: Course = Course()

    def applying(
        self, applied: Applied, *, updates: int, skipped: int, course: Course | None = None
    ) -> Progress:
        """After the optimiser moved: parameters are ahead of `policy` until `publishing`."""
        return msgspec.structs.replace(
            self,
            applied=applied,
            updates=updates,
            skipped=skipped,
            course=course or self.course,
        )

    def next_version(self) -> int:
        """Version of the policy that is published next."""
        if self.policy is None:
            return 0
        return self.policy.n + (self.applied is not None)

    def publishing(self, word: Published) -> Progress:
        """After the parameters were published; ends what `applying` began."""
        policy, index, done = word.policy, word.index, self.applied
        if done is None:
            last = self.last and msgspec.structs.replace(self.last, policy=policy, index=index)
            return msgspec.structs.replace(self, policy=policy, index=index, last=last)
        last = Learned(
            token=done.token,
            policy=policy,
            index=index,
            stats=(
                *done.stats,
                Stat("publish_seconds", word.seconds),
                Stat("publish_bytes", float(word.size)),
            ),
            seconds=done.seconds + word.seconds,
        )
        return msgspec.structs.replace(
            self, step=done.token.step + 1, policy=policy, index=index, last=last, applied=None
        )
