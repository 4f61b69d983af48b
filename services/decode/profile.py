"""Measures the engine of a job: `python -m services.decode.profile BEGAN TOKENS [BATCH...] < spec.json`.

A process of its own, as an actor is: the engine has the job's threads, slots and device, and
the start-up is timed by stages. BEGAN: when the process was asked for, unix seconds. Writes
`ebbtide.profiles.Said` to standard output, one JSON line each; exit status 2: the job is at fault.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.errors import EbbtideError, Refused
from ebbtide.exits import EXIT_PERMANENT, EXIT_REFUSED
from ebbtide.profiles import Found, ProfileFile, Said, Step, Unfit, check_profile
from ebbtide.spec import RLHFJobSpec
from ebbtide.transfer.shm import in_host
from services.decode.app.profiling import READER, Subject, Wires, measure
from services.decode.app.rehearsal import publish
from services.decode.core.measuring import default_batches
from services.decode.engine import make_engine

_VOCABULARY = 256
_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Exit code of the process."""
    began, tokens = float(arguments[0]), int(arguments[1])
    spec = RLHFJobSpec.model_validate_json(sys.stdin.buffer.read(), strict=False)
    stages = {"process": max(time.time() - began, 0.0)}
    batches = [int(b) for b in arguments[2:]] or default_batches(spec.decode.slots)
    try:
        _say(Found(asyncio.run(_profile(spec, batches, tokens, stages))))
    except Refused as refused:
        _say(Unfit(refused.field, refused.detail))
        return EXIT_REFUSED
    except EbbtideError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_PERMANENT
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


async def _profile(
    spec: RLHFJobSpec, batches: Sequence[int], tokens: int, stages: dict[str, float]
) -> ProfileFile:
    width = spec.dataset.max_prompt_tokens + spec.training.max_response_tokens
    if tokens >= width:
        why = f"{tokens} tokens a point do not fit an engine for {width}"
        raise Refused(why, field="/spec/training/maxResponseTokens")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ebbtide-profile-")))
        _say(Step(0, 1, "preparing the model"))
        stages["imports"] = _seconds(lambda: _import(spec))
        policy, index = publish(spec, folder / "policy"), folder / "policy" / INDEX_NAME
        _say(Step(0, 1, "starting the engine"))
        started = time.perf_counter()
        engine = make_engine(spec, clock=SystemClock())
        stack.push_async_callback(engine.close)
        await engine.load(policy, index)
        stages["engine"] = time.perf_counter() - started
        vocab = _vocabulary(folder / "policy")
        file = await measure(
            Subject(engine, policy, index, width, vocab),
            batches=batches,
            tokens=tokens,
            wires=_wires(stack),
            said=lambda done, of, words: _say(Step(done, of, words)),
            names={
                "engine": spec.decode.engine,
                "model": spec.model.uri,
                "gpu": _device(spec),
            },
            startup=stages,
        )
    check_profile(file)
    return file


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _import(spec: RLHFJobSpec) -> None:
    """What the engine will import; where actors are forked from a warm parent this is saved."""
    if spec.decode.engine != "emulated":
        importlib.import_module(f"ebbtide.engines.{spec.decode.engine}.engine")


def _wires(stack: AsyncExitStack) -> Wires | None:
    """Two holders in this machine's shared memory, where there is any."""
    try:
        ends = [in_host(name=name, clock=SystemClock()) for name in ("profile-writer", READER)]
    except OSError:
        return None
    for end in ends:
        stack.push_async_callback(end.close)
    return Wires(*ends)


def _vocabulary(folder: Path) -> int:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except FileNotFoundError:
        return _VOCABULARY
    return int(config.get("text_config", config)["vocab_size"])


def _device(spec: RLHFJobSpec) -> str:
    """The GPU's name, or the kind of CPU time it had; empty for an emulated engine."""
    if spec.decode.engine == "emulated":
        return ""
    import torch  # noqa: PLC0415 - the engine has it already

    if spec.decode.device != "cpu" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"cpu, {spec.decode.threads} threads"


def _say(said: Said) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
