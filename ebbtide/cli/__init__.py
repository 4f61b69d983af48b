"""The command line: `ebbtide --help`.

`main` only parses; each command imports what it needs when it runs, so help comes at once.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the `ebbtide` command."""
    from ebbtide.cli.commands import app  # noqa: PLC0415 - importing ebbtide.cli costs nothing

    app(prog_name="ebbtide")
