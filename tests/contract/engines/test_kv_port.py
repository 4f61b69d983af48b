"""Keys and values through the port: every engine that says it exports them."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.errors import Refused
from ebbtide.ports import Admission, EngineCut, KvData, NewTokens
from ebbtide.testing.engines import admission, collect, decode, outcomes
from ebbtide.wire import Dispatch, pack_ints
from tests.contract.engines.benches import Bench

PROMPT = tuple(range(2, 32))


def sample(bench: Bench, seq: int, kv: KvData | None = None) -> Admission:
    one = admission(bench.policy, seq=seq, prompt=PROMPT, noise=b"k", max_new=60)
    return msgspec.structs.replace(one, kv=kv)


async def cut_with_kv(bench: Bench) -> tuple[Admission, EngineCut]:
    """Submit, wait for some tokens, cut; again if it was finished sooner."""
    for seq in range(10, 20):
        first = sample(bench, seq)
        bench.engine.submit(first)
        events = list(await bench.engine.events(timeout=10.0))
        bench.engine.cut(first.assign.dispatch, export=True)
        while isinstance(events[-1], NewTokens):
            events += await bench.engine.events(timeout=10.0)
        if isinstance(events[-1], EngineCut):
            return first, events[-1]
    raise AssertionError("always finished before it could be cut")


async def test_what_the_caps_promise_is_kept(bench: Bench) -> None:
    _, cut = await cut_with_kv(bench)
    caps = bench.engine.caps
    assert (cut.kv is not None) == caps.kv_export == bool(caps.kv_layout)
    if cut.kv is not None:
        assert cut.kv.key.layout == caps.kv_layout
        assert cut.kv.key.n_tokens < len(PROMPT) + len(cut.tokens) // 4


async def test_a_sample_goes_on_with_or_without_its_kv(bench: Bench) -> None:
    first, cut = await cut_with_kv(bench)
    resumed = admission(bench.policy, resumed=cut).resumed
    before = bench.engine.stats().prefill_imported
    for seq, kv in ((1, cut.kv), (2, None)):
        assign = msgspec.structs.replace(first.assign, dispatch=Dispatch(1, 1, seq))
        bench.engine.submit(Admission(assign, first.prompt, resumed, kv))
    ends = outcomes(await collect(bench.engine, 2))
    assert ends[1].tokens == ends[2].tokens  # also by seeds: both go on at one position
    assert ends[1].logprobs == pytest.approx(ends[2].logprobs, abs=1e-4)
    imported = bench.engine.stats().prefill_imported - before
    assert imported == (cut.kv.key.n_tokens if cut.kv else 0)


async def test_a_prefill_serves_samples_that_then_compute_nothing(bench: Bench) -> None:
    if not bench.engine.caps.kv_export:
        with pytest.raises(Refused):
            await bench.engine.prefill(bench.policy, pack_ints(PROMPT))
        return
    kv = await bench.engine.prefill(bench.policy, pack_ints(PROMPT))
    assert kv.key.n_tokens == len(PROMPT) - 1
    await bench.engine.load(bench.policy, bench.tiny.path)  # which forgets every prompt
    before = bench.engine.stats()
    given = await decode(bench.engine, [sample(bench, 3, kv)])
    after = bench.engine.stats()
    assert after.prefill_tokens == before.prefill_tokens
    assert after.prefill_imported == before.prefill_imported + len(PROMPT) - 1
    computed = await decode(bench.engine, [sample(bench, 4)])
    assert given[3].tokens == computed[4].tokens


@pytest.mark.parametrize("tokens", [(), (5,), (5, 1 << 30), (5,) * 97], ids=len)
async def test_what_cannot_be_prefilled_is_refused(bench: Bench, tokens: tuple[int, ...]) -> None:
    with pytest.raises(Refused):
        await bench.engine.prefill(bench.policy, pack_ints(tokens))
    with pytest.raises(Refused):
        await bench.engine.prefill(bench.other.policy, pack_ints(PROMPT))
