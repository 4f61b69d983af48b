"""Greedy tokens of one text computed in one go, and begun elsewhere; in float32.

vLLM: moved by its tokens. Torch engine: prompts from another engine, and samples that were cut and
go on with their keys and values; both handed over by NIXL.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch

from benchmarks.vllm_side.work import PATIENCE, VOCAB, WIDTH, build_model, publish
from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.engines.vllm.engine import VllmEngine
from ebbtide.engines.vllm.limits import VllmLimits
from ebbtide.ports import Admission, Engine, EngineCut, Imported, KvData, NewTokens
from ebbtide.testing.engines import Outcome, admission, decode, outcomes
from ebbtide.transfer.nixl import over_nixl
from ebbtide.wire import PolicyRef, pack_ints

TEXTS, LONGEST = 100, 48
Answers = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Task:
    """Texts to be answered greedily by one policy."""

    policy: PolicyRef
    index: Path
    prompts: Sequence[Sequence[int]]

    def ask(self, n: int, *, turn: int, resumed: EngineCut | None = None) -> Admission:
        """Text `n`, as a dispatch of its own in each turn."""
        return admission(
            self.policy,
            seq=turn * TEXTS + n,
            prompt=self.prompts[n],
            max_new=LONGEST,
            temperature=0.0,
            resumed=resumed,
        )


def make_prompts() -> list[list[int]]:
    """8 to 40 tokens each."""
    rng = np.random.default_rng(7)
    return [
        [int(t) for t in rng.integers(2, VOCAB, size=rng.integers(8, 41))] for _ in range(TEXTS)
    ]


def answers(found: Mapping[int, Outcome], turn: int) -> Answers:
    """Tokens by text."""
    return {n: found[turn * TEXTS + n].tokens for n in range(TEXTS)}


async def locally(engine: Engine, task: Task) -> Mapping[int, Outcome]:
    """Turn 0."""
    await engine.load(task.policy, task.index)
    return await decode(engine, [task.ask(n, turn=0) for n in range(TEXTS)], patience=PATIENCE)


async def by_tokens(engine: Engine, task: Task, first: Mapping[int, Outcome]) -> Answers:
    """Each goes on after 1 to 47 of its tokens, in an engine that has nothing of it."""
    await engine.load(task.policy, task.index)
    moved = [task.ask(n, turn=1, resumed=_cut(first[n], 1 + n % (LONGEST - 1))) for n in first]
    return answers(await decode(engine, moved, patience=PATIENCE), 1)


def _cut(outcome: Outcome, tokens: int) -> EngineCut:
    end = outcome.finished
    (span,) = end.spans
    return EngineCut(
        end.dispatch,
        end.tokens[: 4 * tokens],
        end.logprobs[: 4 * tokens],
        (msgspec.structs.replace(span, end=tokens),),
    )


class Wire:
    """From one engine's process to another's, by NIXL."""

    def __init__(self) -> None:
        self._ends = [over_nixl(name=n, clock=SystemClock(), host="127.0.0.1") for n in ("a", "b")]

    async def carry(self, kv: KvData) -> KvData:
        """What arrives at the other end."""
        source, target = self._ends
        ticket = await source.export(kv, reader="b", seconds=60.0)
        pulled = await target.pull(ticket, wanted=ticket.key, seconds=20.0)
        assert isinstance(pulled, Imported), pulled
        return pulled.kv

    async def close(self) -> None:
        for end in self._ends:
            await end.close()


async def by_prompt(source: Engine, target: Engine, task: Task, wire: Wire) -> Answers:
    """The other engine computes the prompts."""
    await target.load(task.policy, task.index)
    given = []
    for n, prompt in enumerate(task.prompts):
        kv = await wire.carry(await source.prefill(task.policy, pack_ints(prompt)))
        given.append(msgspec.structs.replace(task.ask(n, turn=2), kv=kv))
    found = answers(await decode(target, given), 2)
    assert target.stats().prefill_imported > 0, "nothing was imported"
    return found


async def by_migration(source: Engine, target: Engine, task: Task, wire: Wire) -> Answers:
    """Cut after its first tokens, and resumed with its keys and values."""
    await target.load(task.policy, task.index)
    cut = await _all_cut(source, [task.ask(n, turn=3) for n in range(TEXTS)])
    given = []
    for n in range(TEXTS):
        end = cut[3 * TEXTS + n].end
        assert isinstance(end, EngineCut), "it was cut at its first tokens"
        assert end.kv is not None, "it was asked for"
        kv = await wire.carry(end.kv)
        given.append(msgspec.structs.replace(task.ask(n, turn=4, resumed=end), kv=kv))
    return answers(await decode(target, given), 4)


async def _all_cut(engine: Engine, many: Sequence[Admission]) -> Mapping[int, Outcome]:
    events, ended = [], 0
    for one in many:
        engine.submit(one)
    while ended < len(many):
        for event in await engine.events(timeout=1.0):
            events.append(event)
            if isinstance(event, NewTokens):
                engine.cut(event.dispatch, export=True)
            else:
                ended += 1
    return outcomes(events)


async def compare(folder: Path) -> dict[str, int]:
    """Of each way the texts whose tokens are those of the engine that had it all."""
    index = publish(build_model(torch.float32), folder, 0)
    task = Task(index.policy, folder / INDEX_NAME, make_prompts())
    vllm = VllmEngine(VllmLimits(slots=TEXTS, width=WIDTH, kv_bytes=256 << 20))
    first = await locally(vllm, task)
    found = {"vLLM, moved by its tokens": _alike(first, await by_tokens(vllm, task, first))}
    await vllm.close()
    limits = Limits(slots=TEXTS, width=WIDTH, flush_tokens=4)
    source, target, wire = TorchEngine(limits), TorchEngine(limits), Wire()
    plain = await locally(source, task)
    found["torch, prompt handed over"] = _alike(plain, await by_prompt(source, target, task, wire))
    moved = await by_migration(source, target, task, wire)
    found["torch, moved with keys and values"] = _alike(plain, moved)
    found["vLLM as torch"] = _alike(plain, answers(first, 0))
    for each in (source, target, wire):
        await each.close()
    return found


def _alike(first: Mapping[int, Outcome], other: Answers) -> int:
    return sum(list(tokens) == first[n].tokens for n, tokens in other.items())


def main() -> None:
    """Print the numbers as JSON."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(compare(Path(folder)))))


if __name__ == "__main__":
    main()
