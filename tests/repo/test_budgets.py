"""Size, typing and import budgets: what keeps the code readable is measured, not hoped for."""

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("ebbtide", "services", "operator", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)
LIGHT = (
    "services.gateway",
    "services.planner",
    "services.reward",
    "ebbtide_operator",
    "ebbtide.cli",
)
HEAVY = ("torch", "transformers", "vllm", "datasets")


def functions(path: Path) -> list[tuple[str, int]]:
    tree = ast.parse(path.read_text())
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(f"{path}:{n.lineno} {n.name}", (n.end_lineno or 0) - n.lineno + 1) for n in found]


def test_no_file_is_longer_than_400_lines() -> None:
    files = SOURCES + sorted((ROOT / "tests").rglob("*.py"))
    assert [str(p) for p in files if len(p.read_text().splitlines()) > 400] == []


def test_no_function_is_longer_than_60_lines() -> None:
    assert [f for path in SOURCES for f in functions(path) if f[1] > 60] == []


def test_nine_functions_of_ten_have_at_most_25_lines() -> None:
    sizes = [size for path in SOURCES for _, size in functions(path)]
    assert statistics.quantiles(sizes, n=10)[-1] <= 25
    assert statistics.median(sizes) <= 10


def untyped(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [f"{path}:{n.lineno}" for n in nodes if isinstance(n, kinds) and n.returns is None]


def test_every_function_states_its_types() -> None:
    assert [where for path in SOURCES for where in untyped(path)] == []


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_program_starts_without_heavy_libraries(module: str) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        f"m = importlib.import_module({module!r})\n"
        f"names = [n for n in ('app', 'core', 'settings', 'controller', '__main__')]\n"
        f"[importlib.import_module({module!r} + '.' + n) for n in names"
        f" if importlib.util.find_spec({module!r} + '.' + n)] if hasattr(m, '__path__') else None\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import importlib.util\n" + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_folder_operator_is_not_a_package() -> None:
    """A package of that name shadows the standard library and breaks every program here."""
    assert not (ROOT / "operator" / "__init__.py").exists()
