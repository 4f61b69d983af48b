"""What the torch engine does beyond the contract: loading, breaking, one model for all steps."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.errors import Corrupt, Permanent
from ebbtide.testing.engines import admission, collect, decode, outcomes
from ebbtide.testing.tiny_models import Tiny, publish_tiny, qwen2
from ebbtide.wire import unpack_floats

LIMITS = Limits(slots=4, width=64)


@pytest.fixture
async def engine() -> AsyncIterator[TorchEngine]:
    torch.set_num_threads(1)
    one = TorchEngine(LIMITS)
    yield one
    await one.close()


async def test_weights_of_the_next_policy_are_the_ones_served(
    engine: TorchEngine, tiny: Tiny, tmp_path: Path
) -> None:
    await engine.load(tiny.policy, tiny.path)
    fresh = publish_tiny(tmp_path, seed=5, n=1)
    loaded = await engine.load(fresh.policy, fresh.path)
    expected = unpack_floats(fresh.index.probe_logprobs)
    assert unpack_floats(loaded.probe_logprobs) == pytest.approx(expected, abs=1e-5)
    outcome = (await decode(engine, [admission(fresh.policy, max_new=20)]))[0]
    logits = fresh.logits([5, 6, 7, *outcome.tokens])[2:-1]
    mine = torch.log_softmax(logits, -1).gather(1, torch.tensor(outcome.tokens)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(outcome.logprobs), mine, atol=1e-4, rtol=0)


async def test_another_architecture_is_built_anew(
    engine: TorchEngine, tiny: Tiny, tmp_path: Path
) -> None:
    await engine.load(tiny.policy, tiny.path)
    config = qwen2(tied=False)
    config.num_hidden_layers = 3
    config.layer_types = ["full_attention"] * 3
    other = publish_tiny(tmp_path, config=config)
    loaded = await engine.load(other.policy, other.path)
    expected = unpack_floats(other.index.probe_logprobs)
    assert unpack_floats(loaded.probe_logprobs) == pytest.approx(expected, abs=1e-5)
    assert len((await decode(engine, [admission(other.policy)]))[0].tokens) == 8


async def test_a_publication_without_config_is_refused(engine: TorchEngine, tmp_path: Path) -> None:
    tiny = publish_tiny(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(Corrupt, match=r"config\.json"):
        await engine.load(tiny.policy, tiny.path)


async def test_weights_that_do_not_fit_their_config_are_refused(
    engine: TorchEngine, tmp_path: Path
) -> None:
    wide = qwen2()
    wide.intermediate_size = 64
    for config, why in ((wide, "shape"), (qwen2(tied=False), "ties")):
        other = publish_tiny(tmp_path, config=config)
        qwen2().save_pretrained(tmp_path)
        with pytest.raises(Corrupt, match=why):
            await engine.load(other.policy, other.path)


async def test_a_tied_head_is_filled_where_the_model_does_not_tie_it(
    engine: TorchEngine, tmp_path: Path
) -> None:
    tiny = publish_tiny(tmp_path)
    qwen2(tied=False).save_pretrained(tmp_path)
    loaded = await engine.load(tiny.policy, tiny.path)
    expected = unpack_floats(tiny.index.probe_logprobs)
    assert unpack_floats(loaded.probe_logprobs) == pytest.approx(expected, abs=1e-5)


async def test_a_policy_of_other_bytes_is_refused_though_its_index_is_whole(
    engine: TorchEngine, tmp_path: Path
) -> None:
    tiny = publish_tiny(tmp_path)
    weights = tmp_path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-4] ^= 64
    weights.write_bytes(data)
    with pytest.raises(Corrupt, match="differ"):
        await engine.load(tiny.policy, tiny.path)
    failure = (await decode(engine, [admission(tiny.policy)]))[0].failure
    assert failure.code == "policy"


async def test_a_policy_that_is_not_finite_leaves_nothing_behind(
    engine: TorchEngine, tiny: Tiny, tmp_path: Path
) -> None:
    def spoil(model: Any) -> None:
        model.model.layers[0].self_attn.v_proj.weight[0, 0] = float("nan")

    bad = publish_tiny(tmp_path, spoil=spoil)
    await engine.load(bad.policy, bad.path)
    ends = await decode(engine, [admission(bad.policy, seq=i, prompt=(i, 3, 4)) for i in range(6)])
    assert {outcome.failure.code for outcome in ends.values()} == {"engine"}
    await engine.load(tiny.policy, tiny.path)
    ends = await decode(
        engine, [admission(tiny.policy, seq=10 + i, prompt=(i, 3)) for i in range(6)]
    )
    assert all(outcome.finished for outcome in ends.values())


async def test_a_broken_engine_answers_everyone_and_then_says_so(
    engine: TorchEngine, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.load(tiny.policy, tiny.path)
    model = engine._model.runner.model
    model.forward = None  # the next call raises TypeError inside the thread
    for seq in range(6):
        engine.submit(admission(tiny.policy, seq=seq))
    ends = outcomes(await collect(engine, 6))
    assert {outcome.failure.code for outcome in ends.values()} == {"engine"}
    with pytest.raises(Permanent, match="broke"):
        await engine.events(timeout=5.0)
    with pytest.raises(Permanent, match="broke"):
        await engine.load(tiny.policy, tiny.path)


async def test_asleep_it_keeps_neither_weights_nor_kv(engine: TorchEngine, tiny: Tiny) -> None:
    await engine.load(tiny.policy, tiny.path)
    await decode(engine, [admission(tiny.policy, max_new=5)])
    holder = engine._model
    weights = [weakref.ref(tensor) for tensor in holder.runner.model.parameters()]
    rows = (holder.storage.live, holder.storage.prompts)
    kv = [weakref.ref(tensor) for each in rows for pair in each._layers for tensor in pair]
    del rows
    await engine.sleep()
    assert len(weights) > 10
    assert len(kv) >= 4
    assert [ref for ref in (*weights, *kv) if ref() is not None] == []


async def test_a_new_policy_does_not_see_the_old_ones_kv(
    engine: TorchEngine, tiny: Tiny, tmp_path: Path
) -> None:
    await engine.load(tiny.policy, tiny.path)
    await decode(engine, [admission(tiny.policy, prompt=(4, 5, 6, 7), max_new=20)])
    fresh = publish_tiny(tmp_path, seed=9, n=1)
    await engine.load(fresh.policy, fresh.path)
    again = admission(fresh.policy, seq=1, prompt=(4, 5, 6, 7), max_new=20, temperature=0.0)
    tokens = (await decode(engine, [again]))[1].tokens
    logits = fresh.logits([4, 5, 6, 7, *tokens])[3:-1]
    assert tokens == logits.argmax(-1).tolist()


async def test_counts_go_on_over_policies(engine: TorchEngine, tiny: Tiny) -> None:
    for seq in range(2):
        await engine.load(tiny.policy, tiny.path)
        await decode(engine, [admission(tiny.policy, seq=seq, max_new=5)])
    assert engine.stats().decode_tokens == 10
    assert engine.stats().prefill_tokens == 4
