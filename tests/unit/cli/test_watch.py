"""What `ebbtide watch` prints into a pipe."""

import pytest

from ebbtide.api import Event
from ebbtide.cli.watch import as_text


def test_a_note_that_repeats_the_state_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    note = Event(id="1", type="note", reason="RolesReady", message="Running", data={"count": 1})
    change = Event(id="2", type="progress", reason="RolesReady", data={"state": "Running"})
    last = as_text("demo", [note, change])
    assert (capsys.readouterr().out, last.notes) == ("demo: Running RolesReady\n", ())
