"""Where programs run: a cell made by bubblewrap, or, if the administrator says so, none.

A cell has a user, mount, process, network, IPC and host-name namespace of its own; of the disk it
sees the system's programs and libraries alone, read-only; `/tmp` is memory of bounded size. No
variable, descriptor or capability; a filter of system calls (`ebbtide.sandbox.seccomp`) that makes
no further namespace either. There is no `/proc`: inside a container the kernel mounts none, since
the container's own is masked. A service that runs as root enters it as nobody, because the kernel
counts no processes of root.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.errors import Refused
from ebbtide.sandbox import inside, seccomp

_NOBODY = 65534
_FOLDER = Path(inside.__path__[0])
_SCRIPTS = ("tester.py", "candidate.py")
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
_SCRATCH_BYTES = 64 << 20
_NAMESPACES = (
    "--unshare-user",
    "--unshare-all",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
)


class Cell(msgspec.Struct, frozen=True):
    """How to start a tester. `bwrap`: path of bubblewrap; empty: no isolation at all."""

    python: str
    bwrap: str = ""

    @property
    def alone(self) -> bool:
        """Whether what runs in it is isolated."""
        return bool(self.bwrap)

    def command(self, asked: int, verdict: int, *, files: Mapping[str, int]) -> list[str]:
        """The tester's command line; `files`: descriptor of each script, and of the filter."""
        ending = ["-I", "-S", "", str(asked), str(verdict)]
        if not self.alone:
            ending[2] = str(_FOLDER / _SCRIPTS[0])
            return [self.python, *ending]
        ending[2] = f"/sandbox/{_SCRIPTS[0]}"
        parts = [self.bwrap, *_NAMESPACES, *_mounts(self.python)]
        for name in _SCRIPTS:
            parts += ["--ro-bind-data", str(files[name]), f"/sandbox/{name}"]
        parts += ["--remount-ro", "/", "--seccomp", str(files["filter"])]
        return [*parts, "--chdir", "/tmp", "--", self.python, *ending]  # noqa: S108 - the cell's

    def identity(self) -> dict[str, Any]:
        """Arguments of Popen by which root becomes nobody."""
        if not self.alone or os.geteuid() != 0:
            return {}
        return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def find(python: str = "") -> Cell:
    """The cell of this machine; raises Refused that names what is missing.

    `python`: interpreter of the programs; empty: the system's, else this one's base. Says nothing
    of whether the kernel plays along: `ebbtide.sandbox.proof` tries it.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Refused("bubblewrap is not installed: apt-get install bubblewrap", field="sandbox")
    if platform.machine() not in seccomp.MACHINES:
        raise Refused(f"no filter of system calls for {platform.machine()}", field="sandbox")
    return Cell(python or interpreter(), bwrap)


def interpreter() -> str:
    """The system's Python, which every user may run, else that under this environment."""
    system = Path("/usr/bin/python3")
    return str(system if system.exists() else Path(sys.executable).resolve())


def scripts() -> dict[str, bytes]:
    """What `Cell.command` wants descriptors of, with its content."""
    found = {name: (_FOLDER / name).read_bytes() for name in _SCRIPTS}
    return {**found, "filter": seccomp.program(platform.machine())}


def _mounts(python: str) -> list[str]:
    parts = ["--uid", str(_NOBODY), "--gid", str(_NOBODY), "--hostname", "cell"]
    for path in _SYSTEM:
        if Path(path).is_symlink():
            parts += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            parts += ["--ro-bind", path, path]
    prefix = Path(python).resolve().parent.parent
    if prefix != Path("/usr"):
        parts += ["--ro-bind", str(prefix), str(prefix)]
    scratch = ["--size", str(_SCRATCH_BYTES), "--tmpfs", "/tmp"]  # noqa: S108 - the cell's own
    return [*parts, "--dev", "/dev", "--remount-ro", "/dev", *scratch]
