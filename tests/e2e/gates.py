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

    def before(self, material: Material, *, free: int = 0) -> Material:
        """The same prompts; each row but the first `free` ones names the gate as its answer."""
        rows = [json.loads(line) for line in material.prompts.read_text().splitlines()]
        gated = self.path.with_suffix(".jsonl")
        files = [gated] * free + [self.path] * (len(rows) - free)
        named = [row | {"answer": str(file)} for row, file in zip(rows, files, strict=True)]
        gated.write_text("".join(json.dumps(row) + "\n" for row in named))
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
    """Return once the file that the row names is there."""
    while not Path(reference["answer"]).exists():
        threading.Event().wait(0.02)
    return 0.0
