"""What `samples` heads its columns with, and says where there is none."""

from __future__ import annotations

from ebbtide.api import SliceList
from ebbtide.cli.slices import columns


def test_the_scorers_version_is_not_headed_like_the_mean_reward() -> None:
    found = SliceList.model_construct(by=["step", "reward"], items=[])
    heads = columns(found)
    assert heads[:2] == ("STEP", "REWARD VERSION")
    assert len(set(heads)) == len(heads)
