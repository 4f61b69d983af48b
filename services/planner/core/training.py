"""What the planner wants of the learner: one update per step, and checkpoints between (pure)."""

from __future__ import annotations

from ebbtide import paths
from ebbtide.errors import Fenced
from ebbtide.wire import (
    BatchManifest,
    Checkpointed,
    Frozen,
    Learn,
    Learned,
    LearnerBeat,
    LearnerReply,
    LearnToken,
    PolicyRef,
    Ref,
    Refusal,
    Save,
    Saved,
    digest,
    encode,
)
from services.planner.core.batches import freeze, freeze_recorded, freeze_sft
from services.planner.core.checkpoints import is_due, seal, superseded
from services.planner.core.config import Data, JobConfig, Recorded, Sft
from services.planner.core.effects import LEARNER, Forget, Note
from services.planner.core.events import ManifestCommitted
from services.planner.core.learner import LearnerDesk
from services.planner.core.pen import Pen
from services.planner.core.samples import OpenStep


class Training:
    """Orders from the learner, one at a time.

    `failure`: why the job cannot go on, as (reason, message). `unsaved`: the last state whose
    checkpoint was refused, and why, so that it is not asked for again.
    """

    def __init__(self, *, pen: Pen, config: JobConfig, data: Data) -> None:
        self._pen, self._config, self._data = pen, config, data
        patience = config.patience
        self._desk = LearnerDesk(
            deadline=config.deadlines.learn, poll=patience.poll, retry=patience.retry
        )
        self._batch: tuple[BatchManifest, Ref] | None = None
        self._sealing = False
        self._steps: int | None = None
        self.failure: tuple[str, str] | None = None
        self.unsaved: tuple[int, str] | None = None

    @property
    def busy(self) -> bool:
        """Whether the learner works, or its checkpoint is about to be committed."""
        return not self._desk.idle or self._sealing

    @property
    def heard(self) -> LearnerBeat | None:
        """The last heartbeat of this attempt's learner."""
        return self._desk.beat

    @property
    def reference(self) -> str:
        """Digest of the weights that updates are held near; empty: none."""
        return self._pen.book.reference or (self.heard.reference if self.heard else "")

    @property
    def policy(self) -> PolicyRef | None:
        """What the learner says that it holds, or what the job was given instead of one."""
        if given := self._config.given:
            return given.policy
        return self.heard.policy if self.heard else None

    def index_of(self, policy: PolicyRef) -> Ref | None:
        """Where `policy` is published, if the learner says so or the job was given it."""
        if given := self._config.given:
            return given.index if given.policy == policy else None
        return self._desk.index_of(policy)

    def hear(self, beat: LearnerBeat) -> None:
        """Take in a heartbeat of the gang; those of older attempts do not count."""
        if beat.attempt > self._pen.fence.attempt:
            raise Fenced(f"the learner is at attempt {beat.attempt}")
        if beat.attempt == self._pen.fence.attempt:
            self._desk.hear(beat, self._pen.reachable)
            self._steps = beat.step
            if beat.reference and beat.reference != self.reference:
                self.failure = model_changed(self.reference, beat.reference)

    # --- updates ----------------------------------------------------------------------------------

    def freeze(self, step: OpenStep) -> BatchManifest:
        """Fix the closed step's batch for good; after a crash, the very same one again."""
        attempt = self._pen.fence.attempt
        match self._config.work:
            case Sft():
                manifest = freeze_sft(step, config=self._config, data=self._data, attempt=attempt)
            case Recorded():
                manifest = freeze_recorded(step, config=self._config, attempt=attempt)
            case _:
                manifest = freeze(step, config=self._config, attempt=attempt)
        data = encode(manifest)
        path = paths.batch(self._config.job_uid, attempt, step.plan.step)
        ref = Ref(path, digest(data), len(data))
        if self._pen.book.frozen is None:
            self._pen.blob(path, data)
            self._pen.write(Frozen(step.plan.step, ref))
        self._batch = (manifest, self._pen.book.frozen or ref)
        return manifest

    def learn(self, step: OpenStep) -> None:
        """Have the learner update from the frozen batch, unless it is busy; once it is free, do."""
        if self.busy or self._batch is None:
            return
        _, ref = self._batch
        token = LearnToken(self._pen.fence.attempt, step.plan.step, ref.digest)
        self._desk.give(Learn(self._pen.fence, token, ref), self._pen.reachable)

    # --- checkpoints ------------------------------------------------------------------------------

    def save_if_due(self, *, always: bool) -> None:
        """Save the present state if it should be and is not; `always`: whatever its number."""
        step = min(self._pen.book.next_step, self._config.total_steps)
        wanted = is_due(step, self._config) or (always and step > 0)
        if not wanted or self.busy or self.saved(step):
            return
        if given := self._config.given:  # nobody has shards to write: the planner's part is all
            self._seal(Saved(self._pen.fence.attempt, step, given.policy, given.index, (), 0.0))
        elif self._is_at_base():
            self._desk.give(Save(self._pen.fence, step), self._pen.reachable)

    def _seal(self, saved: Saved) -> None:
        self._sealing = True
        for effect in seal(saved, self._pen.book, self._config):
            self._pen.do(effect)

    def saved(self, step: int) -> bool:
        """Whether nothing more will be done to save the state after `step` updates."""
        given_up = self.unsaved is not None and self.unsaved[0] == step
        return given_up or self._pen.book.has_checkpoint(step)

    def _is_at_base(self) -> bool:
        """The learner's state is that of the last commit: it has not learned further yet."""
        return self._steps == min(self._pen.book.next_step, self._config.total_steps)

    def committed(self, event: ManifestCommitted) -> None:
        """A checkpoint is real: note it, and let go of those that it supersedes."""
        if not self._sealing:
            return
        self._sealing = False
        self._pen.write(Checkpointed(event.step, event.ref))
        self._pen.progress_at = self._pen.now
        gone = superseded(self._pen.book, self._config)
        if gone:
            self._pen.do(Forget(gone))

    # --- time and replies -------------------------------------------------------------------------

    def tick(self) -> None:
        """Give up what takes too long."""
        if self._desk.late(self._pen.reachable):
            self._refused("LearnerTimeout", "the learner did not answer in time")

    def ask(self) -> None:
        """Ask for what was ordered, if it is time to."""
        order = self._desk.to_ask(self._pen.reachable)
        if order:
            order.call = self._pen.send(LEARNER, order.command, self._config.patience.learner)

    def replied(self, call: int, reply: LearnerReply | None) -> Learned | None:
        """Take in the learner's reply; returns the update, once it is done."""
        saving = self._desk.saving
        match self._desk.answered(call, reply, self._pen.reachable):
            case Learned() as learned:
                self._steps = learned.token.step + 1
                return learned
            case Saved() as saved:
                self._seal(saved)
            case Refusal(code=code, detail=detail):
                self._refused("LearnRefused", f"{code}: {detail}", saving=saving)
        return None

    def batch(self) -> BatchManifest | None:
        """What the learner was last given, for the report."""
        return self._batch[0] if self._batch else None

    def closed(self) -> None:
        """The step is committed: its batch is history."""
        self._batch = None

    def _refused(self, reason: str, message: str, *, saving: bool | None = None) -> None:
        """A lost checkpoint is no reason to stop before the end; a lost update is."""
        if self._desk.saving if saving is None else saving:
            step = min(self._pen.book.next_step, self._config.total_steps)
            self.unsaved = (step, message)
            self._pen.do(Note("checkpoint refused", {"step": step, "why": message}))
        else:
            self.failure = (reason, message)
        self._desk.give_up()


def model_changed(was: str, is_now: str) -> tuple[str, str]:
    """Why a job ends whose initial weights are others than those that it began with."""
    return "ModelChanged", (
        f"model.uri: the weights there changed since the job began ({was[:12]} then, "
        f"{is_now[:12]} now); put the old ones back, or start another job"
    )
