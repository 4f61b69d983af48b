"""What `ebbtide watch` prints into a pipe."""

import pytest

from ebbtide.api import Event
from ebbtide.cli.watch import as_text


def test_a_note_that_repeats_the_state_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    note = Event(id="1", type="note", reason="RolesReady", message="Running", data={"count": 1})
    change = Event(id="2", type="progress", reason="RolesReady", data={"state": "Running"})
    last = as_text("demo", [note, change])
    assert (capsys.readouterr().out, last.notes) == ("demo: Running RolesReady\n", ())


def test_a_warning_of_the_data_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    status = {"progress": {"warning": "2 of 3 prompts are odd"}}
    news = {"state": "Pending", "status": status}
    as_text("demo", [Event(id=str(n), type="progress", data=news) for n in (1, 2)])
    assert capsys.readouterr().out == "demo: warning: 2 of 3 prompts are odd\n"
