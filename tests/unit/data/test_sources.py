"""Rows from JSONL files, and what fixes a source's content."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ebbtide.data import sources
from ebbtide.errors import Refused
from ebbtide.spec import FileSource


def jsonl(uri: Path | str) -> FileSource:
    return FileSource(type="jsonl", uri=str(uri))


def test_rows_are_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n{"prompt": "y"}\n')
    rows = list(sources.read(jsonl(tmp_path / "a.jsonl")))
    assert [(row.place, row.fields["prompt"]) for row in rows] == [
        ("a.jsonl:1", "x"),
        ("a.jsonl:2", "y"),
    ]


def test_a_row_may_carry_its_own_task(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "x", "task": "sums"}\n{"prompt": "y"}\n')
    assert [row.task for row in sources.read(jsonl(tmp_path / "a.jsonl"))] == ["sums", "default"]


def test_a_pattern_reads_its_files_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.jsonl").write_text(f'{{"prompt": "{name}"}}\n')
    places = [row.place for row in sources.read(jsonl(tmp_path / "*" / "*.jsonl"))]
    assert places == ["a/part.jsonl:1", "b/part.jsonl:1"]


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a b.jsonl").write_text('{"prompt": "x"}\n')
    uri = (tmp_path / "a b.jsonl").as_uri()
    assert len(list(sources.read(jsonl(uri)))) == 1


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(Refused, match=r"no file at /nowhere/a\.jsonl") as caught:
        list(sources.read(jsonl("/nowhere/a.jsonl")))
    assert caught.value.field == "uri"


def test_other_places_than_files_are_refused() -> None:
    with pytest.raises(Refused, match="only files and folders"):
        list(sources.read(jsonl("https://example.org/a.jsonl")))


@pytest.mark.parametrize("line", ["[1]", "{", '{"a": "\xff"}'])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "x"}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(Refused, match=r"a\.jsonl:2 is not a JSON object"):
        list(sources.read(jsonl(tmp_path / "a.jsonl")))


DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_a_row_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "x"}\n' + DEEP + b"\n")
    with pytest.raises(Refused, match=r"a\.jsonl:2 is nested too deeply"):
        list(sources.read(jsonl(tmp_path / "a.jsonl")))


def test_blank_lines_are_passed_over_and_counted(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf\n{"prompt": "x"}\r\n\r\n  \n{"prompt": "y"}'
    (tmp_path / "a.jsonl").write_bytes(text)
    places = [row.place for row in sources.read(jsonl(tmp_path / "a.jsonl"))]
    assert places == ["a.jsonl:2", "a.jsonl:5"]


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "x"}\n')
    [row] = sources.read(jsonl(tmp_path / "a.jsonl"))
    assert row.fields == {"prompt": "x"}


def test_a_file_that_may_not_be_read_is_refused_and_a_failing_disk_is_not() -> None:
    with (
        pytest.raises(Refused, match=r"cannot read /a\.jsonl: no"),
        sources._readable(jsonl("/a.jsonl")),
    ):
        raise PermissionError(errno.EACCES, "no")
    with pytest.raises(OSError, match="broken"), sources._readable(jsonl("/a.jsonl")):
        raise OSError(errno.EIO, "broken")


def test_content_follows_the_bytes_and_not_the_place(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.jsonl").write_text('{"prompt": "x"}\n')
    one, two = (sources.content(jsonl(tmp_path / f / "rows.jsonl")) for f in "ab")
    (tmp_path / "b" / "rows.jsonl").write_text('{"prompt": "y"}\n')
    assert one == two != sources.content(jsonl(tmp_path / "b" / "rows.jsonl"))


def test_what_json_cannot_say_is_an_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        sources.to_json({"a": object()})
