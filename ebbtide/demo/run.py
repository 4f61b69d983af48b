"""One demonstration from nothing to report.html, through the same API that users have."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from ebbtide.cli import files, local
from ebbtide.cli.results import write_report
from ebbtide.cli.watch import watch_job
from ebbtide.client import Client
from ebbtide.demo.material import Material, obtain
from ebbtide.endpoint import read_up
from ebbtide.errors import Permanent

WARM_START = "sft.yaml"
DEMO = "demo.yaml"


class Wishes(msgspec.Struct, frozen=True):
    """What a person may change. `out` gets the report, the stack's state and the material."""

    out: Path
    examples: Path
    cache: Path
    seed: int
    port: int
    learning_rate: float | None = None
    steps: int | None = None
    engine: str | None = None
    actors: int | None = None
    """So many at first, and at most."""


def demonstrate(wishes: Wishes, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it; returns the figures of report.json. Whatever happens, the stack is stopped."""
    start = time.monotonic()
    with stack(wishes, say):
        warm_start, demo = (example(wishes, name) for name in (WARM_START, DEMO))
        material = obtain(wishes.cache, job=warm_start, seed=wishes.seed, say=say)
        lay_out(wishes, material)
        if material.warm:
            say(f"the warm-started model is in {material.folder}")
        else:
            say("warm start: supervised learning from clean, then from sloppy answers")
            finish(placed(warm_start, material))
            material.keep_model(exported(wishes, warm_start["metadata"]["name"]))
        engine = demo["spec"]["decode"]["engine"]
        say(f"reinforcement: GRPO, {_actors(demo)} on {engine} and two learner ranks")
        finish(placed(demo, material))
        write_report(demo["metadata"]["name"], wishes.out, as_json=False)
    say(f"done in {time.monotonic() - start:.0f} s")
    figures: dict[str, Any] = msgspec.json.decode((wishes.out / "report.json").read_bytes())
    return figures


@contextmanager
def stack(wishes: Wishes, say: Callable[[str], None]) -> Iterator[None]:
    """Everything runs while open, on an empty state folder."""
    state = wishes.out / "state"
    if read_up(state) is not None:  # an earlier run that was killed
        local.stop(folder=state, timeout=60)
    shutil.rmtree(state, ignore_errors=True)
    say("starting broker, store, operator and gateway")
    os.environ["EBBTIDE_STATE"] = str(state.resolve())  # where Client.from_state looks
    try:
        local.start(port=wishes.port, folder=state, timeout=120, as_json=False)
        yield
    finally:
        local.stop(folder=state, timeout=60)


def example(wishes: Wishes, name: str) -> dict[str, Any]:
    """The example's document with what the person changed."""
    document: dict[str, Any] = files.read(wishes.examples / name)
    document["spec"]["seed"] = wishes.seed
    if name == DEMO:
        training = document["spec"]["training"]
        changes = {"learningRate": wishes.learning_rate, "totalSteps": wishes.steps}
        training |= _given(changes)
        most = {"replicas": wishes.actors, "maxReplicas": wishes.actors}
        document["spec"]["decode"] |= _given({"engine": wishes.engine, **most})
    return document


def _actors(document: dict[str, Any]) -> str:
    decode = document["spec"]["decode"]
    return f"{decode['minReplicas']} to {decode['maxReplicas']} actors"


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if value is not None}


def placed(document: dict[str, Any], material: Material) -> dict[str, Any]:
    """The document with its files named where they really lie."""
    dataset = document["spec"]["dataset"]
    for holder in (document["spec"]["model"], *dataset.values()):
        if isinstance(holder, dict):
            holder["uri"] = str(material.folder.resolve() / Path(holder["uri"]).name)
    return document


def lay_out(wishes: Wishes, material: Material) -> None:
    """Show the material beside the report, where the examples name it."""
    link = wishes.out / "material"
    link.unlink(missing_ok=True)
    link.symlink_to(material.folder.resolve())


def finish(document: dict[str, Any]) -> None:
    """Submit over REST and watch to the end; ends with the job's failure if it fails."""
    name = document["metadata"]["name"]
    with Client.from_state() as client:
        client.submit(document)
    try:
        watch_job(name, as_json=False)
    except typer.Exit as ended:
        if ended.exit_code:
            raise


def exported(wishes: Wishes, name: str) -> Path:
    """The folder of the job's last policy, in Hugging Face's format."""
    with Client.from_state() as client:
        found = client.checkpoints(name).items
    if not found:
        raise Permanent(f"job {name} ended without a checkpoint")
    return wishes.out / "state" / "blobs" / found[0].policy_path
