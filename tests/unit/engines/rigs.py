"""A decoder without its thread, so that a test decides every round."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch

from ebbtide.engines.publication import read_publication
from ebbtide.engines.samples import open_sample
from ebbtide.engines.torch.decoder import Decoder, Limits, make_storage
from ebbtide.engines.torch.runner import Runner, build_model, load_weights
from ebbtide.ports import Admission, EngineEvent
from ebbtide.testing.tiny_models import VOCAB, Tiny

LIMITS = Limits(slots=4, width=64, prefix_rows=4, prefill_chunk=16)


def runner(tiny: Tiny) -> Runner:
    """The model of `tiny`, loaded from its publication."""
    torch.set_num_threads(1)
    index, tensors = read_publication(tiny.path)
    model = build_model(tiny.folder, device="cpu", dtype=torch.float32)
    load_weights(model, tensors, dict(index.aliases))
    return Runner(model)


def decoder(tiny: Tiny, limits: Limits = LIMITS, *, using: Runner | None = None) -> Decoder:
    """A decoder of `tiny` on a clock that counts its calls."""
    clock = itertools.count()
    return Decoder(
        using or runner(tiny),
        make_storage(limits),
        policy=tiny.policy,
        limits=limits,
        now=lambda: float(next(clock)),
    )


def give(to: Decoder, admissions: Iterable[Admission]) -> None:
    """Submit, unpacked as the engine does."""
    for admission in admissions:
        to.submit(open_sample(admission, vocab=VOCAB, width=64, now=0.0), admission.kv)


def drain(each: Decoder) -> list[EngineEvent]:
    """Rounds until idle."""
    events: list[EngineEvent] = []
    with torch.inference_mode():
        while not each.idle:
            events += each.round()
    return events
