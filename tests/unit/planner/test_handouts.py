"""Hand-outs on their way to an actor: none is forgotten, and no message is too large."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.streams import MAX_MESSAGE_BYTES
from ebbtide.wire import Assign, Dispatch, Fence, PromptRef, SampleKey, Sampling, Submit, encode
from services.planner.core.parcels import AT_ONCE, parcels
from tests.unit.planner.builders import NO_EVAL, UID, a_config, a_policy, a_ref, some_data
from tests.unit.planner.world import World

MANY = msgspec.structs.replace(NO_EVAL, group_size=100, slots=256, replicas=1)
A_PATH = "folder-of-a-user/" * 200
"""As long as a file's name may be."""


def test_all_hand_outs_whose_messages_were_lost_are_sent_again() -> None:
    world = World(a_config(steps=1, work=MANY), some_data(), actors=1)
    world.slots = MANY.slots
    while not any(letter.name == "Submit" for letter in world.letters):
        world.one_round()
        world.perform(world.seat)
    world.letters = [letter for letter in world.letters if letter.name != "Submit"]
    world.calm(rounds=100)
    assert world.reports[0].samples.accepted == 200


def an_assign(seq: int, prompt_id: str) -> Assign:
    return Assign(
        key=SampleKey(UID, 0, 0, seq),
        dispatch=Dispatch(1, 1, seq),
        policy=a_policy(0),
        prompt_id=prompt_id,
        prompt_ref=PromptRef(a_ref("chunk"), 0),
        sampling=Sampling(1.0, (0,)),
        noise_key=bytes(16),
        max_new_tokens=6,
    )


@pytest.mark.parametrize(("name", "messages"), [("rows.jsonl:1", 3), (A_PATH, 5)])
def test_hand_outs_go_in_messages_that_the_broker_takes(name: str, messages: int) -> None:
    assigns = [an_assign(seq, name) for seq in range(300)]
    sent = [Submit(Fence(1, 1), parcel) for parcel in parcels(assigns)]
    assert [assign for submit in sent for assign in submit.assigns] == assigns
    assert max(len(submit.assigns) for submit in sent) <= AT_ONCE
    assert max(len(encode(submit)) for submit in sent) <= MAX_MESSAGE_BYTES
    assert len(sent) == messages
