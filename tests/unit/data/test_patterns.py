"""Files by pattern: as shells find them, and never without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.data import patterns
from ebbtide.errors import Refused

NAMES = ("a.jsonl", "x/b.jsonl", "x/.hidden/c.jsonl", "x/y/d.jsonl", "x/y/notes.txt")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "x" / "y" / "loop").symlink_to(tmp_path)
    return tmp_path


def found(tree: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(tree)) for path in patterns.matching(tree / pattern)}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.jsonl", {"a.jsonl"}),
        ("[ab].jsonl", {"a.jsonl"}),
        ("*/*.jsonl", {"x/b.jsonl"}),
        ("x/?/d.jsonl", {"x/y/d.jsonl"}),
        ("**/*.jsonl", {name for name in NAMES if name.endswith(".jsonl")}),
        ("**/y/**", {"x/y/d.jsonl", "x/y/notes.txt"}),
        ("**/**/d.jsonl", {"x/y/d.jsonl"}),
        ("x/../a.jsonl", {"x/../a.jsonl"}),
        ("a.jsonl/*", set()),
        ("x", set()),
        ("n" * 300, set()),
    ],
)
def test_a_pattern_names_files(tree: Path, pattern: str, names: set[str]) -> None:
    assert found(tree, pattern) == names


def test_all_files_of_a_folder_are_found_in_order(tree: Path) -> None:
    assert patterns.below(tree) == sorted(tree / name for name in NAMES)


def test_a_relative_pattern_starts_here(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert patterns.matching(Path("*.jsonl")) == [Path("a.jsonl")]


def test_a_pattern_that_walks_too_far_is_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "MOST_ENTRIES", 3)
    with pytest.raises(
        Refused, match="more than 3 entries of folders: name the folder more"
    ) as caught:
        patterns.matching(tree / "**" / "*.jsonl")
    assert caught.value.field == "uri"
    assert patterns.matching(tree / "*.jsonl")


def test_a_tree_and_a_pattern_may_be_deep(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "a.jsonl").write_text("{}")
    assert len(patterns.matching(tmp_path / "**" / "a.jsonl")) == 1
    assert patterns.matching(tmp_path.joinpath(*["d/.."] * 500)) == []
