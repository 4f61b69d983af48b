"""Adapters over a base: merged when a publication is read, or for good (arXiv 2106.09685).

`python -m ebbtide.engines.merging INDEX FOLDER` writes the whole weights of the publication whose
index.msgpack is INDEX into the new FOLDER, in Hugging Face format.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from ebbtide.errors import Corrupt, EbbtideError

_NAME = re.compile(r"base_model\.model\.(.+)\.lora_A\.weight")


def merged(
    base: Mapping[str, torch.Tensor], adapters: Mapping[str, torch.Tensor], scale: float
) -> dict[str, torch.Tensor]:
    """`base` with `scale` B A added to each adapted weight, computed in float32.

    `adapters` have PEFT's names. Raises Corrupt where they do not fit the base.
    """
    whole = dict(base)
    pairs = 0
    for name, first in adapters.items():
        found = _NAME.fullmatch(name)
        if found is None:
            continue
        target = f"{found[1]}.weight"
        second, weight = adapters.get(name.replace("lora_A", "lora_B")), base.get(target)
        if second is None or weight is None or weight.shape != (len(second), first.shape[1]):
            raise Corrupt(f"{name} does not fit the base's {target}")
        moved = weight.float() + scale * (second.float() @ first.float())
        whole[target] = moved.to(weight.dtype)
        pairs += 1
    if 2 * pairs != len(adapters):
        raise Corrupt(f"{len(adapters)} tensors are not {pairs} pairs of adapters")
    return whole


def export(index_path: Path, folder: Path) -> None:
    """Write a publication's whole weights with its configuration and tokenizer; new `folder`.

    Raises Corrupt if the publication or its base is not what its index says.
    """
    from ebbtide.engines.publication import (  # noqa: PLC0415 - which merges by this module
        read_publication,
        write_publication,
    )

    index, tensors = read_publication(index_path)
    folder.mkdir(parents=True)
    weights = {described.file for described in index.tensors}
    for file in index.files:
        if file.path not in weights and not file.path.startswith("adapter_"):
            shutil.copyfile(index_path.parent / file.path, folder / file.path)
    write_publication(
        folder,
        tensors,
        dict(index.aliases),
        policy_n=index.policy.n,
        attempt=index.policy.attempt,
        probe_tokens=index.probe_tokens,
        probe_logprobs=index.probe_logprobs,
    )


def main() -> int:
    """Exit code of the process."""
    index, folder = map(Path, sys.argv[1:])
    try:
        export(index, folder)
    except (EbbtideError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
