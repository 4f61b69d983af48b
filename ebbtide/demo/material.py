"""Everything that the demonstration's two jobs read, written once per configuration and cached.

The folder is named by what it is made of: the code that writes it, the warm start's job and the
seed. It holds `start` (random weights), `lessons.jsonl`, `prompts.jsonl`, `held-out.jsonl` and,
once the warm start is done, `model`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.demo import items, model

LESSONS, PROMPTS, HELD_OUT = 0, 1, 2
"""Parts of the draw: no two share one."""
N_PROMPTS, N_HELD_OUT = 4000, 256
SLOPPY = 0.15


class Material(msgspec.Struct, frozen=True):
    """The folder of one configuration."""

    folder: Path

    @property
    def warm(self) -> bool:
        """Whether the warm-started model is there."""
        return (self.folder / "model").is_dir()

    def keep_model(self, source: Path) -> None:
        """Copy a publication here as the warm-started model."""
        with _whole(self.folder / "model") as draft:
            shutil.copytree(source, draft, ignore=shutil.ignore_patterns("index.msgpack"))


def obtain(
    cache: Path, *, job: Mapping[str, Any], seed: int, say: Callable[[str], None]
) -> Material:
    """The material for `seed` and the warm start `job`, found under `cache` or written there."""
    folder = cache / _name(job, seed)
    if not folder.is_dir():
        say("writing the model, the lessons and the prompts")
        spec = job["spec"]
        n_lessons = (
            spec["training"]["totalSteps"]
            * spec["algorithm"]["updatesPerStep"]
            * spec["algorithm"]["batchSize"]
        )
        with _whole(folder) as draft:
            write(draft, seed=seed, n_lessons=n_lessons, batch=spec["algorithm"]["batchSize"])
    return Material(folder)


def write(folder: Path, *, seed: int, n_lessons: int, batch: int) -> None:
    """Write all but the warm-started model into `folder`."""
    folder.mkdir(parents=True)
    model.save(folder / "start", seed=seed)
    lessons = items.items(seed=seed, part=LESSONS, count=n_lessons)
    rows = list(items.lesson_rows(lessons, seed=seed, sloppy=SLOPPY))
    _write_rows(folder / "lessons.jsonl", items.bucketed(rows, batch=batch, seed=seed))
    held_out = items.items(seed=seed, part=HELD_OUT, count=N_HELD_OUT)
    known = {item["question"] for item in held_out}
    prompts = items.items(seed=seed, part=PROMPTS, count=N_PROMPTS + N_HELD_OUT)
    fresh = [item for item in prompts if item["question"] not in known][:N_PROMPTS]
    _write_rows(folder / "prompts.jsonl", map(items.prompt_row, fresh))
    _write_rows(folder / "held-out.jsonl", map(items.prompt_row, held_out))


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A draft that becomes `folder` at the end, whole or not at all."""
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.parent.mkdir(parents=True, exist_ok=True)
    yield draft
    draft.rename(folder)


def _name(job: Mapping[str, Any], seed: int) -> str:
    names = ("items.py", "material.py", "model.py", "tokenizer.py")
    code = [Path(__file__).with_name(name).read_bytes() for name in names]
    spec = {key: value for key, value in job["spec"].items() if key not in ("model", "dataset")}
    made_of = [spec, seed, version("reasoning-gym"), *(hashlib.sha256(c).hexdigest() for c in code)]
    text = msgspec.json.encode(made_of, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]
