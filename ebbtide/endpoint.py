"""Where a running ebbtide is: the file that `ebbtide up` writes and every client reads.

`up.json` lies in the state folder and names the gateway's address and a file with the bearer
token; the token itself is never in it. Pure: callers pass the environment and the home folder.

`ebbtide up` runs `python -m ebbtide_operator.up --state DIR --port N` in the background. That
process stays until SIGTERM, writes up.json as it goes (`pids["up"]` is its own pid; `stage` says
what it waits for; `ready` once the gateway and the operator answer), prints one clear line on
stderr when it cannot start, and ends everything it started before it exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ebbtide.errors import Refused

UP_FILE = "up.json"
UP_LOG = "up.log"
"""Beside it: what the supervisor and its children say."""


class Up(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Content of up.json. `ready` turns true once the gateway and the operator answer.

    `pids` names the processes that `ebbtide down` ends; `stage` is for the progress display;
    `troubles` says by name what a part suffers from while it is tried again.
    """

    url: str
    token_file: str
    state_dir: str
    ready: bool = False
    stage: str = ""
    pids: Mapping[str, int] = {}
    troubles: Mapping[str, str] = {}


class Saved(msgspec.Struct, frozen=True, rename="camel"):
    """Content of a client's own file: ~/.config/ebbtide/client.json."""

    url: str
    token: str = ""


def state_dir(environ: Mapping[str, str], home: Path) -> Path:
    """The state folder: $EBBTIDE_STATE, else $XDG_STATE_HOME/ebbtide, else ~/.local/state."""
    if given := environ.get("EBBTIDE_STATE"):
        return Path(given)
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else home / ".local" / "state") / "ebbtide"


def client_file(environ: Mapping[str, str], home: Path) -> Path:
    """The client's own file, for a gateway that runs elsewhere."""
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else home / ".config") / "ebbtide" / "client.json"


def make_state_dir(folder: Path) -> None:
    """Make the state folder where there is none; raises Refused where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        why = "it is a file" if folder.is_file() else error.strerror
        detail = f"{folder} cannot be the state folder: {why}; choose another with --state-dir"
        raise Refused(detail, field="--state-dir") from None


def read_up(folder: Path) -> Up | None:
    """Up of the state folder, or None where nothing was started or nobody can tell: `damage`."""
    try:
        return _read(folder / UP_FILE)
    except msgspec.MsgspecError:
        return None


def damage(folder: Path) -> str:
    """Why up.json of the state folder cannot be read; empty if it can be, or is not there."""
    try:
        _read(folder / UP_FILE)
    except msgspec.MsgspecError as error:
        return f"{folder / UP_FILE} is damaged ({error})"
    return ""


def _read(file: Path) -> Up | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Up)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_up(folder: Path, up: Up) -> None:
    """Write up.json so that no reader ever sees half of it."""
    draft = folder / f"{UP_FILE}.new"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(up), indent=2))
    draft.replace(folder / UP_FILE)
