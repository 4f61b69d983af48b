"""The engine port over a decoder that runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ebbtide.engines.mailbox import Commands, Events, Seen
from ebbtide.engines.publication import read_publication
from ebbtide.engines.samples import open_sample
from ebbtide.engines.torch.decoder import Decoder, Limits, make_storage
from ebbtide.engines.torch.memory import give_back
from ebbtide.engines.torch.prefill import BLOCK
from ebbtide.engines.torch.promise import check_rows
from ebbtide.engines.torch.runner import Ints, Runner, build_model, load_weights
from ebbtide.errors import Corrupt, EbbtideError, Permanent, Refused
from ebbtide.ports import Admission, EngineCaps, EngineEvent, EngineFailed, KvData, Loaded
from ebbtide.wire import Dispatch, EngineStats, PolicyRef, pack_floats, unpack_ints

_TPOT_MEMORY = 0.9


@dataclass(frozen=True)
class _Submit:
    admission: Admission


@dataclass(frozen=True)
class _Cut:
    dispatch: Dispatch
    export: bool


@dataclass(frozen=True)
class _Prefill:
    policy: PolicyRef
    tokens: bytes
    answer: Future[KvData]


@dataclass(frozen=True)
class _Load:
    policy: PolicyRef
    index: Path
    answer: Future[Loaded]


@dataclass(frozen=True)
class _Sleep:
    answer: Future[None]


@dataclass(frozen=True)
class _Close:
    pass


_Command = _Submit | _Cut | _Prefill | _Load | _Sleep | _Close


class TorchEngine:
    """Serves one policy at a time from a publication; implements `ebbtide.ports.Engine`.

    The first `load` builds the model from the publication's config.json; later ones copy new
    weights into the same storage. `device` is torch's name of it. Threads of intra-op
    parallelism are the process's (`torch.set_num_threads`); reference mode promises equal
    bits only among engines with the same number of them.
    """

    def __init__(
        self, limits: Limits, *, device: str = "cpu", now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._limits = limits
        self._device = device
        self._now = now
        self._commands: Commands[_Command] = Commands()
        self._events = Events()
        self._stats = EngineStats(slots=limits.slots, kv_total=limits.budget)
        self._model = _ModelHolder(device, limits)
        self._decoder: Decoder | None = None
        self._seen = Seen()
        self._past = EngineStats()
        self._layout = ""
        self._thread = threading.Thread(target=self._run, name="torch-engine", daemon=True)
        self._thread.start()

    @property
    def caps(self) -> EngineCaps:
        return EngineCaps(
            positional_noise=True,
            kv_export=bool(self._layout),
            block_size=self._limits.chunk if self._limits.reference else BLOCK,
            kv_layout=self._layout,
            sleeps=True,
            reference=self._limits.reference,
        )

    async def load(self, policy: PolicyRef, index: Path) -> Loaded:
        answer: Future[Loaded] = Future()
        self._commands.put(_Load(policy, index, answer))
        return await asyncio.wrap_future(answer)

    def submit(self, admission: Admission) -> None:
        self._commands.put(_Submit(admission))

    def cut(self, dispatch: Dispatch, *, export: bool = False) -> None:
        self._commands.put(_Cut(dispatch, export))

    async def prefill(self, policy: PolicyRef, tokens: bytes) -> KvData:
        answer: Future[KvData] = Future()
        self._commands.put(_Prefill(policy, tokens, answer))
        return await asyncio.wrap_future(answer)

    async def events(self, timeout: float) -> Sequence[EngineEvent]:
        return await self._events.collect(timeout)

    def stats(self) -> EngineStats:
        return self._stats

    async def sleep(self) -> None:
        answer: Future[None] = Future()
        self._commands.put(_Sleep(answer))
        await asyncio.wrap_future(answer)

    async def close(self) -> None:
        self._commands.put(_Close())
        await asyncio.to_thread(self._thread.join)

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        # Denormals cost a hundredfold on x86, and the flag belongs to the thread.
        torch.set_flush_denormal(True)
        try:
            with torch.inference_mode():
                while self._turn():
                    pass
        except Exception as error:  # noqa: BLE001 - a broken engine still answers everyone
            self._answer_broken(_broken(error))

    def _turn(self) -> bool:
        idle = self._decoder is None or self._decoder.idle
        prefills: list[_Prefill] = []
        for command in self._commands.take(wait=idle):
            match command:
                case _Submit(admission):
                    self._submit(admission)
                case _Cut():
                    self._cut(command)
                case _Prefill():
                    prefills.append(command)
                case _Load():
                    self._load(command)
                case _Sleep():
                    self._sleep(command)
                case _Close():
                    return False
        self._prefill(prefills)
        if self._decoder and not self._decoder.idle:
            self._round(self._decoder)
        return True

    def _round(self, decoder: Decoder) -> None:
        began = self._now()
        self._events.post(decoder.round())
        seconds, old = self._now() - began, self._stats.tpot
        self._note(decoder, _TPOT_MEMORY * old + (1 - _TPOT_MEMORY) * seconds if old else seconds)

    def _note(self, decoder: Decoder, tpot: float) -> None:
        past, prefiller = self._past, decoder.prefiller
        self._stats = EngineStats(
            running=decoder.rows.n,
            waiting=len(decoder.waiting),
            slots=self._limits.slots,
            kv_used=decoder.kv_used,
            kv_total=self._limits.budget,
            tpot=tpot,
            prefill_tokens=past.prefill_tokens + prefiller.computed,
            decode_tokens=past.decode_tokens + decoder.decoded,
            prefill_shared=past.prefill_shared + prefiller.shared,
            prefill_imported=past.prefill_imported + prefiller.imported,
            prefill_seconds=past.prefill_seconds + decoder.filling,
        )

    def _submit(self, admission: Admission) -> None:
        dispatch = admission.assign.dispatch
        if self._seen.first(dispatch):
            self._events.post(self._submitted(admission))

    def _submitted(self, admission: Admission) -> list[EngineEvent]:
        decoder, policy = self._decoder, admission.assign.policy
        dispatch = admission.assign.dispatch
        if decoder is None or policy != decoder.policy:
            held = decoder.policy.n if decoder else "none"
            detail = f"policy {policy.n} was asked for, loaded is {held}"
            return [EngineFailed(dispatch, "policy", detail)]
        vocab, width = self._model.runner.vocab, self._limits.width
        try:
            sample = open_sample(admission, vocab=vocab, width=width, now=self._now())
            decoder.submit(sample, admission.kv)
        except Refused as refused:
            return [EngineFailed(dispatch, "prompt", refused.detail)]
        return []

    def _cut(self, command: _Cut) -> None:
        decoder = self._decoder
        event = decoder.cut(command.dispatch, export=command.export) if decoder else None
        if event:
            self._events.post([event])

    def _prefill(self, commands: Sequence[_Prefill]) -> None:
        """Compute together what came together."""
        todo = [command for command in commands if not self._refuses(command)]
        if not self._decoder or not todo:
            return
        try:
            found = self._decoder.prefill([command.tokens for command in todo])
        except Exception as error:
            for command in todo:
                command.answer.set_exception(_broken(error))
            raise
        for command, kv in zip(todo, found, strict=True):
            command.answer.set_result(kv)
        self._note(self._decoder, self._stats.tpot)

    def _refuses(self, command: _Prefill) -> bool:
        if not command.answer.set_running_or_notify_cancel():
            return True
        text, decoder = unpack_ints(command.tokens), self._decoder
        why = ""
        if decoder is None or command.policy != decoder.policy:
            why = f"policy {command.policy.n} is not loaded"
        elif not decoder.layout:
            why = "this model's keys and values cannot be exported"
        elif not 1 < len(text) <= self._limits.width:
            why = f"a text of {len(text)} tokens: 2 to {self._limits.width} can be prefilled"
        elif not 0 <= text.min() <= text.max() < self._model.runner.vocab:
            why = "a token id is outside the vocabulary"
        if why:
            command.answer.set_exception(Refused(why, field="/prompt"))
        return bool(why)

    def _load(self, command: _Load) -> None:
        if self._decoder and not self._decoder.idle:
            return command.answer.set_exception(Refused("a policy is loaded only while idle"))
        try:
            command.answer.set_result(self._loaded(command.policy, command.index))
        except EbbtideError as error:
            command.answer.set_exception(error)
        except Exception as error:
            command.answer.set_exception(_broken(error))
            raise

    def _loaded(self, policy: PolicyRef, path: Path) -> Loaded:
        """Serve nothing, then verify, then copy; KV of the old policy goes with its decoder."""
        self._retire()
        index, tensors = read_publication(path)
        if index.policy != policy:
            raise Corrupt(f"the index holds policy {index.policy}, asked for {policy}")
        runner = self._model.fill(path.parent, tensors, dict(index.aliases))
        scored = self._probe(runner, unpack_ints(index.probe_tokens).astype(np.int64))
        self._decoder = Decoder(
            runner, self._model.storage, policy=index.policy, limits=self._limits, now=self._now
        )
        self._layout = self._decoder.layout
        return Loaded(index.policy, scored)

    def _sleep(self, command: _Sleep) -> None:
        """Decoder, model and KV memory go; the next load builds them anew."""
        if self._decoder and not self._decoder.idle:
            command.answer.set_exception(Refused("an engine sleeps only while idle"))
            return
        self._retire()
        self._model.empty()
        self._layout = ""
        give_back(self._device)
        command.answer.set_result(None)

    def _probe(self, runner: Runner, tokens: Ints) -> bytes:
        if len(tokens) < 2:
            return b""
        if len(tokens) > self._limits.width or not 0 <= tokens.min() <= tokens.max() < runner.vocab:
            raise Corrupt(f"the probe of {len(tokens)} tokens does not fit model or engine")
        return pack_floats(runner.score(tokens).cpu().numpy())

    def _retire(self) -> None:
        if self._decoder:
            self._past = self._stats
            self._decoder = None

    def _answer_broken(self, error: Permanent) -> None:
        """Fail all that is here, then all that still comes, until closed."""
        held = [*self._decoder.waiting, *self._decoder.rows.samples] if self._decoder else []
        self._fail([sample.dispatch for sample in held], error)
        self._events.fail(error)
        while True:
            for command in self._commands.take(wait=True):
                match command:
                    case _Submit(admission):
                        self._fail([admission.assign.dispatch], error)
                    case _Load() | _Prefill() | _Sleep():
                        command.answer.set_exception(error)
                    case _Close():
                        return

    def _fail(self, dispatches: Sequence[Dispatch], error: Permanent) -> None:
        self._events.post([EngineFailed(d, "engine", str(error)) for d in dispatches])


class _ModelHolder:
    """Keeps one model and puts publications into it; builds anew if the architecture changed."""

    def __init__(self, device: str, limits: Limits) -> None:
        self._device = device
        self._limits = limits
        self.storage = make_storage(limits)
        self._built: tuple[bytes, torch.dtype] | None = None
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        assert self._runner is not None, "nothing was loaded"
        return self._runner

    def empty(self) -> None:
        """Hold neither weights nor KV."""
        self._built = self._runner = None
        self.storage = make_storage(self._limits)

    def fill(
        self, folder: Path, tensors: Mapping[str, Tensor], aliases: Mapping[str, str]
    ) -> Runner:
        wanted = (_config_bytes(folder), _main_dtype(tensors))
        if fresh := wanted != self._built:
            self._built = None
            self._runner = Runner(build_model(folder, device=self._device, dtype=wanted[1]))
            self.storage = make_storage(self._limits)
            self._built = wanted
        load_weights(self.runner.model, tensors, aliases)
        if fresh and self._limits.reference:
            check_rows(self.runner, self._limits)
        elif fresh:
            self.runner.trace()
        return self.runner


def _broken(error: Exception) -> Permanent:
    return Permanent(f"the torch engine broke: {error!r}")


def _config_bytes(folder: Path) -> bytes:
    try:
        return (folder / "config.json").read_bytes()
    except OSError as error:
        raise Corrupt(f"the publication has no readable config.json: {error}") from error


def _main_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The data type of most floating-point tensors."""
    kinds = Counter(t.dtype for t in tensors.values() if t.is_floating_point())
    if not kinds:
        raise Corrupt("the publication has no floating-point tensor")
    return kinds.most_common(1)[0][0]
