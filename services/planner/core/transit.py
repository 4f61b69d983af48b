"""Samples on their way from one actor to another, and what became of each move (pure).

A move: a place is kept at the target, the source is told to cut with the target as the reader,
and the Cut fact hands the sample on, with its ticket if one came. All else is read off the step:
a sample that finished first, or whose hand-out was lost, moves no more; one whose target cannot
have it goes to whoever can, and computes. Nothing of this is in the ledger, nor needs to be: a
planner that takes over finds samples that run, or cut ones with the reader's name on the ticket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ebbtide.reports import MigrationReport, MoveReport
from ebbtide.wire import Cut, Dispatch
from services.planner.core.handouts import Handouts
from services.planner.core.pen import Pen
from services.planner.core.planning.migration import Move
from services.planner.core.samples import ACCEPTED, INVALID, OUT, VALUED, WAITING, OpenStep

_TELL_SECONDS = 2.0
"""A cut that brought no fact is told again so often: it, or the fact, may be lost."""
_TIMEOUT = 20.0
"""Then the move is dropped: an actor closes a cut in ten seconds at most."""
_REST = 10.0
"""A sample that was moved, or was to be, stays where it is for so many seconds."""
_SHOWN = 200
"""Moves that a report shows, at most."""


class Going(msgspec.Struct):
    """A sample whose source was told to cut hand-out `code` at `ordered`, and last at `told`."""

    code: int
    source: str
    target: str
    reader: str
    ordered: float
    told: float


class Landing(msgspec.Struct, frozen=True):
    """Handed on by hand-out `code`; what it has is not yet seen in the target's journal."""

    code: int
    ordered: float
    kv_tokens: int


class Transit:
    """Of the open step. Counts: moved (kv | recompute), finished before the cut, failed."""

    def __init__(self, *, pen: Pen, handouts: Handouts) -> None:
        self._pen, self._handouts, self._crew = pen, handouts, handouts.crew
        self._step: OpenStep | None = None
        self._begin(None)

    def _begin(self, step: OpenStep | None) -> None:
        for going in self._going.values() if self._step else ():
            self._free(going)
        self._step = step
        self._going: dict[int, Going] = {}
        self._landing: dict[int, Landing] = {}
        self._rests: dict[int, float] = {}
        self._counts: Counter[str] = Counter()
        self._pause = 0.0
        self._moves: list[MoveReport] = []

    def _of(self, step: OpenStep) -> None:
        if step is not self._step:
            self._begin(step)

    # --- what a rule must know --------------------------------------------------------------------

    def leaving(self, step: OpenStep) -> set[int]:
        """Samples that are being cut."""
        self._of(step)
        return set(self._going)

    def coming(self, step: OpenStep, name: str) -> list[int]:
        """Samples on their way to this actor."""
        self._of(step)
        return [sample for sample, going in self._going.items() if going.target == name]

    def rests(self, sample: int) -> bool:
        """Whether it was moved lately, or was to be."""
        return self._pen.now < self._rests.get(sample, 0.0)

    # --- a move -----------------------------------------------------------------------------------

    def order(self, step: OpenStep, moves: Sequence[Move], *, opened: float) -> None:
        """Begin these moves: reserve, then cut. `opened`: when the step was, for the report."""
        self._of(step)
        fit = [move for move in moves if self._may_move(step, move)]
        for move in fit:
            self._reserve(step, move)
        self._tell(step, [move.sample for move in fit])
        self._note(fit, self._pen.now - opened)

    def _may_move(self, step: OpenStep, move: Move) -> bool:
        sample = move.sample
        here = step.states[sample] == OUT and step.actors[sample] == move.source != move.target
        there = self._crew.get(move.target)
        busy = sample in self._going or self.rests(sample)
        return here and not busy and there is not None and there.serves(step.plan.policy)

    def _reserve(self, step: OpenStep, move: Move) -> None:
        now, reader = self._pen.now, move.target if move.how == "kv" else ""
        code = step.codes[move.sample]
        going = Going(code, move.source, move.target, reader, ordered=now, told=now)
        self._going[move.sample] = going
        self._rests[move.sample] = now + _TIMEOUT + _REST
        target = self._crew.get(move.target)
        assert target is not None, "a target serves"
        target.reserved.add(move.sample)

    def _tell(self, step: OpenStep, samples: Sequence[int]) -> None:
        by_pair: dict[tuple[str, str], list[Dispatch]] = {}
        for sample in samples:
            going, hand = self._going[sample], step.hands[sample]
            assert hand is not None, "a sample that is out has a hand-out"
            by_pair.setdefault((going.source, going.reader), []).append(hand)
        for (source, reader), dispatches in by_pair.items():
            self._handouts.cut(source, dispatches, reader=reader)

    def was_cut(self, step: OpenStep, sample: int, fact: Cut) -> None:
        """The sample waits again, with its journal; hand it on to whom it was meant for."""
        self._of(step)
        if fact.ticket is not None:
            self._handouts.tickets.keep(sample, fact.ticket, self._pen.now)
        going = self._going.pop(sample, None)
        if going is not None:
            self._free(going, sample)
        target = going.target if going else fact.ticket.reader if fact.ticket else ""
        assert step.states[sample] == WAITING, "what was cut waits"
        if not target:
            return
        self._counts["ordered"] += going is None
        if self._handouts.hand(step, sample, target):
            self._landed(step, sample, going.ordered if going else self._pen.now)
        else:
            self._failed(sample)
            self._elsewhere(step, sample, fact.actor)

    def _landed(self, step: OpenStep, sample: int, ordered: float) -> None:
        hand_on, now = step.actors[sample], self._pen.now
        ticket = self._handouts.tickets.of(sample, hand_on, step.plan.policy, now)
        tokens = ticket.key.n_tokens if ticket else 0
        self._landing[sample] = Landing(step.codes[sample], ordered, tokens)
        self._rests[sample] = now + _REST

    def _elsewhere(self, step: OpenStep, sample: int, source: str) -> None:
        """Its target cannot have it: whoever has least goes on; the source if nobody else can."""
        others = sorted(self._crew.working(), key=lambda a: (a.name == source, len(a.out)))
        for other in others:
            if self._handouts.hand(step, sample, other.name):
                return

    def _free(self, going: Going, sample: int | None = None) -> None:
        target = self._crew.get(going.target)
        if target is not None:
            target.reserved -= target.reserved if sample is None else {sample}

    def _failed(self, sample: int) -> None:
        self._counts["failed"] += 1
        self._rests[sample] = self._pen.now + _REST

    # --- time -------------------------------------------------------------------------------------

    def tick(self, step: OpenStep) -> None:
        """Drop moves that came to nothing, see how others ended, tell cuts again."""
        self._of(step)
        for sample, going in list(self._going.items()):
            if self._is_over(step, sample, going):
                del self._going[sample]
                self._free(going, sample)
        for sample, landing in list(self._landing.items()):
            self._look(step, sample, landing)
        now = self._pen.now
        silent = [s for s, going in self._going.items() if now - going.told >= _TELL_SECONDS]
        for sample in silent:
            self._going[sample].told = now
        self._tell(step, silent)

    def _is_over(self, step: OpenStep, sample: int, going: Going) -> bool:
        late = self._pen.now - going.ordered >= _TIMEOUT
        if step.codes[sample] == going.code and step.states[sample] == OUT and not late:
            return False
        if step.states[sample] in (ACCEPTED, VALUED, INVALID):
            self._counts["finished"] += 1
        else:
            self._failed(sample)
        return True

    def _look(self, step: OpenStep, sample: int, landing: Landing) -> None:
        """Whether the target has what the source had, or went on to the end."""
        hand, journal = step.hands[sample], step.journals[sample]
        ours = step.codes[sample] == landing.code
        ended = step.states[sample] in (ACCEPTED, VALUED, INVALID)
        runs = step.states[sample] == OUT and journal is not None and journal[0] == hand
        if ours and (ended or runs):
            self._counts["kv" if landing.kv_tokens else "recompute"] += 1
            self._counts["kv_tokens"] += landing.kv_tokens
            self._pause += self._pen.now - landing.ordered
        elif not ours or step.states[sample] != OUT:
            self._failed(sample)
        else:
            return
        del self._landing[sample]

    # --- what came of it --------------------------------------------------------------------------

    def _note(self, moves: Sequence[Move], at: float) -> None:
        by_way: dict[tuple[str, str, str], list[Move]] = {}
        for move in moves:
            by_way.setdefault((move.source, move.target, move.how), []).append(move)
        for (source, target, how), some in by_way.items():
            self._counts["ordered"] += len(some)
            shown = MoveReport(
                at=max(0.0, at),
                source=source,
                target=target,
                samples=len(some),
                how="kv" if how == "kv" else "recompute",
                predicted_seconds=max(move.seconds for move in some),
                predicted_gain=some[0].gain,
            )
            self._moves += [shown] if len(self._moves) < _SHOWN else []

    def report(self, step: OpenStep, rule: str, bytes_per_token: int) -> MigrationReport | None:
        """What this planner moved in the step; None: it was not to move anything."""
        self.tick(step)
        counts = self._counts
        if rule == "none" and not counts:
            return None
        tokens = counts["kv_tokens"]
        return MigrationReport(
            rule=rule,
            ordered=counts["ordered"],
            moved=counts["kv"] + counts["recompute"],
            with_kv=counts["kv"],
            recomputed=counts["recompute"],
            finished=counts["finished"],
            failed=counts["failed"],
            kv_tokens=tokens,
            kv_bytes=tokens * bytes_per_token if bytes_per_token else None,
            pause_seconds=self._pause,
            moves=tuple(self._moves),
        )
