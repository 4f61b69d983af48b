"""Environments of others: made once each, in the user's cache folder, from pinned versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """Another project of version `name`, apart from ebbtide's own; `requirements` pins all of it."""

    name: str
    requirements: Path

    def interpreter(self) -> Path:
        """Return its Python, making its environment first if it is not as pinned."""
        folder = _cache() / self.name
        marker = folder / ".ebbtide-pins"
        pins = hashlib.sha256(self.requirements.read_bytes()).hexdigest()
        python = folder / "bin" / "python"
        if not marker.is_file() or marker.read_text() != pins:
            uv = shutil.which("uv") or str(Path.home() / ".local" / "bin" / "uv")
            make = [uv, "venv", "--quiet", "--clear", "--python", "3.11", str(folder)]
            subprocess.run(make, check=True)
            fill = [uv, "pip", "install", "--quiet", "--python", str(python)]
            subprocess.run([*fill, "-r", str(self.requirements)], check=True)
            marker.write_text(pins)
        return python

    def run(self, script: Path, *arguments: str | Path, timeout: float) -> str:
        """Run `script` on one thread; return what it printed, raise if it failed."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [self.interpreter(), script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{script.name} failed: {done.stderr[-4000:]}")
        return done.stdout


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ebbtide"
