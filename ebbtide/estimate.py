"""What a job would hold and take, before it runs (pure).

Sizes are counted from the model's own shapes. Activations follow Korthikanti et al. (arXiv
2205.05198, equation 2) without recomputation, which counts 16-bit values: s*b*h*(34 + 5*a*s/h)
bytes a layer, twice that in 32 bits; with batches of many short rows s is the longest row.
Whatever is not known is None, and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.spec import DpoSpec, LoraSpec, PolicyGradientSpec, PpoSpec, RLHFJobSpec

_BYTES = {"float32": 4, "bfloat16": 2}
_FULL = 4
_ADAM = 2
"""Moments of the optimiser, each as large as the parameters."""


class ModelShape(msgspec.Struct, frozen=True):
    """What of a model's config matters here. `parameters`: from the files' own headers."""

    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    inner: int = 0
    """Width inside the feed-forward layers."""


class Memory(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes of one member of a role by what holds them; `members`: how many there are."""

    role: str
    members: int
    parts: dict[str, int]

    @property
    def total(self) -> int:
        """Of one member."""
        return sum(self.parts.values())


def shape_of(config: Mapping[str, Any], parameters: int) -> ModelShape | None:
    """From a Hugging Face config; None where it is of another form."""
    inner = config.get("text_config") or config
    try:
        heads, hidden = int(inner["num_attention_heads"]), int(inner["hidden_size"])
        return ModelShape(
            parameters=parameters,
            layers=int(inner["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(inner.get("num_key_value_heads") or heads),
            head_size=int(inner.get("head_dim") or hidden // heads),
            vocabulary=int(inner["vocab_size"]),
            inner=int(inner.get("intermediate_size") or 4 * hidden),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def members(spec: RLHFJobSpec) -> dict[str, int]:
    """Processes by role while the job runs, actors as at its start."""
    found = {"planner": 1} | ({"learner": spec.learner.ranks} if spec.learns else {})
    if _samples_itself(spec):
        found |= {"decode": spec.decode.replicas}
        found |= {"reward": spec.reward.replicas if spec.reward else 0}
        found |= {"prefill": 1} if spec.prefill.mode == "service" else {}
    return found


def cost_per_hour(spec: RLHFJobSpec) -> float | None:
    """Of all members together; None where a pool has no price."""
    prices = {price.pool: price.per_hour for price in spec.prices}
    pools = {role: getattr(spec, role) for role in members(spec)}
    each = [(n, prices.get(pools[role].pool)) for role, n in members(spec).items()]
    known = [n * price for n, price in each if price is not None]
    return sum(known) if len(known) == len(each) else None


def memory(spec: RLHFJobSpec, shape: ModelShape) -> tuple[Memory, ...]:
    """The account of each role that holds the model."""
    found = _learner(spec, shape) if spec.learns else []
    if _samples_itself(spec) and spec.decode.engine != "emulated":
        found.append(_actor(spec, shape))
        if spec.prefill.mode == "service":
            found.append(_prefill(spec, shape))
    return tuple(found)


def kv_bytes(spec: RLHFJobSpec, shape: ModelShape) -> int:
    """Of one token."""
    width = shape.kv_heads * shape.head_size
    return 2 * shape.layers * width * _BYTES[spec.model.dtype]


def _samples_itself(spec: RLHFJobSpec) -> bool:
    return spec.samples


def _longest(spec: RLHFJobSpec) -> int:
    return spec.dataset.max_prompt_tokens + spec.training.max_response_tokens


def _actor(spec: RLHFJobSpec, shape: ModelShape) -> Memory:
    rows = min(spec.decode.slots, _samples(spec))
    parts = {
        "parameters": shape.parameters * _BYTES[spec.model.dtype],
        "kv_peak": rows * _longest(spec) * kv_bytes(spec, shape),
    }
    return Memory("decode", spec.decode.replicas, parts)


def _prefill(spec: RLHFJobSpec, shape: ModelShape) -> Memory:
    kept = spec.prefill.prefix_rows * spec.dataset.max_prompt_tokens * kv_bytes(spec, shape)
    parts = {
        "parameters": shape.parameters * _BYTES[spec.model.dtype],
        "kv_peak": kept + (spec.prefill.keep_mib << 20),
    }
    return Memory("prefill", 1, parts)


def _learner(spec: RLHFJobSpec, shape: ModelShape) -> list[Memory]:
    """Of one rank; with learner.cpuOffload of its GPU, and of the host's memory beside it."""
    held, computed = _held(spec, shape), _computed(spec, shape)
    ranks = spec.learner.ranks
    if not spec.learner.cpu_offload:
        return [Memory("learner", ranks, held | computed)]
    gathered = {"gathered": _gathered(shape) * _FULL}
    return [
        Memory("learner", ranks, gathered | computed),
        Memory("learner (host)", ranks, held),
    ]


def _gathered(shape: ModelShape) -> int:
    """Parameters that are whole while a layer computes: it, the next, and what is no layer."""
    outside = min(shape.parameters, 2 * shape.vocabulary * shape.hidden)
    each = -(-(shape.parameters - outside) // max(1, shape.layers))
    return min(shape.parameters, outside + 2 * each)


def _computed(spec: RLHFJobSpec, shape: ModelShape) -> dict[str, int]:
    """What one micro-batch makes."""
    return {
        "activations": _activations(spec, shape),
        "logits": 2 * spec.training.micro_batch_tokens * shape.vocabulary * _FULL,
    }


def _held(spec: RLHFJobSpec, shape: ModelShape) -> dict[str, int]:
    """Parameters, gradients and moments, which are shared out (FSDP).

    Adapters (LoRA) alone have gradients and moments, and the model below them is the reference. A
    critic counts as large as the policy, wherever it begins.
    """
    share = -(-shape.parameters * _FULL // spec.learner.ranks)
    lora = spec.training.lora
    learnt = share if lora is None else -(-_adapters(lora, shape) * _FULL // spec.learner.ranks)
    parts = {
        "parameters": share if lora is None else share + learnt,
        "gradients": learnt,
        "optimiser": _ADAM * learnt,
    }
    if lora is None and _is_held(spec):
        parts["reference"] = share
    if isinstance(spec.algorithm, PpoSpec):
        parts["critic"] = (2 + _ADAM) * share
    return parts


def _is_held(spec: RLHFJobSpec) -> bool:
    """Whether the policy is compared with the one that it began as."""
    algorithm = spec.algorithm
    if isinstance(algorithm, PolicyGradientSpec):
        return algorithm.kl_coefficient > 0
    return isinstance(algorithm, DpoSpec)


def _adapters(lora: LoraSpec, shape: ModelShape) -> int:
    """Parameters of the adapters, of a decoder's usual linear layers: rank * (in + out) each."""
    wide, narrow = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sizes = {
        "q_proj": shape.hidden + wide,
        "k_proj": shape.hidden + narrow,
        "v_proj": shape.hidden + narrow,
        "o_proj": wide + shape.hidden,
        "gate_proj": shape.hidden + shape.inner,
        "up_proj": shape.hidden + shape.inner,
        "down_proj": shape.inner + shape.hidden,
    }
    chosen = lora.targets or tuple(sizes)
    return shape.layers * lora.rank * sum(sizes.get(name, 0) for name in chosen)


def _activations(spec: RLHFJobSpec, shape: ModelShape) -> int:
    tokens, row = spec.training.micro_batch_tokens, _longest(spec)
    row = min(row, tokens)
    wide = 1 if spec.learner.mixed_precision else 2
    each = shape.hidden * 34 + 5 * shape.heads * row
    return shape.layers * tokens * each * wide


def _samples(spec: RLHFJobSpec) -> int:
    """Most samples that one actor of the first step can hold at once."""
    algorithm = spec.algorithm
    group = algorithm.group_size if isinstance(algorithm, PolicyGradientSpec) else 0
    return -(-spec.training.prompts_per_step * group // max(1, spec.decode.replicas))


class Alike(msgspec.Struct, frozen=True):
    """What steps of a job like this one took: its name, steps, their mean seconds."""

    job: str
    steps: int
    seconds: float


def same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two specs ask for the same work of the same machines, whatever the data."""
    parts = (
        "mode",
        "model",
        "algorithm",
        "decode",
        "learner",
        "prefill",
        "planner",
        "environment",
        "recorded",
    )
    sizes = (
        "promptsPerStep",
        "maxResponseTokens",
        "microBatchTokens",
        "updatesPerBatch",
        "miniBatches",
    )
    mine, others = one.get("training", {}), other.get("training", {})
    return all(one.get(part) == other.get(part) for part in parts) and all(
        mine.get(size) == others.get(size) for size in sizes
    )


def estimate(
    spec: RLHFJobSpec, shape: ModelShape | None, alike: Sequence[Alike] = ()
) -> dict[str, Any]:
    """All of it (ebbtide.api.Estimate). `alike`: the newest last."""
    basis = alike[-1] if alike else None
    seconds = spec.training.total_steps * basis.seconds if basis else None
    hourly = cost_per_hour(spec)
    known = seconds is not None and hourly is not None
    return {
        "members": members(spec),
        "currency": spec.currency,
        "costPerHour": hourly,
        "seconds": seconds,
        "cost": (hourly or 0.0) * (seconds or 0.0) / 3600.0 if known else None,
        "basis": _basis(basis),
        "parameters": shape.parameters if shape else None,
        "memory": [
            {"role": m.role, "members": m.members, "parts": m.parts, "total": m.total}
            for m in (memory(spec, shape) if shape else ())
        ],
    }


def _basis(alike: Alike | None) -> str:
    if alike is None:
        return "no job with the same model, sizes and machines has run here: time is not known"
    return f"{alike.steps} steps of the job {alike.job}: {alike.seconds:.1f} s each"
