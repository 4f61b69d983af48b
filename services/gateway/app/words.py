"""Looks at the words of a model: its chat template is parsed, its stop tokens are looked up.

Nothing is rendered. What only the preparation can judge (a tokenizer without tokenizer.json) is
left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_LARGEST = 64 << 20
_HUB = re.compile(r"[A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*")
_MORE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files that may add tokens, in several forms."""


def template_fault(template: str) -> str:
    """Why `template` cannot be a chat template, or an empty string."""
    environment = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols", _Generation])
    try:
        environment.parse(template)
    except TemplateError as error:
        lineno = getattr(error, "lineno", None)
        where = f" (line {lineno})" if lineno else ""
        return f"the chat template cannot be parsed: {error.message}{where}"
    except RecursionError:
        return "the chat template cannot be parsed: it is nested too deeply"
    return ""


def hub_words(uri: str) -> str:
    """What to add to "there is no such folder" where `uri` may be a model's name on a hub.

    The command line has put the folder of the job file before it.
    """
    owner, _, model = uri.rpartition("/")
    place, _, owner = owner.rpartition("/")
    name = f"{owner}/{model}"
    if (
        not _HUB.fullmatch(name)
        or _is_path(uri)
        or (place and not _first_missing(Path(place), owner))
    ):
        return ""
    get = f"hf download {name} --local-dir DIR"
    how = f"download it (for instance `{get}`) and give the folder"
    return f"; names of a hub are not looked up: {how}"


def _is_path(uri: str) -> bool:
    """Whether it says itself that it is one: runs/ is where the examples' files are written."""
    return uri.startswith(("./", "../")) or "runs" in Path(uri).parts[:-1]


def _first_missing(place: Path, owner: str) -> bool:
    """Whether `owner` is the first part of the path that is not there."""
    return place.is_dir() and not (place / owner).exists()


class _Generation(Extension):
    """The block in which transformers' templates put what the model said."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it without ClassVar

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body, as if it stood there alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Added(msgspec.Struct):
    content: str


class _Vocabulary(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _Tokenizer(msgspec.Struct):
    model: _Vocabulary
    added_tokens: list[_Added] = []


def unknown(tokens: tuple[str, ...], folder: Path) -> Iterator[tuple[int, str]]:
    """(place, token) of each of `tokens` that the tokenizer in `folder` does not have."""
    known = _known(folder / "tokenizer.json") if tokens else None
    if known is None:
        return
    rest = [(n, token) for n, token in enumerate(tokens) if token not in known]
    more = [
        (folder / name).read_text("utf-8", "replace") for name in _MORE if (folder / name).is_file()
    ]
    for n, token in rest:
        spellings = (token, json.dumps(token)[1:-1])
        if not any(spelling in text for spelling in spellings for text in more):
            yield n, token


def _known(file: Path) -> set[str] | None:
    """The file's tokens; None where that cannot be told."""
    if not file.is_file() or file.stat().st_size > _LARGEST:
        return None
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_Tokenizer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    vocabulary = found.model.vocab
    words = vocabulary if isinstance(vocabulary, dict) else (word for word, _ in vocabulary)
    return {*words, *(added.content for added in found.added_tokens)}
