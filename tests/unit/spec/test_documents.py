from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.documents import MAX_DEPTH, parse, parse_json, parse_yaml
from ebbtide.errors import Refused

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_means_the_same_read_as_yaml(value: object) -> None:
    text = json.dumps(value)
    assert parse_yaml(text) == parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("2e-4", 2e-4),
        ("-0.5", -0.5),
        (".5", 0.5),
        ("010", 10),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("~", None),
        ("'1'", "1"),
        ("2026-01-01", "2026-01-01"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_scalars_follow_the_yaml_core_schema(text: str, value: object) -> None:
    found = parse_yaml(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x 1\nb: *x", "line 1, column 4: anchors"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' occurs twice"),
        ("a: !!python/object:os.system x", "the tag"),
        ("a: !local {}", "the tag"),
        ("a: 1\n---\nb: 2", "more than one document"),
        ("? [a]\n: 1", "a key must be text"),
        ("a: .nan", "not a finite number"),
        ("a: 1e999", "too large"),
        ("a: [", "line 2"),
        ("\x00", "not YAML"),
        ("{a: " * 100, f"nested deeper than {MAX_DEPTH}"),
        ("[" * 100_000, "nesting"),
    ],
)
def test_yaml_that_would_surprise_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_yaml(text)
    assert words in caught.value.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("NaN", "not a JSON number"),
        ("1e999", "too large"),
        ("{", "line 1, column 2"),
        ("[" * 200_000, "nested too deeply"),
        ("1" * 5000, "digits"),
    ],
)
def test_json_that_would_surprise_is_refused(text: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_json(text)
    assert words in caught.value.detail


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(Refused, match="byte 2 is wrong"):
        parse(b"a\x20\xff", "application/json")


def test_an_empty_yaml_document_is_null() -> None:
    assert parse(b"", "application/yaml") is None
