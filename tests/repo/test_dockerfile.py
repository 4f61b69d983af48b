"""The laws of the images, read from the Dockerfile: each instruction with the stage it is in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Stage(NamedTuple):
    parent: str
    lines: list[str]

    def all(self, word: str) -> list[str]:
        return [line.partition(" ")[2] for line in self.lines if line.startswith(f"{word} ")]


def instructions() -> list[str]:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [line.strip() for line in re.sub(r"\\\n\s*", "", bare).splitlines() if line.strip()]


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    current = found["global"] = Stage("", [])
    for line in instructions():
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            current = found[match[2]] = Stage(match[1], [])
        else:
            current.lines.append(line)
    return found


def lineage(name: str) -> list[Stage]:
    """The stage and those below it, the base image's excepted."""
    known = stages()
    found = [known[name]]
    while found[-1].parent in known:
        found.append(known[found[-1].parent])
    return found


FINAL = pytest.mark.parametrize("image", ["control", "compute"])


def test_every_stage_has_a_name_and_the_base_can_be_exchanged() -> None:
    assert not [line for line in instructions() if line.startswith("FROM") and " AS " not in line]
    assert stages()["global"].all("ARG") == ["BASE_IMAGE=python:3.11-slim-bookworm"]
    roots = {stage.parent for stage in stages().values()} - set(stages()) - {""}
    assert roots == {"${BASE_IMAGE}"}


@FINAL
def test_an_image_runs_as_a_number_that_is_not_root(image: str) -> None:
    users = [user for stage in lineage(image) for user in stage.all("USER")]
    assert users == ["10001:10001"]


@FINAL
def test_an_image_builds_nothing_itself_and_adds_bubblewrap_alone(image: str) -> None:
    (run,) = [run for stage in lineage(image) for run in stage.all("RUN")]
    assert "--no-install-recommends bubblewrap &&" in run
    assert all("--from=build" in copy for stage in lineage(image) for copy in stage.all("COPY"))


@FINAL
def test_an_image_writes_only_below_tmp(image: str) -> None:
    variables = " ".join(env for stage in lineage(image) for env in stage.all("ENV"))
    assert "HOME=/tmp" in variables
    assert "PYTHONDONTWRITEBYTECODE=1" in variables
    assert [place for stage in lineage(image) for place in stage.all("WORKDIR")] == ["/tmp"]


@FINAL
def test_an_image_says_what_it_is(image: str) -> None:
    labels = " ".join(label for stage in lineage(image) for label in stage.all("LABEL"))
    for name in ("title", "description", "licenses", "version", "revision", "ref.name"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_everything_comes_from_the_lock_file() -> None:
    runs = [run for stage in stages().values() for run in stage.all("RUN")]
    synced = [run for run in runs if "uv sync" in run]
    assert len(synced) == 3
    assert all("--locked" in run and "--no-default-groups" in run for run in synced)
    assert [run for run in runs if "pip install" in run and "uv==" not in run] == []


def test_only_the_compute_image_has_torch_and_what_keys_and_values_travel_by() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    heavy = [n for n, d in extras["optional-dependencies"].items() if "torch" in str(d)]
    known = stages()
    light = " ".join(known["build"].all("RUN"))
    assert [name for name in heavy if f"--extra {name}" in light] == []
    (run,) = [run for run in known["build-compute"].all("RUN") if "uv sync" in run]
    assert run.count("--extra compute --extra nixl") == 2  # what is installed, and what is listed
    assert known["control"].all("COPY") == ["--from=build /opt/ebbtide /opt/ebbtide"]


@FINAL
def test_each_role_starts_by_its_module(image: str) -> None:
    (command,) = stages()[image].all("CMD")
    package = command.split('"')[5].replace(".", "/")
    assert (ROOT / package / "__main__.py").exists()
    assert [x for stage in lineage(image) for x in stage.all("ENTRYPOINT")] == []


def test_what_is_copied_is_not_ignored() -> None:
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [c for c in stages()["build"].all("COPY") if "--from" not in c]
    sources = [word for copy in copied for word in copy.split()[:-1]]
    assert [source for source in sources if f"!{source}" not in kept] == []
