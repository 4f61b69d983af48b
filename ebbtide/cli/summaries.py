"""The list of commands in `ebbtide --help`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_WHOLE = 400
"""Characters; no summary is longer."""


class WholeSummaries(TyperGroup):
    """Commands whose summaries take more lines where click would cut them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the section of commands; typer's own copy of click has no public name."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
