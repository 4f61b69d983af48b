"""explain: how a step was laid out and why, and what it came to."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from ebbtide.api import StepDecision
from ebbtide.cli.show import console, duration, money, print_json, table
from ebbtide.client import ApiError, Client
from ebbtide.errors import Refused
from ebbtide.reports import CalibrationReport, CandidateReport, DecisionReport, MigrationReport

_HEADS = ("", "RULE", ">ACTORS", ">TIME", ">ONCE WARM", ">ACTOR TIME", ">COST", ">SCORE")


def one_step(placed: int | None, named: int | None) -> int | None:
    """The step, given as an argument or as --step; raises Refused for two that differ."""
    if placed is not None and named not in (None, placed):
        raise Refused(f"step {placed} and --step {named} differ: give one of them")
    return named if placed is None else placed


def show_decision(name: str, *, step: int | None, as_json: bool) -> None:
    """In words, with a table of what was weighed."""
    with Client.from_state() as client:
        found = client.decision(name, step) if step is not None else _last(client, name)
    if as_json:
        print_json(found)
        return
    decision = found.decision
    out = console()
    for line in (*in_words(found.step, decision), *moves_in_words(found.migration)):
        out.print(line, soft_wrap=True)
    if decision.candidates:
        out.print()
        out.print(table(_HEADS, (_row(c, found.currency) for c in decision.candidates)))


def _last(client: Client, name: str) -> StepDecision:
    """Of the step that was committed last; the open one has no report yet."""
    progress = client.get(name).status.get("progress", {})
    newest = int(progress.get("step", 0))
    try:
        return client.decision(name, newest)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return client.decision(name, max(newest - 1, 0))


def in_words(step: int, decision: DecisionReport) -> Iterable[str]:
    """One line for each thing that people ask."""
    yield f"step {step}: {decision.actors} actors ({decision.rule}, {decision.scaling})"
    yield f"why: {decision.reason}"
    yield _saw(decision)
    if decision.prefill:
        yield f"prompts ({decision.prefill}): {decision.prefill_reason}"
    if decision.predicted_decode_seconds is not None:
        yield _came("decoding", decision.predicted_decode_seconds, decision.realised_decode_seconds)
    if decision.predicted_step_seconds is not None:
        yield _came("whole step", decision.predicted_step_seconds, decision.realised_step_seconds)
    if decision.predicted_actor_seconds is not None:
        held = duration(decision.realised_held_seconds)
        busy, said = decision.realised_busy_seconds, decision.predicted_actor_seconds
        yield f"{_came('actors', said, busy)} of decoding, {held} held"
    if decision.calibration is not None:
        yield _lengths(decision.calibration)


def moves_in_words(found: MigrationReport | None) -> Iterable[str]:
    """One line for what became of the moves, and one for each."""
    if found is None:
        return
    came = f"{found.moved} moved ({found.with_kv} with KV, {found.recomputed} computed again)"
    rest = f"{found.finished} finished before, {found.failed} failed"
    yield f"moves ({found.rule}): {found.ordered} ordered, {came}, {rest}"
    for move in found.moves:
        gain = f", gain {move.predicted_gain:.4g}" if move.predicted_gain else ""
        way = f"{move.source} to {move.target}"
        yield f"  after {duration(move.at)}: {move.samples} from {way} ({move.how}{gain})"


def _saw(decision: DecisionReport) -> str:
    asleep = f", {decision.parked} asleep" if decision.parked else ""
    pool = f"{decision.serving} actors there, {decision.loading} coming{asleep}"
    bounds = f"{decision.minimum} to {decision.maximum} allowed"
    start = f"a start takes {duration(decision.start_seconds)}"
    start += f", a wake {duration(decision.wake_seconds)}" if decision.parked else ""
    if not decision.samples:
        return f"it saw: {start}; {decision.profile}"
    unit = "kept together" if decision.together else "split"
    work = f"{decision.samples} samples (groups {unit}), {decision.tokens:.0f} tokens expected"
    longest = f"the longest {decision.longest:.0f}"
    return f"it saw: {work}, {longest}; {pool}, {bounds}; {start}; {decision.profile}"


def _came(what: str, predicted: float, realised: float) -> str:
    error = f" ({predicted / realised - 1:+.0%})" if realised > 0 else ""
    return f"{what}: {duration(predicted)} predicted, {duration(realised)} realised{error}"


def _lengths(found: CalibrationReport) -> str:
    parts = [f"{found.samples} answers, {found.censored} cut by the limit"]
    parts += [f"{_share(found.coverage_p50)} at or below the median"]
    parts += [f"{_share(found.coverage_p90)} at or below P90"]
    parts += [f"error {found.mae:.0f} tokens"] if found.mae is not None else []
    parts += [f"rank correlation {found.rank:.2f}"] if found.rank is not None else []
    parts += [f"{_share(found.tail_recall)} of the longest tenth foreseen"]
    return "lengths: " + ", ".join(parts)


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _row(one: CandidateReport, currency: str) -> tuple[str, ...]:
    return (
        "*" if one.chosen else "",
        one.kind,
        str(one.actors),
        duration(one.seconds),
        duration(one.steady_seconds),
        duration(one.actor_seconds),
        money(one.cost, currency),
        f"{one.score:.4g}",
    )
