"""The engine that computes prompts: the actors' own, or one whose KV they can take."""

from __future__ import annotations

from ebbtide.ports import Engine
from ebbtide.spec import RLHFJobSpec


def make_engine(spec: RLHFJobSpec) -> Engine:
    """Build it; it serves nothing until a policy is loaded.

    In reference mode its bits depend on the shape of the actors' batch, so it has their slots;
    elsewhere it needs no room for samples.
    """
    import torch  # noqa: PLC0415 - 9 seconds, and settings are checked first

    from ebbtide.engines.torch.decoder import Limits  # noqa: PLC0415
    from ebbtide.engines.torch.engine import TorchEngine  # noqa: PLC0415

    torch.set_num_threads(spec.prefill.threads)
    device = spec.prefill.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    reference = spec.decode.reference_mode
    limits = Limits(
        slots=spec.decode.slots if reference else 1,
        width=spec.dataset.max_prompt_tokens + spec.training.max_response_tokens,
        prefix_rows=spec.prefill.prefix_rows,
        reference=reference,
    )
    return TorchEngine(limits, device=device)
