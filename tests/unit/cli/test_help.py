from __future__ import annotations

from typer.testing import CliRunner

from ebbtide.cli.commands import app


def test_no_summary_of_a_command_is_cut() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["--help"]).stdout
    commands = shown[shown.index("Commands:") : shown.index("Examples:")]
    assert "..." not in commands
    assert max(map(len, commands.splitlines())) <= 80
    for command in app.registered_commands:
        assert f"  {command.name or (command.callback and command.callback.__name__)} " in commands
