"""A job's model as an actor gets it: published into a folder of its own, without a learner."""

from __future__ import annotations

from pathlib import Path

from ebbtide import wire
from ebbtide.data.sources import local_path
from ebbtide.engines.policies import INDEX_NAME, policy_digest, read_index
from ebbtide.errors import Refused
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import PolicyIndex, PolicyRef


def publish(spec: RLHFJobSpec, folder: Path) -> PolicyRef:
    """Write policy 0 of `spec.model` into `folder`; raises Refused where there is no model.

    The emulated engine needs no weights, so it gets none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if spec.decode.engine == "emulated":
        index = PolicyIndex(PolicyRef(0, 1, policy_digest(())), (), (), (), b"", b"")
        (folder / INDEX_NAME).write_bytes(wire.encode(index))
    else:
        _publish_weights(spec, folder)
    return read_index(folder / INDEX_NAME).policy


def _publish_weights(spec: RLHFJobSpec, folder: Path) -> None:
    import torch  # noqa: PLC0415 - 9 seconds, and the emulated engine needs none of it
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    from ebbtide.engines.publication import tied_names, write_publication  # noqa: PLC0415

    source, dtype = local_path(spec.model.uri), getattr(torch, spec.model.dtype)
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, local_files_only=True)
    except (OSError, ValueError) as error:
        why = f"no model can be loaded from {source}: {error}"
        raise Refused(why, field="/spec/model/uri") from None
    model.config.save_pretrained(folder)
    tensors, aliases = model.state_dict(), tied_names(model)
    write_publication(
        folder, tensors, aliases, policy_n=0, attempt=1, probe_tokens=b"", probe_logprobs=b""
    )
