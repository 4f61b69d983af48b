from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.last_words import sentence


def line(event: str, level: str = "error", **more: str) -> str:
    return json.dumps({"at": "2026-01-01T00:00:00Z", "level": level, "event": event, **more})


ENDED = line("process ended", why="the torch engine broke: no GPU", reason="a setup that fails")
STARTED = line("process started", level="info", settings="{...}" * 500)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (f"{STARTED}\n{ENDED}\n", "the torch engine broke: no GPU"),
        (f"{ENDED}\nresource_tracker: 1 leaked", "the torch engine broke: no GPU"),
        (line("process died of a bug", error="KeyError(1)"), "process died of a bug: KeyError(1)"),
        (line("drain overran its grace period"), "drain overran its grace period"),
        (STARTED, "process started"),
        (f"{STARTED}\nRuntimeError: out of memory", "RuntimeError: out of memory"),
        ('"File x.py", line 3\\n"]}', "its last line was cut; its log has more"),
        (ENDED[:-5], "its last line was cut; its log has more"),
        ("\n \n", ""),
    ],
    ids=["ended", "noise after", "bug", "event", "start", "crash", "front", "back", "nothing"],
)
def test_the_last_lines_of_a_process_become_a_sentence(tail: str, said: str) -> None:
    assert sentence(tail) == said


@given(st.text())
def test_any_last_lines_become_at_most_one_line(tail: str) -> None:
    assert len(sentence(tail).splitlines()) <= 1
