"""The engine port over vLLM's AsyncLLM, whose event loop has a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ebbtide.engines.mailbox import Events, Seen
from ebbtide.engines.publication import read_publication
from ebbtide.engines.samples import open_sample
from ebbtide.engines.vllm.limits import FLOATS, VllmLimits, check_device, check_fit
from ebbtide.engines.vllm.meter import Meter
from ebbtide.engines.vllm.requests import Live
from ebbtide.engines.vllm.served import Served, device_memory
from ebbtide.errors import Corrupt, EbbtideError, Permanent, Refused
from ebbtide.ports import Admission, EngineCaps, EngineEvent, EngineFailed, KvData, Loaded
from ebbtide.wire import Dispatch, EngineStats, PolicyIndex, PolicyRef, pack_floats, unpack_ints

A = TypeVar("A")


class VllmEngine:
    """Serves one policy at a time from a publication; implements `ebbtide.ports.Engine`.

    The first `load` starts vLLM on the publication's folder; later ones load the weights of theirs
    into the running engine. A vLLM that broke under samples fails them, then `events` raises
    Permanent: the actor ends and another takes its place, for this one would fail whatever came.
    """

    def __init__(self, limits: VllmLimits, *, now: Callable[[], float] = time.perf_counter) -> None:
        self._limits = limits
        self._events = Events()
        self._loop = asyncio.new_event_loop()
        self._desk = _Desk(limits, self._events, now)
        self._thread = threading.Thread(target=self._run, name="vllm-engine", daemon=True)
        self._thread.start()

    @property
    def caps(self) -> EngineCaps:
        return EngineCaps(
            positional_noise=False,
            kv_export=False,
            block_size=self._limits.block_size,
            kv_layout="",
            sleeps=False,
        )

    async def load(self, policy: PolicyRef, index: Path) -> Loaded:
        return await self._call(self._desk.load(policy, index))

    def submit(self, admission: Admission) -> None:
        self._loop.call_soon_threadsafe(self._desk.submit, admission)

    def cut(self, dispatch: Dispatch, *, export: bool = False) -> None:  # noqa: ARG002
        self._loop.call_soon_threadsafe(self._desk.cut, dispatch)

    async def prefill(self, policy: PolicyRef, tokens: bytes) -> KvData:  # noqa: ARG002
        raise Refused("vLLM's keys and values cannot be exported", field="/prompt")

    async def events(self, timeout: float) -> Sequence[EngineEvent]:
        return await self._events.collect(timeout)

    def stats(self) -> EngineStats:
        return self._desk.stats()

    async def sleep(self) -> None:
        raise Refused("a vLLM engine does not sleep here")

    async def close(self) -> None:
        if self._thread.is_alive():
            await self._call(self._desk.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)

    async def _call(self, work: Coroutine[Any, Any, A]) -> A:
        answer: Future[A] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(answer)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class _Desk:
    """All that happens in the loop's thread. `stats` may be called from any."""

    def __init__(self, limits: VllmLimits, events: Events, now: Callable[[], float]) -> None:
        self._limits, self._events, self._now = limits, events, now
        self._meter = Meter(now)
        self._seen = Seen()
        self._live: dict[Dispatch, Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._served: Served | None = None
        self._built: tuple[bytes, str] | None = None
        self._policy: PolicyRef | None = None
        self._number = self._computed = self._drawn = self._shared = 0

    # --- policies ---------------------------------------------------------------------------------

    async def load(self, policy: PolicyRef, path: Path) -> Loaded:
        """Serve nothing, then verify, then load, then score the probe with what was loaded."""
        if self._live:
            raise Refused("a policy is loaded only while idle")
        self._policy = None
        try:
            index = await asyncio.to_thread(_verified, policy, path)
            served = await self._filled(index, path.parent)
            scored = await self._probe(served, index)
        except EbbtideError:
            raise
        except Exception as error:
            self._drop()
            raise Permanent(f"vLLM did not load policy {policy.n}: {error!r}") from error
        self._policy = index.policy
        return Loaded(index.policy, scored)

    async def _filled(self, index: PolicyIndex, folder: Path) -> Served:
        """The running vLLM with the folder's weights; started anew if the architecture changed."""
        config = _config_bytes(folder)
        wanted = (config, self._dtype(index))
        if self._served and self._built == wanted and not self._served.broken:
            async with asyncio.timeout(self._limits.sync_seconds):
                await self._served.adopt(folder)
            return self._served
        self._drop()
        shape: Mapping[str, Any] = json.loads(config)
        check_fit(shape, self._limits)
        self._check_device(shape, index, wanted[1])
        longest = self._limits.longest(shape)
        self._served = await Served.start(folder, wanted[1], longest, self._limits, self._meter)
        self._built = wanted
        return self._served

    def _check_device(self, shape: Mapping[str, Any], index: PolicyIndex, dtype: str) -> None:
        if memory := device_memory(self._limits):
            shapes = [tensor.shape for tensor in index.tensors]
            check_device(shape, self._limits, shapes=shapes, dtype=dtype, memory=memory)

    def _dtype(self, index: PolicyIndex) -> str:
        if self._limits.dtype != "auto":
            return self._limits.dtype
        kinds = Counter(t.dtype for t in index.tensors if t.dtype in FLOATS)
        if not kinds:
            raise Corrupt("the publication has no floating-point tensor that vLLM takes")
        return kinds.most_common(1)[0][0]

    async def _probe(self, served: Served, index: PolicyIndex) -> bytes:
        tokens = unpack_ints(index.probe_tokens)
        if len(tokens) < 2:
            return b""
        if len(tokens) > self._limits.width or not 0 <= tokens.min() <= tokens.max() < served.vocab:
            raise Corrupt(f"the probe of {len(tokens)} tokens does not fit model or engine")
        async with asyncio.timeout(self._limits.sync_seconds):
            return pack_floats(await served.score(tokens))

    def _drop(self) -> None:
        served, self._served, self._built = self._served, None, None
        if served:
            served.stop()

    # --- samples ----------------------------------------------------------------------------------

    def submit(self, admission: Admission) -> None:
        if self._seen.first(admission.assign.dispatch):
            self._events.post(self._submitted(admission))

    def _submitted(self, admission: Admission) -> list[EngineEvent]:
        policy, served, dispatch = self._policy, self._served, admission.assign.dispatch
        if policy is None or served is None or admission.assign.policy != policy:
            detail = f"policy {admission.assign.policy.n} was asked for, loaded is {_held(policy)}"
            return [EngineFailed(dispatch, "policy", detail)]
        try:
            sample = open_sample(
                admission, vocab=served.vocab, width=self._limits.width, now=self._now()
            )
        except Refused as refused:
            return [EngineFailed(dispatch, "prompt", refused.detail)]
        if sample.ended:
            return [sample.finished_as_it_came(policy, self._now())]
        self._number += 1
        live = self._live[dispatch] = Live(sample, policy, f"sample-{self._number}")
        self._spawn(self._follow(served, live))
        return []

    def cut(self, dispatch: Dispatch) -> None:
        live, served = self._live.get(dispatch), self._served
        if live and served and not live.cut:
            live.cut = True
            self._spawn(served.abort(live))

    async def _follow(self, served: Served, live: Live) -> None:
        """From adding it to its one terminal event."""
        try:
            flushed = self._now()
            async for output in served.run(live):
                self._count(live, live.take(output))
                late = self._now() - flushed >= self._limits.flush_seconds
                if late or len(live.tokens) - live.told >= self._limits.flush_tokens:
                    self._events.post(live.news())
                    flushed = self._now()
            end: EngineEvent = live.ended()
        except Exception as error:  # noqa: BLE001 - whatever happened, the sample ends
            end = EngineFailed(live.sample.dispatch, "engine", f"vLLM failed: {error!r}")
            if not served.broken:
                self._spawn(served.abort(live))
        del self._live[live.sample.dispatch]
        if not self._live:
            self._meter.idle()
        self._events.post([end])
        if served.broken and not self._live:
            self._events.fail(Permanent("vLLM's process died"))

    def _count(self, live: Live, new: int) -> None:
        if new and len(live.tokens) == new:  # its first: the text has been computed
            text = len(live.sample.prompt) + len(live.sample.tokens)
            self._computed += text - live.cached
            self._shared += live.cached
        self._drawn += new

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the rest ---------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        meter, live, served = self._meter, len(self._live), self._served
        waiting = min(live, max(meter.waiting, live - self._limits.slots))
        capacity = served.kv_tokens if served else 0
        return EngineStats(
            running=live - waiting,
            waiting=waiting,
            slots=self._limits.slots,
            kv_used=round(meter.kv_share * capacity) if live else 0,
            kv_total=capacity,
            tpot=meter.tpot,
            prefill_tokens=self._computed,
            decode_tokens=self._drawn,
            prefill_shared=self._shared,
            prefill_seconds=meter.filling,
        )

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._drop)


def _verified(policy: PolicyRef, path: Path) -> PolicyIndex:
    """The index, once every tensor's digest holds; vLLM reads the same files again."""
    index, _ = read_publication(path)
    if index.policy != policy:
        raise Corrupt(f"the index holds policy {index.policy}, asked for {policy}")
    return index


def _held(policy: PolicyRef | None) -> str:
    return str(policy.n) if policy else "none"


def _config_bytes(folder: Path) -> bytes:
    try:
        return (folder / "config.json").read_bytes()
    except OSError as error:
        raise Corrupt(f"the publication has no readable config.json: {error}") from error
