"""Light programs start without torch: the control plane needs no GPU image."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm", "datasets", "reasoning_gym", "pyarrow")
CLI_HEAVY = (*HEAVY, "rich", "pydantic", "httpx", "fastapi", "numpy")


def modules(statement: str) -> set[str]:
    """Modules that are loaded after `statement`."""
    program = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def loaded(statement: str) -> set[str]:
    """Their top-level packages."""
    return {name.split(".")[0] for name in modules(statement)}


@pytest.mark.parametrize(
    "module", ["services.gateway.app.server", "ebbtide.client", "ebbtide.report", "ebbtide.demo"]
)
def test_a_light_program_loads_nothing_heavy(module: str) -> None:
    assert loaded(f"import {module}") & set(HEAVY) == set()


def test_the_command_line_parses_before_it_loads_anything() -> None:
    assert loaded("import ebbtide.cli.commands") & set(CLI_HEAVY) == set()


def test_what_asks_the_gateway_knows_neither_the_schema_of_jobs_nor_the_wire() -> None:
    found = modules("import ebbtide.cli.jobs, ebbtide.cli.watch, ebbtide.cli.results")
    assert found & {"ebbtide.spec", "ebbtide.wire", "numpy"} == set()
