"""The decoder: waiting samples in, tokens out, one round at a time. It knows no thread.

A round admits what fits, prefills it, decodes one token for every live row, and reports. Live
rows stay contiguous, so a step reads the keys of rows [0, n) up to the longest live sample
and nothing else; in reference mode it always has the same shape instead (protocol.md 10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebbtide.engines.samples import Sample
from ebbtide.engines.torch.kv import KvRows
from ebbtide.engines.torch.prefill import Prefiller
from ebbtide.engines.torch.rows import Rows
from ebbtide.engines.torch.runner import Ints, Runner
from ebbtide.engines.torch.sampling import Noise
from ebbtide.errors import Refused
from ebbtide.kv import kv_key
from ebbtide.ports import EngineCut, EngineEvent, EngineFailed, KvData
from ebbtide.wire import Dispatch, PolicyRef

Way = Callable[[Sequence[Sample], KvRows, Sequence[int]], None]
WINDOW_STEP = 16
"""Windows are rounded up to this many positions: few shapes, aligned rows."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much the decoder holds. All lengths in tokens, times in seconds."""

    slots: int = 64
    width: int = 1024
    """Greatest prompt plus response."""
    kv_tokens: int = 0
    """Greatest sum of what live samples may come to need; 0: slots times width."""
    prefix_rows: int = 64
    """Prompts whose KV is kept for siblings."""
    prefill_chunk: int = 2048
    """Tokens of one prefill forward; also what a round prefills before it decodes."""
    reference: bool = False
    share_prefixes: bool = True
    """Whether prompts that begin alike share what they have in common."""
    flush_tokens: int = 32
    """A sample's new tokens are reported when there are so many,"""
    flush_seconds: float = 1.0
    """or, for all samples, this long after the last time."""

    def __post_init__(self) -> None:
        if self.budget < self.width:
            detail = f"a KV budget of {self.budget} tokens holds no sample of {self.width}"
            raise Refused(detail, field="/kv_tokens")

    @property
    def budget(self) -> int:
        """KV in tokens that samples may reserve."""
        return self.kv_tokens or self.slots * self.width

    @property
    def chunk(self) -> int:
        """Tokens of one prefill forward."""
        return min(self.prefill_chunk, self.width)


def round_up(value: int, step: int) -> int:
    """The least multiple of `step` that is at least `value`."""
    return -(-value // step) * step


@dataclass(frozen=True)
class Storage:
    """KV memory of live samples and of prompts.

    It outlives policies: nothing reads a position that was not written for the text it serves,
    and memory made anew for every step would cost its page faults again.
    """

    live: KvRows
    prompts: KvRows


def make_storage(limits: Limits) -> Storage:
    """Rows for `limits`, rounded up to whole windows and, in reference mode, whole chunks."""
    step = limits.chunk if limits.reference else WINDOW_STEP
    return Storage(
        live=KvRows(limits.slots, round_up(limits.width, WINDOW_STEP)),
        prompts=KvRows(limits.prefix_rows, round_up(limits.width, step)),
    )


class Decoder:
    """Continuous batching of one policy. `now` is the engine's clock."""

    def __init__(
        self,
        runner: Runner,
        storage: Storage,
        *,
        policy: PolicyRef,
        limits: Limits,
        now: Callable[[], float],
    ) -> None:
        self.policy = policy
        self.waiting: deque[Sample] = deque()
        self.rows = Rows(limits.slots, limits.width)
        self.decoded = 0
        """Tokens decoded so far, replayed ones included."""
        self.filling = 0.0
        """Seconds spent on prompts so far, computed, forked or brought along."""
        self.prefiller = Prefiller(
            runner,
            storage.prompts,
            chunk=limits.chunk,
            fixed=limits.reference,
            share=limits.share_prefixes,
        )
        geometry = runner.geometry()
        storage.live.prepare(geometry)
        storage.prompts.prepare(geometry)
        self._kv = storage.live
        self._runner = runner
        self._limits = limits
        self._now = now
        self._swept = now()

    @property
    def idle(self) -> bool:
        return not self.rows.n and not self.waiting

    @property
    def kv_used(self) -> int:
        """Tokens of KV held by live samples."""
        return int((self.rows.positions + 1).sum())

    @property
    def layout(self) -> str:
        """Name of the KV's bytes; empty if this model's cannot be exported.

        Bits depend on the fixed shapes of reference mode, so there they are part of the name.
        """
        geometry, limits = self._kv.geometry, self._limits
        if geometry is None:
            return ""
        shapes = f":ref-{limits.slots}x{self._kv.width}x{limits.chunk}"
        return geometry.layout + (shapes if limits.reference else "")

    def submit(self, sample: Sample, kv: KvData | None = None) -> None:
        """Queue `sample`, with `kv` if it is of use."""
        if kv is not None and (geometry := self._kv.geometry):
            size = geometry.size(1)
            sample.bring(kv, policy=self.policy, layout=self.layout, size=size)
        self.waiting.append(sample)

    def prefill(self, prompts: Sequence[bytes]) -> list[KvData]:
        """KV of prompts (packed), each of all its tokens but the last."""
        began = self._now()
        found: list[KvData] = []
        most = self.prefiller.capacity
        for start in range(0, len(prompts), most):
            some = prompts[start : start + most]
            for prompt, data in zip(some, self.prefiller.prompts(some), strict=True):
                n = len(prompt) // 4 - 1
                found.append(KvData(kv_key(self.policy, prompt, n, self.layout), data))
        self.filling += self._now() - began
        return found

    def round(self) -> list[EngineEvent]:
        """Admit, decode one token a row, and return what happened."""
        events = self._admit()
        if self.rows.n:
            events += self._decode()
        return events + self._report()

    def cut(self, dispatch: Dispatch, *, export: bool = False) -> EngineCut | None:
        """Take a sample out with everything it has; None when it is not here (any more).

        `export`: with a copy of its keys and values.
        """
        for sample in self.waiting:
            if sample.dispatch == dispatch:
                self.waiting.remove(sample)
                return sample.cut_as_it_came(self.policy, export=export)
        for row, sample in enumerate(self.rows.samples):
            if sample.dispatch == dispatch:
                kv = self._export(row) if export and self.layout else None
                event = self.rows.cut(row, self.policy, kv)
                self._drop(np.array([row]))
                return event
        return None

    def _export(self, row: int) -> KvData | None:
        """What is in a live row: all tokens but the one that the next step computes."""
        n = int(self.rows.positions[row])
        if not n:
            return None
        key = kv_key(self.policy, self.rows.text(row), n, self.layout)
        return KvData(key, self._kv.export(row, n))

    def _admit(self) -> list[EngineEvent]:
        """Move waiting samples into rows, in order, while they fit."""
        if not self.waiting:
            return []
        taken = self._fitting()
        now = self._now()
        events: list[EngineEvent] = [
            s.finished_as_it_came(self.policy, now) for s in taken if s.ended
        ]
        taken = [sample for sample in taken if not sample.ended]
        self._fill([(self.rows.add(s, count=self._computed(s)), s) for s in taken])
        self._runner.wait()
        started = self._now()
        self.filling += started - now
        for sample in taken:
            sample.admitted, sample.started, sample.kv = now, started, None
        return events

    def _computed(self, sample: Sample) -> int:
        """Response tokens that need no decode step: reference mode replays what it must."""
        brought = max(0, sample.covered - (len(sample.prompt) - 1))
        return brought if self._limits.reference else len(sample.tokens)

    def _fitting(self) -> list[Sample]:
        """The head of the queue that slots, KV budget and this round's prefill allow."""
        free = self._limits.slots - self.rows.n
        tokens = self._limits.budget - sum(s.reserve for s in self.rows.samples)
        prefill = self._limits.prefill_chunk
        taken: list[Sample] = []
        prompts: set[bytes] = set()
        while self.waiting and len(taken) < free:
            sample = self.waiting[0]
            cost = self._prefill_cost(sample, prompts)
            together = prompts | {sample.admission.prompt}
            if sample.reserve > tokens or (taken and cost > prefill):
                break
            if len(together) > self.prefiller.capacity:
                break
            tokens, prefill, prompts = tokens - sample.reserve, prefill - cost, together
            taken.append(self.waiting.popleft())
        return taken

    def _prefill_cost(self, sample: Sample, prompts: set[bytes]) -> int:
        prompt = sample.admission.prompt
        if sample.brings_response:
            return 0
        if len(sample.tokens) and not self._limits.reference:
            return len(sample.prompt) + len(sample.tokens)
        known = sample.kv or prompt in prompts or not self.prefiller.missing(prompt)
        return 0 if known else len(sample.prompt)

    def _fill(self, pairs: list[tuple[int, Sample]]) -> None:
        """Keys and values for new rows: brought along, forked from their prompt, or computed."""
        ways: dict[Way, tuple[list[Sample], list[int]]] = {}
        for row, sample in pairs:
            samples, rows = ways.setdefault(self._way(sample), ([], []))
            samples.append(sample)
            rows.append(row)
        for way, (samples, rows) in ways.items():
            way(samples, self._kv, rows)

    def _way(self, sample: Sample) -> Way:
        if sample.brings_response:
            return self.prefiller.take_over
        forked = self._limits.reference or not len(sample.tokens)
        return self.prefiller.fork if forked else self.prefiller.recompute

    def _decode(self) -> list[EngineEvent]:
        tokens, logprobs = self._step()
        finite = np.isfinite(logprobs)
        done = self.rows.take(tokens, logprobs) & finite
        self.decoded += self.rows.n
        now = self._now()
        events: list[EngineEvent] = [
            self.rows.finished(row, self.policy, now) for row in np.flatnonzero(done).tolist()
        ]
        events += self._broken(np.flatnonzero(~finite))
        self._drop(np.flatnonzero(done | ~finite))
        return events

    def _step(self) -> tuple[Ints, NDArray[np.float32]]:
        """One forward over all live rows; the step's one wait for the device is here."""
        live = self.rows.n
        n = self._limits.slots if self._limits.reference else live
        at = self.rows.at[:n]
        positions = np.zeros(n, dtype=np.int64)
        positions[:live] = self.rows.positions
        tensor = self._runner.tensor
        noise = Noise(*(tensor(at[k].copy()) for k in ("word", "count", "temperature")))
        window = self._window(positions)
        drawn = self._runner.step(self._kv, at["last"].copy(), positions, window, noise)
        return drawn.tokens[:live].cpu().numpy(), drawn.logprobs[:live].cpu().numpy()

    def _window(self, positions: Ints) -> int:
        if self._limits.reference:
            return self._kv.width
        return round_up(int(positions.max()) + 1, WINDOW_STEP)

    def _broken(self, rows: Ints) -> list[EngineEvent]:
        """Fail rows whose logits were not finite, and remove what they left in memory."""
        if len(rows):
            self._kv.clear(self._runner.tensor(rows))
        for row in rows.tolist():
            self.prefiller.forget(self.rows.samples[row].admission.prompt)
        return [self._failure(row) for row in rows.tolist()]

    def _failure(self, row: int) -> EngineFailed:
        position = int(self.rows.at["count"][row]) - 1
        detail = f"the model's logits are not finite at response token {position}"
        return EngineFailed(self.rows.samples[row].dispatch, "engine", detail)

    def _drop(self, gone: Ints) -> None:
        if not len(gone):
            return
        moves = self.rows.drop(gone)
        if len(moves.targets):
            length = int(self.rows.positions[moves.targets].max())
            tensor = self._runner.tensor
            self._kv.move(tensor(moves.targets), tensor(moves.sources), length)

    def _report(self) -> list[EngineEvent]:
        """Chunks of new tokens: of long-unreported samples, or of all every so often."""
        now = self._now()
        sweep = now - self._swept >= self._limits.flush_seconds
        if sweep:
            self._swept = now
        rows = self.rows.due(1 if sweep else self._limits.flush_tokens)
        return [self.rows.chunk(row, self.policy) for row in rows.tolist()]
