"""cost, and the estimate of `validate`: tables, JSON and CSV."""

from __future__ import annotations

import csv
import sys

from ebbtide.api import CostPart, CostReport, Estimate
from ebbtide.cli.show import console, duration, money, print_json, table
from ebbtide.client import Client
from ebbtide.errors import Refused

KEYS = ("role", "actor", "pool", "capacity", "cause")


def show_cost(
    name: str,
    *,
    by: list[str],
    first_step: int | None,
    last_step: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Seconds and money in groups, of all or of some steps."""
    unknown = sorted(set(by) - set(KEYS))
    if unknown:
        raise Refused(f"--by must be one of {', '.join(KEYS)}, not {unknown[0]}")
    if as_json and as_csv:
        raise Refused("--json and --csv cannot both be given")
    keys = tuple(dict.fromkeys(by)) or ("role", "cause")
    with Client.from_state() as client:
        found = client.cost(name, by=keys, first_step=first_step, last_step=last_step)
    if as_json:
        print_json(found)
    elif as_csv:
        _print_csv(found, keys)
    else:
        _print_table(found, keys)


def _print_csv(found: CostReport, keys: tuple[str, ...]) -> None:
    """An unknown cost is an empty field."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*keys, "seconds", "cost", "currency"])
    for part in found.parts:
        cost = "" if part.cost is None else part.cost
        writer.writerow([*_names(part, keys), part.seconds, cost, found.currency])


def _print_table(found: CostReport, keys: tuple[str, ...]) -> None:
    rows = [
        (*_names(part, keys), duration(part.seconds), money(part.cost, found.currency))
        for part in found.parts
    ]
    out = console()
    out.print(table((*map(str.upper, keys), ">HELD", ">COST"), rows))
    held = f"{duration(found.held_seconds)} of pods, all together"
    out.print(f"\ntotal {money(found.total, found.currency)} for {held}")
    for note in [*_pieces(found), *_notes(found)]:
        out.print(note)


def _names(part: CostPart, keys: tuple[str, ...]) -> list[str]:
    return [getattr(part, key) for key in keys]


def _pieces(found: CostReport) -> list[str]:
    pieces = {
        "a step": found.per_step,
        "1,000 accepted tokens": found.per_thousand_tokens,
        "a point of reward gained": found.per_reward_point,
    }
    return [f"{money(c, found.currency)} for {what}" for what, c in pieces.items() if c is not None]


def _notes(found: CostReport) -> list[str]:
    notes = []
    if found.window:
        notes.append(f"of the steps {found.window.first_step} to {found.window.last_step} alone")
    if found.unpriced_seconds > 0:
        held = duration(found.unpriced_seconds)
        notes.append(f"{held} have no price: add the pool to spec.prices")
    if found.over_attributed_seconds > 1:
        over = duration(found.over_attributed_seconds)
        notes.append(f"causes explain {over} more than was held: please report this")
    return notes


def show_estimate(found: Estimate) -> None:
    """Time, cost and memory, as far as they are known."""
    out = console()
    counted = ", ".join(f"{n} {role}" for role, n in found.members.items())
    out.print(f"\nprocesses: {counted}")
    time = "unknown" if found.seconds is None else duration(found.seconds)
    out.print(f"time: {time} ({found.basis})")
    hourly = money(found.cost_per_hour, found.currency)
    out.print(f"cost: {money(found.cost, found.currency)}; while all runs {hourly} an hour")
    if found.parameters is None:
        out.print("memory: unknown (the model's files are not seen from there)")
        return
    out.print(f"memory of each member, for {found.parameters:,} parameters:\n")
    rows = [
        (one.role, str(one.members), part, _size(size))
        for one in found.memory
        for part, size in [*one.parts.items(), ("in all", one.total)]
    ]
    out.print(table(("ROLE", ">MEMBERS", "PART", ">SIZE"), rows))


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes all")
