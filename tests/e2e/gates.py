"""Answers are scored once a test has seen what it waits for: no run ends before that, however fast."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.jobs import Material, Spec, first_half

SECONDS = 120
"""How long an answer's scoring may wait for the gate."""


@dataclass(frozen=True)
class Gate:
    """Shut until `open`; `path` is the file that says so."""

    path: Path

    def open(self) -> None:
        """Let all answers be scored."""
        self.path.touch()

    def before(self, material: Material) -> Material:
        """The same prompts; each row names the gate as its answer."""
        rows = [json.loads(line) for line in material.prompts.read_text().splitlines()]
        gated = self.path.with_suffix(".jsonl")
        gated.write_text("".join(json.dumps(r | {"answer": str(self.path)}) + "\n" for r in rows))
        return Material(material.model, gated)

    def reward(self) -> Spec:
        """The usual reward, to which waiting adds nothing."""
        waiting = {
            "type": "function",
            "name": "gate",
            "entryPoint": "tests.e2e.gates:passes",
            "weight": 0.0,
        }
        return {"components": [first_half(), waiting], "timeoutSeconds": SECONDS}


def passes(*, reference: dict[str, str], **_: object) -> float:
    """Return once the gate that the row names is open."""
    while not Path(reference["answer"]).exists():
        threading.Event().wait(0.02)
    return 0.0
