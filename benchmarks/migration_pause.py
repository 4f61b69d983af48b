"""What a sample loses by moving to an engine in another process (see `migration`)."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from benchmarks.migration import Line
from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.policies import INDEX_NAME, read_index
from ebbtide.engines.publication import tied_names, write_publication
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.ports import Admission, EngineCut, EngineEvent, Imported, NewTokens, Resumed
from ebbtide.testing.engines import admission
from ebbtide.transfer.shm import ShmTransfer
from ebbtide.wire import Dispatch

LENGTHS, TURNS = (128, 1024), 7
LIMITS = Limits(slots=4, width=2048, flush_tokens=1, flush_seconds=1e9)
CONFIG = Qwen2Config(
    vocab_size=80,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)


def target(line: Connection, root: Path) -> None:
    """The process that goes on: says when it drew the first token, on the host's clock."""
    asyncio.run(_target(line, root))


async def _target(line: Connection, root: Path) -> None:
    engine, transfer = await _engine(root), _transfer("target", root)
    line.send(os.getpid())
    while (asked := line.recv()) is not None:
        moved, ticket = asked
        pulled = await transfer.pull(ticket, wanted=ticket.key, seconds=10.0)
        kv = pulled.kv if isinstance(pulled, Imported) else None
        engine.submit(msgspec.structs.replace(moved, kv=kv))
        await _first(engine, moved.assign.dispatch)
        line.send((time.monotonic(), engine.stats().prefill_imported))
        engine.cut(moved.assign.dispatch)
        await _cut(engine)
    await engine.close()
    await transfer.close()


async def pauses(root: Path) -> list[tuple[int, int, float]]:
    """For each length: tokens, bytes, median seconds from the cut to the other's first token."""
    root.mkdir()  # noqa: ASYNC240 - in shared memory, nothing else runs
    torch.set_num_threads(1)
    _publish(root)
    line = Line(target, root)
    engine, transfer = await _engine(root), _transfer("source", root)
    line.pipe.recv()
    rows = []
    for length in LENGTHS:
        samples = [_sample(root, length, turn) for turn in range(TURNS)]
        turns = [await _move(engine, transfer, line, sample) for sample in samples]
        rows.append((length, turns[0][0], statistics.median(pause for _, pause in turns)))
    line.close()
    await engine.close()
    await transfer.close()
    return rows


async def _move(
    engine: TorchEngine, transfer: ShmTransfer, line: Line, sample: Admission
) -> tuple[int, float]:
    """Bytes handed over, and the pause."""
    engine.submit(sample)
    await _first(engine, sample.assign.dispatch)
    began = time.monotonic()
    engine.cut(sample.assign.dispatch, export=True)
    cut = await _cut(engine)
    if cut.kv is None:
        raise RuntimeError("the cut brought no KV")
    ticket = await transfer.export(cut.kv, reader="target", seconds=30.0)
    assign = msgspec.structs.replace(
        sample.assign, dispatch=Dispatch(1, 2, sample.assign.dispatch.seq)
    )
    resumed = Resumed(cut.tokens, cut.logprobs, cut.spans)
    line.pipe.send((Admission(assign, sample.prompt, resumed), ticket))
    drawn, imported = line.pipe.recv()
    transfer.held()
    if not imported:
        raise RuntimeError("the target computed instead")
    return cut.kv.data.nbytes, drawn - began


def _sample(root: Path, length: int, turn: int) -> Admission:
    policy = read_index(engine_index(root)).policy
    prompt = [2 + (i + turn) % 70 for i in range(length - 1)]
    return admission(policy, seq=length * 100 + turn, prompt=prompt, max_new=1024)


async def _first(engine: TorchEngine, dispatch: Dispatch) -> None:
    """Until the first new token of `dispatch`."""
    while True:
        events = await engine.events(timeout=10.0)
        if any(isinstance(e, NewTokens) and e.dispatch == dispatch for e in events):
            return


async def _cut(engine: TorchEngine) -> EngineCut:
    while True:
        events: list[EngineEvent] = list(await engine.events(timeout=10.0))
        for event in events:
            if isinstance(event, EngineCut):
                return event


async def _engine(root: Path) -> TorchEngine:
    torch.set_num_threads(1)
    engine = TorchEngine(LIMITS)
    path = engine_index(root)
    await engine.load(read_index(path).policy, path)
    return engine


def engine_index(root: Path) -> Path:
    """Where the model of this benchmark is published."""
    return root / "policy" / INDEX_NAME


def _transfer(name: str, root: Path) -> ShmTransfer:
    return ShmTransfer(name=name, epoch=1, clock=SystemClock(), root=root)


def _publish(root: Path) -> None:
    build: Any = AutoModelForCausalLM.from_config
    folder, model = root / "policy", build(CONFIG).eval()
    model.config.save_pretrained(folder)
    write_publication(
        folder,
        model.state_dict(),
        tied_names(model),
        policy_n=0,
        attempt=1,
        probe_tokens=b"",
        probe_logprobs=b"",
    )
