"""The emulated engine: times follow the curve, lengths the distribution or the trace."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import numpy as np
import pytest

from ebbtide import wire
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated, Emulation
from ebbtide.engines.policies import INDEX_NAME, policy_digest
from ebbtide.engines.samples import open_sample
from ebbtide.ports import Admission, EngineCut, EngineEvent, EngineFinished
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.engines import admission, outcomes
from ebbtide.wire import Dispatch, PolicyIndex, PolicyRef, PolicyTensor

TENSOR = PolicyTensor("w", "float32", (1,), "none", "0" * 64)
POLICY = PolicyRef(0, 1, policy_digest([TENSOR]))


def _emulation(**params: float | tuple[int, ...]) -> Emulation:
    return Emulation(Emulated(**{"slots": 4, **params}), POLICY, now=0.0)  # type: ignore[arg-type]


def _give(to: Emulation, *admissions: Admission, now: float = 0.0) -> None:
    for each in admissions:
        to.submit(open_sample(each, vocab=256, width=1 << 20, now=now), now)


def _ends(events: list[EngineEvent]) -> dict[int, float]:
    finished = [event for event in events if isinstance(event, EngineFinished)]
    return {event.dispatch.seq: event.queued + event.decode for event in finished}


def _through(to: Emulation) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while not to.idle:
        events += to.advance(to.next_at())
    return events


def test_a_sample_alone_takes_a_tpot_a_token() -> None:
    one = _emulation(tpot=0.01, tpot_per_row=0.5)
    _give(one, admission(POLICY, max_new=7))
    assert _ends(_through(one)) == pytest.approx({0: 0.07})


def test_samples_together_slow_each_other_down() -> None:
    one = _emulation(tpot=0.01, tpot_per_row=0.01)
    _give(one, admission(POLICY, seq=0, max_new=2), admission(POLICY, seq=1, max_new=5))
    # Two tokens at 0.02 side by side, then three at 0.01.
    assert _ends(_through(one)) == pytest.approx({0: 0.04, 1: 0.07})


def test_who_finds_no_slot_waits_for_one() -> None:
    one = _emulation(slots=1, tpot=0.01, tpot_per_row=0.0)
    _give(one, admission(POLICY, seq=0, max_new=3), admission(POLICY, seq=1, max_new=3))
    assert _ends(_through(one)) == pytest.approx({0: 0.03, 1: 0.06})


def test_time_in_small_steps_is_time_in_one() -> None:
    coarse, fine = _emulation(mean_tokens=30), _emulation(mean_tokens=30)
    many = [admission(POLICY, seq=i, max_new=100, stops=(1,)) for i in range(12)]
    _give(coarse, *many)
    _give(fine, *many)
    stepped: list[EngineEvent] = []
    for tick in range(20_000):
        stepped += fine.advance(tick * 0.003)
    assert _ends(stepped) == pytest.approx(_ends(_through(coarse)))


def test_no_time_per_token_is_no_endless_loop() -> None:
    one = _emulation(tpot=0.0, tpot_per_row=0.0)
    _give(one, *[admission(POLICY, seq=i, max_new=50) for i in range(9)])
    assert len(_ends(one.advance(0.1))) == 9


def test_lengths_have_the_mean_and_spread_asked_for() -> None:
    params = Emulated(mean_tokens=200, sigma=0.8)
    rng = np.random.default_rng(0)
    words = rng.integers(-(1 << 63), (1 << 63) - 1, size=20_000)
    lengths = np.array([params.length(int(word)) for word in words])
    assert abs(lengths.mean() / 200 - 1) < 0.05
    assert abs(np.log(lengths).std() - 0.8) < 0.02
    assert abs(np.log(lengths).mean() - (math.log(200) - 0.32)) < 0.02


def test_lengths_come_from_the_trace() -> None:
    params = Emulated(trace=(3, 5, 9))
    assert {params.length(word) for word in range(-50, 50)} == {3, 5, 9}


def test_a_prompt_keeps_its_share_of_the_length_in_every_epoch() -> None:
    params = Emulated(mean_tokens=311, sigma=0.42, prompt_share=0.9)
    rng = np.random.default_rng(0)
    words = rng.integers(0, (1 << 63) - 1, size=(2, 3000))
    logs = [
        np.log([params.length(int(word), b"%d" % i) for i, word in enumerate(epoch)])
        for epoch in words
    ]
    assert abs(np.corrcoef(logs[0], logs[1])[0, 1] - 0.9) < 0.02
    assert abs(logs[0].std() - 0.42) < 0.02


def test_a_prompt_is_computed_once_for_its_samples() -> None:
    one = _emulation(tpot=0.01, tpot_per_row=0.0, prefill=1.0)
    _give(one, *[admission(POLICY, seq=i, prompt=(5, 6), max_new=2) for i in range(3)])
    # The samples wait for the two tokens of the prompt, then decode side by side.
    assert _ends(_through(one)) == pytest.approx({0: 0.02, 1: 2.02, 2: 2.02})
    assert (one.prefilled, one.shared) == (2, 4)


def test_without_a_cache_each_sample_computes_its_prompt() -> None:
    one = _emulation(prefill=0.5, prefix_cache=False)
    _give(one, *[admission(POLICY, seq=i, prompt=(5, 6), max_new=2) for i in range(3)])
    _through(one)
    assert (one.prefilled, one.shared) == (6, 0)


def test_what_a_resumed_sample_brings_is_computed_again() -> None:
    one = _emulation(prefill=1.0, tpot=0.01)
    _give(one, admission(POLICY, prompt=(5, 6), max_new=9))
    cut = one.cut(Dispatch(1, 1, 0), now=2.05)[-1]
    assert isinstance(cut, EngineCut)
    _give(one, admission(POLICY, seq=1, prompt=(5, 6), max_new=9, resumed=cut), now=3.0)
    assert (one.prefilled, one.shared) == (2 + len(cut.tokens) // 4, 2)


def test_a_sample_without_stop_tokens_runs_to_its_limit() -> None:
    one = _emulation(trace=(3,))
    _give(one, admission(POLICY, max_new=8), admission(POLICY, seq=1, max_new=8, stops=(7,)))
    ends = outcomes(_through(one))
    assert (ends[0].finished.finish, len(ends[0].tokens)) == ("length", 8)
    assert (ends[1].finished.finish, ends[1].tokens[-1], len(ends[1].tokens)) == ("stop", 7, 3)


def _index(folder: Path) -> Path:
    path = folder / INDEX_NAME
    path.write_bytes(wire.encode(PolicyIndex(POLICY, (TENSOR,), (), (), b"", b"")))
    return path


def test_it_runs_on_a_virtual_clock(tmp_path: Path) -> None:
    async def scenario() -> tuple[float, int]:
        clock = VirtualClock()
        engine = EmulatedEngine(Emulated(tpot=1.0, tpot_per_row=0.0), clock=clock)
        await engine.load(POLICY, _index(tmp_path))
        engine.submit(admission(POLICY, max_new=3600))
        events: list[EngineEvent] = []
        while not any(isinstance(event, EngineFinished) for event in events):
            events += await engine.events(timeout=60.0)
        return clock.now(), len(events)

    seconds, events = run_virtual(scenario())
    assert seconds == pytest.approx(3600)
    assert events > 3000


def test_a_command_wakes_who_waits_for_events(tmp_path: Path) -> None:
    async def scenario() -> float:
        clock = VirtualClock()
        engine = EmulatedEngine(Emulated(tpot=0.0, tpot_per_row=0.0), clock=clock)
        await engine.load(POLICY, _index(tmp_path))
        waiting = asyncio.ensure_future(engine.events(timeout=1000.0))
        await clock.sleep(5.0)
        engine.submit(admission(POLICY))
        await waiting
        return clock.now()

    assert run_virtual(scenario()) < 6


def test_a_thousand_samples_cost_little() -> None:
    began = time.process_time()
    for actor in range(16):
        one = _emulation(slots=64, mean_tokens=200)
        many = [
            admission(POLICY, seq=i, noise=bytes([actor, i]), max_new=1024, stops=(1,))
            for i in range(64)
        ]
        _give(one, *many)
        _through(one)
    # About 0.3 s here; the limit only catches work per token.
    assert time.process_time() - began < 5
