"""profile: measure what the actors of a job can do on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ebbtide.cli import files
from ebbtide.cli.ending import say
from ebbtide.cli.show import console, print_json, table
from ebbtide.errors import Permanent, Refused
from ebbtide.interpreters import VLLM, interpreter, sources
from ebbtide.profiles import Found, ProfileFile, Said, Step, Unfit
from ebbtide.spec import RLHFJobSpec
from ebbtide.spec.check import check

_MODULE = "services.decode.profile"


def profile_job(
    file: Path, *, out: Path, batches: Sequence[int], tokens: int, as_json: bool
) -> None:
    """Measure, write `out`, show what was found."""
    spec = check(files.read(file)).spec
    wrong = [b for b in batches if not 1 <= b <= spec.decode.slots]
    if wrong:
        raise Refused(f"batch {wrong[0]} is not within 1 and decode.slots ({spec.decode.slots})")
    if not out.absolute().parent.is_dir():
        raise Refused(f"cannot write {out}: there is no folder {out.absolute().parent}")
    found = _shown(_conversation(spec, batches, tokens))
    _write(out, found)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    for line in in_words(found):
        console().print(line, soft_wrap=True)
    console().print(table(("BATCH", *(f">{c} TOKENS" for c in found.contexts)), _rows(found)))
    say(f"wrote {out}: name it as decode.profile in the job")


def in_words(found: ProfileFile) -> Iterable[str]:
    """What is beside the table of times per token."""
    stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in found.startup.items())
    rate = found.prefill_seconds_per_token
    speed = f"{1 / rate:.0f} tokens/s" if rate else "no time at all"
    yield f"{found.engine} engine on {found.gpu or 'no device'}: milliseconds a token"
    yield f"start: {stages}; another policy: {found.catch_up_seconds:.2f} s; prefill: {speed}"
    if not found.handover_bytes_per_second:
        yield "KV cannot be handed over: a sample that moves is computed again"
        return
    mib = found.handover_bytes_per_second / 2**20
    yield f"hand-over: {found.kv_bytes_per_token} bytes of KV a token at {mib:.0f} MiB/s"


def _rows(found: ProfileFile) -> Iterator[tuple[str, ...]]:
    for batch, seconds in zip(found.batches, found.seconds, strict=True):
        yield str(batch), *(f"{1000 * s:.3f}" for s in seconds)


def _write(out: Path, found: ProfileFile) -> None:
    part = out.with_name(out.name + ".part")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        part.replace(out)
    except OSError as error:
        raise Refused(f"cannot write {out}: {error.strerror}") from None


def _conversation(spec: RLHFJobSpec, batches: Sequence[int], tokens: int) -> Iterator[Said]:
    """What the measuring process says; raises Permanent where it fails."""
    arguments = [str(time.time()), str(tokens), *map(str, batches)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EBBTIDE_")}
    runtime = VLLM if spec.decode.engine == "vllm" else ""
    if runtime and sources():
        environment["PYTHONPATH"] = sources()
    with subprocess.Popen(  # noqa: S603 - our own module
        [interpreter(runtime, os.environ), "-m", _MODULE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(spec.model_dump_json(by_alias=True).encode())
            process.stdin.close()
            for line in process.stdout:
                yield msgspec.json.decode(line, type=Said)
        except BrokenPipeError:
            pass  # it has ended; its status says how
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()
    if process.returncode:
        raise Permanent(f"measuring failed with status {process.returncode}; see the line above")


def _shown(said: Iterable[Said]) -> ProfileFile:
    """Draw a bar until the profile is there; raises Refused where the job is at fault."""
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)
        for one in said:
            match one:
                case Step(done, of, words):
                    bar.update(task, completed=done, total=of, description=words)
                case Unfit(field, detail):
                    raise Refused(detail, field=field)
                case Found(profile):
                    return profile
    raise Permanent("the measuring process ended without a profile")
