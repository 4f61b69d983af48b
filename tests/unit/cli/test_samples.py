"""What `samples` heads its columns with, and says where there is none."""

from __future__ import annotations

from typing import Self

import pytest

from ebbtide.api import CheckpointList, SliceList
from ebbtide.cli.results import no_samples, show_checkpoints
from ebbtide.cli.slices import columns
from ebbtide.client import Client


def test_the_scorers_version_is_not_headed_like_the_mean_reward() -> None:
    found = SliceList.model_construct(by=["step", "reward"], items=[], first_step=0, last_step=0)
    heads = columns(found)
    assert heads[:2] == ("STEP", "REWARD VERSION")
    assert len(set(heads)) == len(heads)


def test_a_job_that_learns_from_anothers_batches_says_whose() -> None:
    assert "the job with uid 0b1c" in no_samples(None, None, {"uid": "0b1c"})
    assert no_samples(None, None, None) == "no samples yet"


class _Nothing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def checkpoints(self, name: str) -> CheckpointList:
        return CheckpointList(items=[])


def test_no_checkpoint_is_said_with_what_makes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Client, "from_state", _Nothing)
    show_checkpoints("demo", as_json=False)
    assert capsys.readouterr().out.startswith("no checkpoint yet: one is committed")
