"""logs, samples, checkpoints, report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.panel import Panel

from ebbtide.api import LogLine, Sample, SampleWhole
from ebbtide.cli.ending import fail
from ebbtide.cli.show import (
    console,
    print_json,
    print_json_line,
    table,
)
from ebbtide.client import Client
from ebbtide.errors import Refused

_IDS = ("role", "job", "job_uid", "attempt", "pod")
"""What a line's pod says already."""
_LONGEST = 200
NO_CHECKPOINT = (
    "no checkpoint yet: one is committed every checkpoint.everySteps steps, when the job is"
    " suspended (checkpoint.onSuspend), and after the last step"
)
ROLES = ("planner", "decode", "prefill", "reward", "learner")
LEVELS = ("debug", "info", "warning", "error", "critical")


def show_logs(
    name: str,
    *,
    role: str | None,
    pod: str | None,
    tail: int,
    wanted: Wanted,
    follow: bool,
    as_json: bool,
) -> None:
    """Lines with the name of their pod; raises Refused for a role that is none."""
    if role is not None and role not in ROLES:
        raise Refused(f"--role must be one of {', '.join(ROLES)}, not {role}")
    with Client.from_state() as client:
        if follow:
            for line in client.follow_logs(name, role=role, pod=pod, step=wanted.step, tail=tail):
                if wanted.holds(line.text):
                    print_json_line(line) if as_json else print(log_line(line), flush=True)
            return
        found = client.logs(name, role=role, pod=pod, step=wanted.step, tail=tail)
    lines = [line for line in found.items if wanted.holds(line.text)]
    if as_json:
        print_json(found.model_copy(update={"items": lines}))
        return
    if not lines:
        print("no lines")
    for line in lines:
        print(log_line(line))


@dataclass(frozen=True)
class Wanted:
    """Which lines: with this text, and at least of this level (without one: info)."""

    match: str = ""
    level: str = "debug"
    step: int | None = None
    """Asked of the gateway, which looks for its lines; not looked for here."""

    def __post_init__(self) -> None:
        """Raise Refused for a level that is none."""
        if self.level not in LEVELS:
            raise Refused(f"--level must be one of {', '.join(LEVELS)}")

    def holds(self, text: str) -> bool:
        """Whether the line is wanted."""
        if self.match not in text:
            return False
        return LEVELS.index(_level(text)) >= LEVELS.index(self.level)


def _level(text: str) -> str:
    said = _said(text, "level")
    return said if isinstance(said, str) and said in LEVELS else "info"


def _said(text: str, name: str) -> object:
    """A field of a process's line; None where it has none."""
    try:
        return json.loads(text)[name]
    except (ValueError, TypeError, KeyError):
        return None


def log_line(line: LogLine) -> str:
    """The line, after the pod that said it."""
    return f"{line.pod} | {_readable(line.text)}"


def _readable(text: str) -> str:
    """A process's JSON line in words; any other line as it is. --json shows everything."""
    try:
        said = json.loads(text)
        clock = datetime.fromisoformat(said.pop("at")).strftime("%H:%M:%S")
        event, level = said.pop("event"), said.pop("level")
    except (ValueError, TypeError, KeyError, AttributeError):
        return text
    more = (f"{key}={_short(value)}" for key, value in said.items() if key not in _IDS)
    mark = "" if level in ("info", "debug") else f"{level.upper()}: "
    return " ".join([clock, f"{mark}{event}", *more])


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def show_samples(
    name: str, *, step: int | None, purpose: str | None, limit: int, as_json: bool
) -> None:
    """Prompts and answers of one step."""
    if purpose not in (None, "train", "eval"):
        raise Refused("--purpose must be train or eval")
    found: list[Sample] = []
    after: str | None = None
    with Client.from_state() as client:
        while len(found) < limit:
            size = min(100, limit - len(found))
            page = client.samples(name, step=step, purpose=purpose, after=after, limit=size)
            found += page.items
            after = page.next
            if after is None:
                break
        recorded = None if found else client.get(name).spec.get("recorded")
    if not found and step is not None:
        fail(no_samples(step, purpose, recorded))
    if as_json:
        print_json(found)
        return
    if not found:
        print(no_samples(step, purpose, recorded))
    for sample in found:
        console().print(_sample(sample))


def no_samples(step: int | None, purpose: str | None, recorded: dict[str, Any] | None) -> str:
    """Why there is none to show; `recorded` is that of the job's spec."""
    if recorded:
        uid = recorded["uid"]
        return (
            f"this job samples nothing: it learns from the batches of the job with uid {uid};"
            " see `ebbtide samples` of that one (`ebbtide get JOB` shows uids)"
        )
    if step is None and purpose is None:
        return "no samples yet"
    where = "" if step is None else f" in step {step}"
    return f"no {purpose or 'train or eval'} samples{where}, or not yet"


def _sample(sample: Sample) -> Panel:
    score = sample.score
    words = [f"step {sample.step}, group {sample.group}, sample {sample.index}, {sample.purpose}"]
    words += [f"turn {sample.turn}"] if sample.turn else []
    if score.total is None:
        words.append(f"{score.kind} {score.why}".strip())
    else:
        words.append(f"score {score.total:.3f}" + (f" ({score.fault})" if score.fault else ""))
        words += [f"{part.name} {part.value:.3f}" for part in score.parts if len(score.parts) > 1]
    if sample.advantage is not None:
        words.append(f"advantage {sample.advantage:+.3f}")
    versions = ", ".join(sorted({f"v{span.version}" for span in sample.versions}))
    foot = f"{sample.n_tokens} tokens, {sample.finish}, {versions}, {sample.actor}"
    body = f"[dim]{escape(sample.prompt)}[/]\n{escape(sample.response)}"
    return Panel(body, title=escape("; ".join(words)), subtitle=foot, title_align="left")


def show_sample(key: str, *, as_json: bool) -> None:
    """One sample whole."""
    name, *numbers = key.split("/")
    if len(numbers) not in (3, 4) or not all(n.isdecimal() for n in numbers):
        raise Refused(
            "KEY is JOB/STEP/GROUP/INDEX or JOB/STEP/GROUP/INDEX/TURN, such as demo/3/0/1"
        )
    step, group, index, turn = (*map(int, numbers), 0)[:4]
    with Client.from_state() as client:
        found = client.sample(name, step=step, group=group, index=index, turn=turn)
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(_sample(found))
    for line in _story(found):
        out.print(line)


def _story(found: SampleWhole) -> list[str]:
    parts = [f"  {p.name}: {p.value:.4f}, weighted {p.weighted:.4f}" for p in found.score.parts]
    spans = [
        f"  tokens {s.start} to {s.end}: policy {s.version} ({s.digest[:12]})"
        for s in found.versions
    ]
    hands = [
        f"  {h.dispatch} on {h.actor}, policy {h.version}{', accepted' if h.counts else ''}"
        for h in found.hand_outs
    ]
    drawn = [x for x in found.logprobs if x is not None]
    mean = sum(drawn) / len(drawn) if drawn else 0.0
    return [
        *(["score:", *parts] if parts else []),
        *(["drawn from:", *spans]),
        *(["handed out:", *hands] if hands else []),
        (
            f"prompt {escape(found.prompt_id)}: {len(found.prompt_tokens)} tokens; response:"
            f" {found.n_tokens} tokens, mean log-probability {mean:.4f} (--json has each)"
        ),
    ]


def show_checkpoints(name: str, *, as_json: bool) -> None:
    """Committed checkpoints."""
    with Client.from_state() as client:
        found = client.checkpoints(name)
    if as_json:
        print_json(found)
        return
    if not found.items:
        print(NO_CHECKPOINT)
        return
    rows = [
        (
            str(one.step),
            str(one.attempt),
            f"v{one.policy_version}",
            one.policy_digest[:12],
            one.policy_uri or one.policy_path,
        )
        for one in found.items
    ]
    console().print(table((">STEP", ">ATTEMPT", "POLICY", "DIGEST", "FOLDER"), rows))


def write_report(name: str, out: Path, *, as_json: bool) -> None:
    """report.html and report.json."""
    from ebbtide.report import collect, render_html, render_json  # noqa: PLC0415 - only here

    with Client.from_state() as client:
        data = collect(client, name)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.html").write_text(render_html(data), "utf-8")
        (out / "report.json").write_text(render_json(data), "utf-8")
    except OSError as error:
        raise Refused(f"cannot write into {out}: {error.strerror}") from None
    if as_json:
        print((out / "report.json").read_text("utf-8"), end="")
    else:
        print(f"{out / 'report.html'}\n{out / 'report.json'}")
