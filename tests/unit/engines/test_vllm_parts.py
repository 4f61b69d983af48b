"""The parts of the vLLM engine that need no vLLM."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from ebbtide.engines.vllm.limits import VllmLimits, check_device, check_fit, limits_of
from ebbtide.engines.vllm.meter import Meter, StepLogger
from ebbtide.engines.vllm.metrics import PassedThrough
from ebbtide.errors import Refused
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.jobs import a_spec

SETTINGS = {"maxBatchedTokens": 512, "chunkedPrefill": False, "cpuKvMib": 32}
MODEL = {"num_attention_heads": 6, "hidden_size": 192, "max_position_embeddings": 128}


def limits(**changes: object) -> VllmLimits:
    return VllmLimits(**{"width": 96, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "changes", "field"),
    [
        ({}, {"tensor_parallel": 4}, "/spec/decode/vllm/tensorParallel"),
        ({}, {"width": 129}, "/spec/training/maxResponseTokens"),
        ({"hidden_size": 96}, {}, "/spec/decode/engine"),
        ({"head_dim": 48}, {}, "/spec/decode/engine"),
        ({"num_key_value_heads": 2}, {"tensor_parallel": 3}, "/spec/decode/vllm/tensorParallel"),
        ({"intermediate_size": 256}, {"tensor_parallel": 3}, "/spec/decode/vllm/tensorParallel"),
        ({}, {"chunked_prefill": True}, "/spec/decode/vllm/chunkedPrefill"),
        ({}, {"batched_tokens": 95}, "/spec/decode/vllm/maxBatchedTokens"),
        ({"num_hidden_layers": 8}, {"kv_bytes": 1 << 19}, "/spec/decode/vllm/cpuKvMib"),
    ],
    ids=str,
)
def test_what_the_model_cannot_do_is_refused_by_the_settings_name(
    model: dict[str, int], changes: dict[str, object], field: str
) -> None:
    with pytest.raises(Refused) as refused:
        check_fit(MODEL | model, limits(**changes))
    assert refused.value.field == field


def test_what_fits_is_let_through() -> None:
    check_fit(MODEL, limits(tensor_parallel=3))
    check_fit(MODEL | {"num_key_value_heads": 1}, limits(tensor_parallel=2))
    check_fit(MODEL | {"num_hidden_layers": 8}, limits(kv_bytes=1 << 23))
    check_fit({"text_config": MODEL}, limits(width=128))
    check_fit(MODEL | {"head_dim": 48}, limits(device="cuda"))
    check_fit(MODEL, limits(device="cuda", chunked_prefill=True, batched_tokens=48))


@pytest.mark.parametrize(
    ("memory", "changes", "fits"),
    [
        (2_200_000, {}, True),
        (2_100_000, {}, False),
        (1_100_000, {"tensor_parallel": 2}, True),
        (2_200_000, {"memory_share": 0.8}, False),
        (2_100_000, {"kv_dtype": "fp8"}, True),
    ],
)
def test_weights_and_the_longest_sample_must_fit_a_gpus_share(
    memory: int, changes: dict[str, object], *, fits: bool
) -> None:
    given = limits(device="cuda", **changes)
    config = MODEL | {"num_hidden_layers": 2}  # 147,456 bytes of KV in 16 bits, beside 1,800,000
    expected = nullcontext() if fits else pytest.raises(Refused, match="on each GPU")
    with expected:
        check_device(config, given, shapes=[(900, 999), (900,)], dtype="bfloat16", memory=memory)


def test_the_jobs_settings_are_what_vllm_gets() -> None:
    document = a_spec(
        decode={"engine": "vllm", "slots": 8, "vllm": SETTINGS},
        dataset={"maxPromptTokens": 32},
        training={"maxResponseTokens": 64},
    )
    found = limits_of(RLHFJobSpec.model_validate(document, strict=False), device="cpu")
    assert (found.slots, found.batched_tokens, found.kv_bytes) == (8, 512, 32 << 20)
    assert (found.chunked_prefill, found.eager, found.width) == (False, True, 96)


@pytest.mark.parametrize(("positions", "longest"), [(96, 96), (97, 97), (4096, 97), (None, 97)])
def test_there_is_room_for_one_token_after_a_probe_where_the_model_has_it(
    positions: int | None, longest: int
) -> None:
    config = {} if positions is None else {"max_position_embeddings": positions}
    assert limits().longest(config) == longest


def test_time_per_token_is_of_steps_that_only_decode_and_prompts_get_their_share() -> None:
    clock = iter([1.0, 2.0, 6.0])
    meter = Meter(lambda: next(clock))
    meter.step(waiting=1, running=2, kv_share=0.5, prompt=9, drawn=0)
    meter.step(waiting=0, running=2, kv_share=0.6, prompt=0, drawn=2)
    meter.step(waiting=0, running=2, kv_share=0.6, prompt=3, drawn=1)
    assert (meter.tpot, meter.filling, meter.kv_share) == (1.0, 3.0, 0.6)


def test_time_in_which_nothing_ran_counts_for_no_step() -> None:
    clock = iter([1.0, 50.0])
    meter = Meter(lambda: next(clock))
    meter.step(waiting=0, running=1, kv_share=0.1, prompt=0, drawn=1)
    meter.idle()
    meter.step(waiting=0, running=1, kv_share=0.1, prompt=0, drawn=1)
    assert meter.tpot == 0.0


def test_a_step_logger_passes_on_what_vllm_says() -> None:
    meter = Meter(lambda: 0.0)
    scheduler = SimpleNamespace(
        num_waiting_reqs=2, num_skipped_waiting_reqs=1, num_running_reqs=4, kv_cache_usage=0.25
    )
    StepLogger(meter).record(None, None)
    assert meter.waiting == 0
    StepLogger(meter).record(scheduler, None)
    assert (meter.waiting, meter.kv_share) == (3, 0.25)


def test_only_what_vllm_calls_its_own_is_passed_through() -> None:
    source, shown = CollectorRegistry(), CollectorRegistry()
    Counter("vllm:tokens", "t", registry=source).inc(3)
    Counter("other", "o", registry=source).inc()
    shown.register(PassedThrough(source))
    text = generate_latest(shown).decode()
    assert "vllm:tokens_total 3.0" in text
    assert "other" not in text
