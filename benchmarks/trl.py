"""The environment that TRL runs in."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peer import Peer

VERSION = "1.16.0"
TRL = Peer(f"trl-{VERSION}", Path(__file__).with_name("trl-requirements.txt"))
interpreter, run = TRL.interpreter, TRL.run
