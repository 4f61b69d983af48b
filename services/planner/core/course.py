"""The course of a job: which phase it is in, and what takes it to the next (pure).

starting -> plan -> decode -> score -> learn -> plan ... -> closing -> ended. Each move happens as
soon as what is known allows it, and leaves its trace in the ledger before anybody acts on it; so
a planner that starts anew finds its phase from the ledger alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ebbtide.wire import Aged, Committed, Extended, Learned, PolicyRef, Ref, StepOpened
from services.planner.core.adoption import adopt
from services.planner.core.config import Data, Grpo, JobConfig
from services.planner.core.cost import Meter, spent
from services.planner.core.counting import CountMeter
from services.planner.core.effects import Finish, LoadPrompts, Report
from services.planner.core.events import PromptsLoaded
from services.planner.core.handouts import Handouts
from services.planner.core.intake import Intake
from services.planner.core.judging import decision_report
from services.planner.core.layout import Layout
from services.planner.core.pen import Pen
from services.planner.core.plans import Prompts, sft_plan, with_reference
from services.planner.core.prefills import PrefillMeter
from services.planner.core.refilling import drawn, lacking, refills
from services.planner.core.reporting import Ending, Marks, Update, report
from services.planner.core.samples import ACCEPTED, OUT, VALUED, WAITING, OpenStep
from services.planner.core.scoring import ScoringDesk
from services.planner.core.training import Training, model_changed

STARTING, PLAN, DECODE, SCORE, LEARN, CLOSING, ENDED = (
    "starting",
    "plan",
    "decode",
    "score",
    "learn",
    "closing",
    "ended",
)
_PROMPTS_SECONDS = 30.0


class Course:
    """Owns the phase; moves it by `advance`. `outcome` is set once the job has ended."""

    def __init__(
        self,
        *,
        pen: Pen,
        config: JobConfig,
        data: Data,
        handouts: Handouts,
        intake: Intake,
        scoring: ScoringDesk,
        training: Training,
        meter: Meter,
        layout: Layout | None,
        prefill_meter: PrefillMeter,
        counts: CountMeter,
    ) -> None:
        self._pen, self._config, self._data = pen, config, data
        self._handouts, self._intake, self._scoring = handouts, intake, scoring
        self._training, self._meter = training, meter
        self._prefill_meter, self._counts = prefill_meter, counts
        self._prompts = Prompts(config=config, data=data)
        self._prompts_at = -math.inf
        self._aged_at = self._grace_until = pen.reachable
        self._layout = layout
        self._suspending = False
        self.marks = Marks(committed=pen.now)
        self.last_reward: float | None = None
        self.phase = STARTING
        self.outcome: Finish | None = None
        self._moves = {
            STARTING: self._start,
            PLAN: self._plan,
            DECODE: self._decoded,
            SCORE: self._scored,
            CLOSING: self._close,
        }

    @property
    def suspended(self) -> bool:
        """Everything that should outlive the pods is saved, and nothing new begins."""
        if not self._suspending or self.phase == LEARN or self._training.busy:
            return False
        step = min(self._pen.book.next_step, self._config.total_steps)
        saves = self._config.save_on_suspend and self.phase != STARTING and step > 0
        return not saves or self._training.saved(step)

    @property
    def shown_phase(self) -> str:
        """The phase as people see it: before the first hand-out, actors take in the policy."""
        return "sync" if self.phase == DECODE and not self.marks.handed_out else self.phase

    def suspend(self) -> None:
        """Begin nothing new."""
        self._suspending = True

    def begin(self) -> None:
        """Take up what the ledger left: called once, before the first event."""
        step = self._pen.book.open
        if step is None:
            return
        self.marks.opened = self._pen.now
        self._aged_at = self._pen.reachable
        self._grace_until = self._pen.reachable + self._config.patience.lease
        adopt(self._pen, step)
        self._handouts.adopt(step)
        self._lay_out(step)
        for sample in step.where(ACCEPTED):
            waited = step.age - step.accepted_at[sample]
            self._scoring.resume(sample, waited, self._pen.reachable)
            self._intake.request(step, sample)
        self._intake.ask()

    def loaded(self, event: PromptsLoaded) -> None:
        """Prompts were read."""
        self._prompts.loaded(event)

    def advance(self) -> None:
        """Move as far as what is known allows."""
        while self.outcome is None and self._move():
            pass
        if self.outcome is None:
            self._keep_going()

    def age(self) -> None:
        """Note now and then how much time the step has had; give up what is late."""
        step = self._pen.book.open
        if step is None or self.phase not in (DECODE, SCORE):
            return
        age = step.age + self._pen.reachable - self._aged_at
        if age - step.age >= self._config.patience.note:
            self._pen.write(Aged(step.plan.step, age))
            self._aged_at = self._pen.reachable
        if age > self._config.deadlines.step:
            self._abandon_late(step)

    def keep_pool(self) -> None:
        """Time passes: the pool stays at what pays."""
        step = self._pen.book.open
        if self._layout is None or step is None or self._suspending:
            return
        if self.phase == DECODE:
            self._layout.decoding(step)
        elif self.phase in (SCORE, LEARN):
            began = self.marks.closed if self.phase == LEARN else self.marks.decoded
            passed = self._pen.now - (began or self._pen.now)
            learning = passed if self.phase == LEARN else None
            self._layout.learning(step, scored=passed, learning=learning)

    def _abandon_late(self, step: OpenStep) -> None:
        """Give up what is not decoded; a planner that took over hears first what has come."""
        if self.phase == DECODE and self._pen.reachable >= self._grace_until:
            for sample in [*step.where(WAITING), *step.where(OUT)]:
                self._intake.abandon(step, sample, "step deadline")

    def end(self, outcome: str, reason: str, message: str = "") -> None:
        """The job ends here."""
        self.outcome = Finish(outcome, reason, message)
        self.phase = ENDED
        self._pen.do(self.outcome)

    # --- moves ------------------------------------------------------------------------------------

    @property
    def _last(self) -> int:
        return self._config.last_step

    def _move(self) -> bool:
        """Make the next move, if there is one now; whether there was."""
        if self._training.failure:
            self.end("failed", *self._training.failure)
        waits = self._suspending and self.phase in (PLAN, SCORE)
        move = self._moves.get(self.phase)
        return move is not None and not waits and move()

    def _keep_going(self) -> None:
        """What has no end: fill actors, keep the learner at its work."""
        step = self._pen.book.open
        if self.phase == DECODE and step is not None and not self._suspending:
            sent = self._handouts.fill(step)
            self.marks.handed_out = self.marks.handed_out or (self._pen.now if sent else 0.0)
        if self.phase != STARTING:
            always = self._suspending and self._config.save_on_suspend
            self._training.save_if_due(always=always)
        if self.phase == LEARN and step is not None:
            self._training.learn(step)
        self._training.ask()

    def _start(self) -> bool:
        """Go on once it is known what to sample from and where that is published."""
        book, held = self._pen.book, self._training.policy
        if book.open is not None and not book.open.undecoded:
            self.phase = DECODE  # and beyond: nothing is left to sample
            return True
        policy = book.policy or held
        index = self._index(policy) if policy else None
        if policy is None or index is None:
            return False
        if book.restored and held is None:
            return False  # it is still restoring: nothing is sampled before it has
        if book.restored and held != policy:
            self.end("failed", "RestoreMismatch", "the learner restored another policy")
            return False
        if book.next_step == 0 and book.initial not in ("", policy.digest):
            self.end("failed", *model_changed(book.initial, policy.digest))
            return False
        self._want(policy, index)
        self.phase = DECODE if book.open else PLAN
        return True

    def _index(self, policy: PolicyRef) -> Ref | None:
        return self._training.index_of(policy) or self._pen.book.index

    def _want(self, policy: PolicyRef, index: Ref) -> None:
        book = self._pen.book
        book.policy, book.index = policy, index
        if isinstance(self._config.work, Grpo) and book.next_step <= self._last:
            self._handouts.want(policy, index)

    def _plan(self) -> bool:
        book = self._pen.book
        assert book.policy is not None
        if book.next_step > self._last:
            self.phase = CLOSING
            return True
        if not isinstance(self._config.work, Grpo):
            plan = sft_plan(self._config, self._data, book.next_step, book.policy, book.cursor)
        elif self._prompts.ready(book.next_step):
            plan = self._prompts.take(book.next_step, book.policy, book.cursor)
        else:
            self._read_prompts(book.next_step, book.cursor)
            return False
        self._pen.write(StepOpened(with_reference(plan, self._training.reference)))
        assert book.open is not None
        self._open(book.open)
        return True

    def _open(self, step: OpenStep) -> None:
        self._intake.begin()
        self.marks.opened = self._pen.now
        self._aged_at = self._pen.reachable
        self._adopt(step)
        self._lay_out(step)
        if not refills(self._config):
            self._read_ahead(step)
        self.phase = DECODE

    def _adopt(self, step: OpenStep) -> None:
        """What an earlier attempt accepted for this step serves it, and may have to be scored."""
        adopt(self._pen, step)
        for sample in step.where(ACCEPTED):
            self._scoring.ask(sample, self._pen.reachable)
            self._intake.request(step, sample)
        self._intake.ask()

    def _lay_out(self, step: OpenStep) -> None:
        if self._layout is not None:
            self._layout.open(step)

    def _read_prompts(self, step: int, cursor: int) -> None:
        self._ask_prompts(step, lambda: self._prompts.request(step, cursor))

    def _ask_prompts(self, step: int, ask: Callable[[], LoadPrompts | None]) -> None:
        if self._pen.now - self._prompts_at > _PROMPTS_SECONDS:
            self._prompts.again(step)
        request = ask()
        if request:
            self._prompts_at = self._pen.now
            self._pen.do(request)

    def _read_ahead(self, step: OpenStep) -> None:
        """Have the next step's prompts at hand before it begins."""
        if isinstance(self._config.work, Grpo):
            self._read_prompts(step.plan.step + 1, step.plan.data_cursor + drawn(step))

    def _decoded(self) -> bool:
        step = self._pen.book.open
        if step is None or step.undecoded:
            return False
        self.marks.decoded = self._pen.now
        self.phase = SCORE
        return True

    def _scored(self) -> bool:
        step = self._pen.book.open
        if step is None or step.open_groups:
            return False
        missing = lacking(step, self._config, frozen=self._pen.book.frozen is not None)
        if missing:
            return self._refill(step, missing)
        self.marks.closed = self._pen.now
        if step.plan.step >= self._config.total_steps:
            self._commit(step, None)
        elif self._has_value(step):
            self._training.freeze(step)
            self.phase = LEARN
            if refills(self._config):
                self._read_ahead(step)  # only now is it known where the next step begins
            if self._config.given:
                self._commit(step, None)  # nobody learns from it
        return True

    def _refill(self, step: OpenStep, missing: int) -> bool:
        """Draw other prompts in place of groups that teach nothing, once they are read."""
        number = step.plan.step
        if not self._prompts.ready(number):
            self._ask_prompts(number, lambda: self._prompts.request_more(step, missing))
            return False
        self._pen.write(Extended(number, self._prompts.take_more(step)))
        self._adopt(step)
        if self._layout is not None:
            self._layout.extended(step)
        self.phase = DECODE
        return True

    def _has_value(self, step: OpenStep) -> bool:
        """A whole step without one reward teaches nothing: better to stop and say why."""
        if not isinstance(self._config.work, Grpo):
            return True
        train = (i for i in step.where(VALUED) if step.group(i).purpose == "train")
        if next(train, None) is not None:
            return True
        why = "; ".join(f"{n} x {reason}" for reason, n in self._intake.why.most_common(3))
        self.end(
            "failed", "NothingValued", f"no sample of step {step.plan.step} has a reward: {why}"
        )
        return False

    def _close(self) -> bool:
        """The last checkpoint is all that is missing."""
        total = self._config.total_steps
        if not self._training.saved(total) or self._training.busy:
            return False
        unsaved = self._training.unsaved
        if unsaved and not self._pen.book.has_checkpoint(total):
            self.end("failed", "CheckpointFailed", unsaved[1])
        else:
            self.end("complete", "Complete")
        return False

    # --- commits ----------------------------------------------------------------------------------

    def learned(self, learned: Learned) -> None:
        """The update of the open step is done and published."""
        step = self._pen.book.open
        if self.phase == LEARN and step is not None:
            self._commit(step, learned)
            self.advance()

    def _commit(self, step: OpenStep, learned: Learned | None) -> None:
        """The step is over: its cost, its commit, its report; the next policy goes out."""
        book, now = self._pen.book, self._pen.now
        policy, index = (learned.policy, learned.index) if learned else (book.policy, book.index)
        assert policy is not None
        assert index is not None
        stretches = self._meter.cut(now)
        costs = list(spent(step.plan.step, stretches, self._meter.waste_shares()))
        for record in costs:
            self._pen.write(record)
        self._pen.write(Committed(step.plan.step, policy, index))
        manifest = self._training.batch()
        ending = Ending(
            step=step,
            attempt=book.attempt,
            epoch=book.epoch,
            policy=policy,
            marks=self.marks,
            now=now,
            stretches=stretches,
            spent=costs,
            evaluation=next((e for e in book.evals if e.step == step.plan.step), None),
            update=Update(manifest, learned) if manifest and learned else None,
            economy=self._config.economy,
            job_uid=self._config.job_uid,
            decision=decision_report(
                step, lengths=book.lengths, marks=self.marks, now=now, stretches=stretches
            ),
            prefill=self._prefill_meter.taken(),
            counted=self._counts.taken(),
            threshold=book.threshold,
            migration=self._layout.moved(step) if self._layout else None,
        )
        done = report(ending)
        if self._layout is not None:
            self._layout.committed(step, done, trained=done.kind != "eval")
        self.last_reward = done.rewards.mean if done.rewards else self.last_reward
        self._pen.do(Report(done, self.marks.opened))
        self._training.closed()
        self._scoring.clear()
        self.marks = Marks(committed=now)
        self._pen.progress_at = now
        self.phase = PLAN
        self._want(policy, index)
