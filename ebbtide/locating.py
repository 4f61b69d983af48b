"""Finds the gateway that a client is to talk to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ebbtide.addresses import fault
from ebbtide.endpoint import Saved, client_file, read_up, state_dir
from ebbtide.errors import Refused


class Address(msgspec.Struct, frozen=True):
    """Where the gateway is, and the token to show."""

    url: str
    token: str


def locate(environ: Mapping[str, str], home: Path) -> Address:
    """Find the gateway: $EBBTIDE_URL (and $EBBTIDE_TOKEN), up.json, then the client's own file.

    Raises Refused, which says how to start or name one.
    """
    if url := environ.get("EBBTIDE_URL"):
        _check(url, "EBBTIDE_URL")
        return Address(url, environ.get("EBBTIDE_TOKEN", "") or _token_beside(environ, home, url))
    up = read_up(state_dir(environ, home))
    if up is not None:
        return Address(up.url, environ.get("EBBTIDE_TOKEN") or _read_token(up.token_file))
    own = client_file(environ, home)
    if own.is_file():
        saved = _saved(own)
        _check(saved.url, f"{own}: url")
        return Address(saved.url, environ.get("EBBTIDE_TOKEN") or saved.token)
    raise Refused("no gateway is known: start one with `ebbtide up`, or set EBBTIDE_URL")


def _check(url: str, place: str) -> None:
    if why := fault(url):
        raise Refused(f"{place}: {url}: {why}", field=place)


def _saved(own: Path) -> Saved:
    try:
        return msgspec.json.decode(own.read_bytes(), type=Saved)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(f"{own} cannot be read: {error}") from None


def _token_beside(environ: Mapping[str, str], home: Path, url: str) -> str:
    """The token of the local gateway when it is the one that the URL names."""
    up = read_up(state_dir(environ, home))
    return _read_token(up.token_file) if up is not None and up.url == url else ""


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise Refused(f"cannot read the token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(f"the token file {path} is damaged: it is not text") from None
