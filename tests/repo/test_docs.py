"""What the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
CODE = re.compile(r"`[^`\n]*`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(CODE.sub("", page.read_text("utf-8")))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("document", ["guarantees.md", "threads.md"])
def test_the_tests_that_show_a_guarantee_exist(document: str) -> None:
    page = (ROOT / "docs" / document).read_text("utf-8")
    sources = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert [name for name in named if f"def {name}(" not in sources] == []
    folders = re.findall(r"\btests/[\w/.]+", page)
    assert [path for path in folders if not (ROOT / path).exists()] == []


def test_every_benchmark_with_a_target_is_on_its_page() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    targets = re.findall(
        r"^\[(\w+)\]", (ROOT / "benchmarks/targets.toml").read_text(), re.MULTILINE
    )
    assert [name for name in targets if f"| `{name}` |" not in page] == []
