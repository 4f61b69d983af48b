"""`dedup`: prompt tokens that engines compute when one service prefills for several actors.

Groups of 8 siblings with prompts of 256 to 384 tokens are split over two actors, as a step's
groups may be when answers differ in length. A torch engine computes each prompt once and exports it to each actor; the
actors' torch engines import it once, fork it to the siblings, and decode. What all engines counted
as computed, over what they would have computed without sharing anything. Beside it, the same
samples on the same actors without the service: their own caches alone.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import torch

from benchmarks.harness import Measured
from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.ports import Admission, Imported, KvData
from ebbtide.testing.engines import admission, decode
from ebbtide.testing.tiny_models import Tiny, publish_tiny, qwen2
from ebbtide.transfer.shm import ShmTransfer
from ebbtide.wire import EngineStats

ACTORS, PROMPTS, GROUP, SHORTEST, ANSWER = 2, 12, 8, 256, 8
LIMITS = Limits(slots=16, width=512, prefix_rows=PROMPTS)


def measure() -> Measured:
    """Share of the tokens that no sharing at all would compute, in percent."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ebbtide-dedup-") as folder:
        config = qwen2()
        config.max_position_embeddings = LIMITS.width
        tiny = publish_tiny(Path(folder) / "policy", config=config)
        shared = asyncio.run(_run(tiny, Path(folder) / "kv", service=True))
        alone = asyncio.run(_run(tiny, Path(folder) / "none", service=False))
    needed = GROUP * sum(len(prompt) - 1 for prompt in _prompts())
    rows = [_row("one service", shared, needed), _row("each actor's cache", alone, needed)]
    for found in (shared, alone):
        if (
            sum(s.prefill_shared + s.prefill_imported for s in found[1:])
            + sum(s.prefill_tokens for s in found[1:])
            != needed
        ):
            raise RuntimeError("the engines' counters do not add up to what was needed")
    return Measured(
        value=100 * sum(s.prefill_tokens for s in shared) / needed,
        columns=["prompts computed by", "needed", "computed", "imported", "shared", "%"],
        rows=rows,
    )


def _prompts() -> list[list[int]]:
    """Of several lengths; none begins like another."""
    lengths = [SHORTEST + 128 * n // (PROMPTS - 1) for n in range(PROMPTS)]
    return [[3 + (n + 7 * i) % 50 for i in range(length)] for n, length in enumerate(lengths)]


async def _run(tiny: Tiny, root: Path, *, service: bool) -> list[EngineStats]:
    """What the service's and the actors' engines counted, in that order."""
    root.mkdir()  # noqa: ASYNC240 - nothing else runs
    names = ["service", *(f"actor-{n}" for n in range(ACTORS))]
    engines = {name: TorchEngine(LIMITS) for name in names}
    transfers = {
        name: ShmTransfer(name=name, epoch=1, clock=SystemClock(), root=root) for name in names
    }
    for engine in engines.values():
        await engine.load(tiny.policy, tiny.path)
    samples = _samples(tiny)
    held = await _tickets(tiny, engines["service"], transfers, samples) if service else {}
    for name, theirs in samples.items():
        await decode(engines[name], [_with(held.get(name, {}), each) for each in theirs])
    for transfer in transfers.values():
        await transfer.close()
    for engine in engines.values():
        await engine.close()
    return [engines[name].stats() for name in names]


def _samples(tiny: Tiny) -> dict[str, list[Admission]]:
    """Each group's siblings in turn over the actors."""
    found: dict[str, list[Admission]] = {f"actor-{n}": [] for n in range(ACTORS)}
    for group, prompt in enumerate(_prompts()):
        for index in range(GROUP):
            sample = admission(
                tiny.policy, seq=group * GROUP + index, prompt=prompt, max_new=ANSWER
            )
            found[f"actor-{index % ACTORS}"].append(sample)
    return found


async def _tickets(
    tiny: Tiny,
    engine: TorchEngine,
    transfers: Mapping[str, ShmTransfer],
    samples: Mapping[str, Sequence[Admission]],
) -> dict[str, dict[bytes, KvData]]:
    """Each prompt computed once, and pulled once by each actor that has samples of it."""
    prompts = list(dict.fromkeys(each.prompt for theirs in samples.values() for each in theirs))
    kvs = await asyncio.gather(*(engine.prefill(tiny.policy, prompt) for prompt in prompts))
    found: dict[str, dict[bytes, KvData]] = {name: {} for name in samples}
    for name, theirs in samples.items():
        wanted = {each.prompt for each in theirs}
        for prompt, kv in zip(prompts, kvs, strict=True):
            if prompt in wanted:
                found[name][prompt] = await _hand_over(transfers, name, kv)
    return found


async def _hand_over(transfers: Mapping[str, ShmTransfer], reader: str, kv: KvData) -> KvData:
    ticket = await transfers["service"].export(kv, reader=reader, seconds=60.0)
    pulled = await transfers[reader].pull(ticket, wanted=kv.key, seconds=10.0)
    if isinstance(pulled, Imported):
        return pulled.kv
    raise RuntimeError(f"not pulled: {pulled.why}")


def _with(held: Mapping[bytes, KvData], sample: Admission) -> Admission:
    return msgspec.structs.replace(sample, kv=held.get(sample.prompt))


def _row(who: str, stats: Sequence[EngineStats], needed: int) -> list[object]:
    computed = sum(each.prefill_tokens for each in stats)
    imported = sum(each.prefill_imported for each in stats)
    shared = sum(each.prefill_shared for each in stats[1:])
    return [who, needed, computed, imported, shared, 100 * computed / needed]
