"""The page of a simulation: sections with the charts that a job's report has (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebbtide.report import charts
from ebbtide.report.charts import Axes, Bar, Line
from ebbtide.report.page import render_page
from ebbtide.report.sections import Section
from services.planner.simulate.prefill import Prefill
from services.planner.simulate.results import Results, Saving
from services.planner.simulate.scenario import Scenario
from services.planner.simulate.statistics import Point
from services.planner.simulate.summary import Summary

_CAUSES = ("busy", "loading", "idle", "draining", "wasted")
_LEFT = 150
_SHOWN = ("static", "rlhfless", "ours", "ours-tail", "ours-spot")
_MOST_ROWS = 40


def render(
    summary: Summary,
    results: Results,
    fronts: Mapping[str, Sequence[Point]],
    savings: Sequence[Saving],
    prefill: Prefill | None,
) -> str:
    """report.html."""
    scenario = results.scenario
    sections = [
        times(results),
        costs(results),
        *([pareto(fronts)] if fronts else []),
        *([causes(savings)] if savings else []),
        *[timeline(results, name) for name in results.names if name in _SHOWN],
        *([prompts(prefill)] if prefill is not None else []),
        *_basis(scenario),
    ]
    return render_page(scenario.name, summary.lines, summary.tiles, sections)


def times(results: Results) -> Section:
    """Decoding and the rest of the step, per policy."""
    rows = []
    bars = []
    for name in results.names:
        decode, whole = results.of(name, "decode_seconds"), results.of(name, "step_seconds")
        beside = max(whole.mean - min(decode.mean, whole.mean), 0.0)
        shown = min(decode.mean, whole.mean)
        parts = (("decoding", "c1", shown), ("other phases", "c0", beside))
        bars.append(Bar(name, parts, f"{whole.mean:.1f} s"))
        rows.append(
            (name, decode.words(2), whole.words(2), results.ratio(name, "step_seconds").words())
        )
    return Section(
        title="Step time",
        note="Mean seconds per step over all seeds, with 95 % confidence intervals in the table.",
        svg=charts.bars(Axes("Step time", "Seconds per policy.", "seconds", ""), bars, left=_LEFT),
        legend=(("c1", "decoding"), ("c0", "other phases")),
        columns=("policy", "decoding s", "step s", "step, of static"),
        rows=tuple(rows),
    )


def costs(results: Results) -> Section:
    """GPU-seconds of actors by cause, and dollars."""
    bars, rows = [], []
    for name in results.names:
        parts = tuple((c, f"c-{c}", max(results.of(name, c).mean, 0.0)) for c in _CAUSES)
        held = results.of(name, "held").mean
        bars.append(Bar(name, parts, f"{held:.0f}"))
        money = results.of(name, "dollars")
        dollars = money.words(4) if results.scenario.priced else "price unknown"
        rows.append((name, results.ratio(name, "decoding").words(), f"{held:.1f}", dollars))
    return Section(
        title="Cost",
        note="GPU-seconds for which actors are held in a step, by what they do; idle includes"
        " waiting for the learner. Dollars are those of all roles.",
        svg=charts.bars(Axes("Cost", "GPU-seconds by cause.", "GPU-seconds", ""), bars, left=_LEFT),
        legend=tuple((f"c-{cause}", cause) for cause in _CAUSES),
        columns=(
            "policy",
            "GPU-seconds of decoding, of static",
            "actors' GPU-seconds",
            "dollars a step",
        ),
        rows=tuple(rows),
    )


def pareto(fronts: Mapping[str, Sequence[Point]]) -> Section:
    """Each policy over its own parameter."""
    drawn = [
        Line(name, f"c{number}", tuple((100 * p.time, 100 * p.cost) for p in sorted(points)))
        for number, (name, points) in enumerate(fronts.items(), start=1)
    ]
    return Section(
        title="Time against cost",
        note="Decoding alone, in percent of static; each line goes over the policy's own"
        " parameter: number of actors, lambda, value of time. Left and low is better.",
        svg=charts.lines(
            Axes("Time against cost", "Fronts.", "time, % of static", "cost, % of static"), drawn
        ),
        legend=tuple((line.css, line.name) for line in drawn),
        columns=("policy", "setting", "time, %", "cost, %"),
        rows=tuple(
            (name, p.setting, f"{100 * p.time:.1f}", f"{100 * p.cost:.1f}")
            for name, points in fronts.items()
            for p in sorted(points)
        ),
    )


def causes(savings: Sequence[Saving]) -> Section:
    """What each cause saves."""
    bars = [
        Bar(s.cause, ((s.cause, "c3", max(s.gpu_seconds, 0.0)),), f"{s.share:.1%}") for s in savings
    ]
    return Section(
        title="Savings by cause",
        note="GPU-seconds of actors per step, from static to ours; each cause beside those above"
        " it, so that the order matters. What is negative buys time.",
        svg=charts.bars(
            Axes("Savings by cause", "GPU-seconds.", "GPU-seconds", ""), bars, left=230
        ),
        legend=(("c3", "saved"),),
        columns=("cause", "GPU-seconds", "of static"),
        rows=tuple((s.cause, f"{s.gpu_seconds:.2f}", f"{s.share:.2%}") for s in savings),
    )


def timeline(results: Results, name: str) -> Section:
    """Who did what in the last step of the first seed."""
    last = results.seeds[0].steps[name][-1]
    actors = sorted({span.actor for span in last.spans})[:_MOST_ROWS]
    bars = []
    for actor in actors:
        spans = [s for s in last.spans if s.actor == actor]
        parts = tuple((s.cause, f"c-{s.cause}", s.end - s.start) for s in spans)
        bars.append(Bar(f"actor {actor}", parts, f"{spans[-1].end:.1f} s"))
    more = f" The first {_MOST_ROWS} of {last.actors}." if last.actors > len(actors) else ""
    return Section(
        title=f"Actors under {name}",
        note=f"While the last step of the first seed decodes.{more}",
        svg=charts.bars(Axes(f"Actors under {name}", "Timeline.", "seconds", ""), bars),
        legend=tuple((f"c-{cause}", cause) for cause in _CAUSES[:4]),
        columns=("actor", "does", "from", "to"),
        rows=tuple(
            (str(s.actor), s.cause, f"{s.start:.2f}", f"{s.end:.2f}")
            for s in last.spans
            if s.actor in actors
        ),
    )


def prompts(found: Prefill) -> Section:
    """Prompt tokens by how beginnings are shared."""
    ways = (
        ("nothing shared", found.needed),
        ("caches of engines", found.engine_caches),
        (f"one length of {found.length} blocks", found.single_length),
        ("trie", found.trie),
    )
    bars = [Bar(name, ((name, "c2", tokens),), f"{tokens:.3g}") for name, tokens in ways]
    return Section(
        title="Prompt tokens",
        note="To compute in the first step, with the prompts on the actors of `static`.",
        svg=charts.bars(
            Axes("Prompt tokens", "By way of sharing.", "tokens", ""), bars, left=_LEFT
        ),
        legend=(("c2", "tokens"),),
        columns=("shared by", "tokens"),
        rows=tuple((name, f"{tokens:.0f}") for name, tokens in ways),
    )


def _basis(scenario: Scenario) -> list[Section]:
    rows = [("known", line) for line in scenario.known]
    rows += [("assumed", line) for line in scenario.assumed]
    if not rows:
        return []
    return [
        Section(
            title="What this rests on",
            note="; ".join(f"{kind}: {line}" for kind, line in rows),
            svg="",
            legend=(),
            columns=("", "what"),
            rows=tuple(rows),
        )
    ]
