"""samples --by: figures of samples that are alike."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from ebbtide.api import Slice, SliceList
from ebbtide.cli.results import show_samples
from ebbtide.cli.show import console, print_json, table
from ebbtide.client import Client
from ebbtide.errors import Refused

KEYS = ("step", "purpose", "task", "length", "prompts", "policy", "reward", "sign", "age")
_HEADS = {"reward": "REWARD VERSION"}
"""Keys whose name is that of a figure beside them."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `samples` was asked for; `by` and `since` are for groups, `limit` for single ones."""

    by: list[str]
    since: int | None
    step: int | None
    purpose: str | None
    limit: int
    as_json: bool


def show(name: str, wanted: Wanted) -> None:
    """Single samples, or groups of them."""
    unknown = sorted(set(wanted.by) - set(KEYS))
    if unknown:
        raise Refused(f"--by must be one of {', '.join(KEYS)}, not {unknown[0]}")
    if wanted.purpose not in (None, "train", "eval"):
        raise Refused("--purpose must be train or eval")
    if wanted.by:
        _show_slices(name, wanted)
    elif wanted.since is not None:
        raise Refused("--since needs --by; single samples are of one --step")
    else:
        show_samples(
            name,
            step=wanted.step,
            purpose=wanted.purpose,
            limit=wanted.limit,
            as_json=wanted.as_json,
        )


def _show_slices(name: str, wanted: Wanted) -> None:
    with Client.from_state() as client:
        found = client.read(
            f"/v1/jobs/{quote(name, safe='')}/slices",
            SliceList,
            {
                "by": wanted.by,
                "firstStep": wanted.since,
                "lastStep": wanted.step,
                "purpose": wanted.purpose,
            },
        )
    if wanted.as_json:
        print_json(found)
        return
    out = console()
    out.print(table(columns(found), [_row(one, found.by) for one in found.items]))
    span = f"steps {found.first_step} to {found.last_step}"
    out.print(f"\n{sum(one.samples for one in found.items)} samples of {span}")


def columns(found: SliceList) -> tuple[str, ...]:
    """Heads of the table: what was grouped by, then the figures."""
    figures = (">SAMPLES", ">REWARD", ">+-", ">PASSED", ">TOKENS", ">CUT", ">FAULTY")
    return (*(_HEADS.get(key, key.upper()) for key in found.by), *figures)


def _row(one: Slice, by: list[str]) -> tuple[str, ...]:
    return (
        *(one.key[key] or "unknown" for key in by),
        str(one.samples),
        "unknown" if one.reward is None else f"{one.reward:.3f}",
        "" if one.reward_std is None else f"{one.reward_std:.3f}",
        f"{one.passed / one.valued:.0%}" if one.valued else "unknown",
        f"{one.tokens:.1f}",
        str(one.truncated),
        str(one.faulty),
    )
