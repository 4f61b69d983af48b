"""The job's tokenizer: its files, digests, and the token ids that end an answer.

`identity` reads files alone, so that a prepared dataset is found again without the second or
more that importing transformers takes; `load` imports it, never torch.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.data.sources import local_path
from ebbtide.errors import Refused
from ebbtide.spec import ModelSpec
from ebbtide.wire import digest

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
_MODEL_FILES = ("config.json", "generation_config.json")


class Identity(msgspec.Struct, frozen=True):
    """What tells tokenizers apart; `model` is the digest of the model's stop ids and sizes."""

    tokenizer: str
    template: str
    model: str


class Vocabulary(msgspec.Struct, frozen=True):
    """Token ids: those that end an answer (sorted), the filler, and one above the largest.

    `unknown`: stands for whatever the tokenizer does not know; None: it knows every text, or uses
    a token that means something else too.
    """

    stop_ids: tuple[int, ...]
    pad_id: int
    size: int
    unknown: int | None = None


def tokenizer_folder(model: ModelSpec) -> Path:
    """Where the tokenizer's files lie; raises Refused when there are none."""
    field = "/spec/model/tokenizerUri" if model.tokenizer_uri else "/spec/model/uri"
    uri = model.tokenizer_uri or model.uri
    folder = local_path(uri)
    if not folder.is_dir():
        raise Refused(f"no folder {uri}", field=field)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise Refused(f"no tokenizer in {uri}: it has no tokenizer.json", field=field)
    return folder


def identity(model: ModelSpec) -> Identity:
    """Digests of the files and settings that shape token ids."""
    folder = tokenizer_folder(model)
    template = model.chat_template
    if template is None:
        template = _files_digest(folder, ("chat_template.jinja", "tokenizer_config.json"))
    stop = digest(json.dumps(model.stop_tokens).encode())
    return Identity(
        tokenizer=_files_digest(folder, TOKENIZER_FILES),
        template=digest(template.encode()),
        model=digest((_files_digest(local_path(model.uri), _MODEL_FILES) + stop).encode()),
    )


def load(model: ModelSpec) -> Any:
    """The tokenizer, by transformers; raises Refused with its reason when it cannot be read."""
    folder = tokenizer_folder(model)
    name = "PreTrainedTokenizerFast" if (folder / "tokenizer.json").is_file() else "AutoTokenizer"
    kind = getattr(import_module("transformers"), name)
    try:
        return kind.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # noqa: BLE001 - it raises a bare Exception for a malformed file
        reason = str(error).partition("\n")[0]
        raise Refused(
            f"cannot read the tokenizer in {folder}: {reason}", field="/spec/model"
        ) from None


def vocabulary(model: ModelSpec, tokenizer: Any) -> Vocabulary:
    """Stop ids from the tokenizer's EOS, the model's generation config and the job."""
    config = _json(local_path(model.uri) / "config.json")
    text = config.get("text_config", config)
    generation = _json(local_path(model.uri) / "generation_config.json") or text
    stop = {*_ids(tokenizer.eos_token_id), *_ids(generation.get("eos_token_id"))}
    stop.update(_stop_id(tokenizer, n, token) for n, token in enumerate(model.stop_tokens))
    if not stop:
        detail = "the tokenizer has no EOS token and the job names none: answers would never end"
        raise Refused(detail, field="/spec/model/stopTokens")
    pad, unknown = tokenizer.pad_token_id, tokenizer.unk_token_id
    size = int(text.get("vocab_size", len(tokenizer)))
    if unknown in {pad, tokenizer.bos_token_id, *stop}:
        unknown = None
    return Vocabulary(tuple(sorted(stop)), min(stop) if pad is None else int(pad), size, unknown)


def _stop_id(tokenizer: Any, n: int, token: str) -> int:
    number = tokenizer.get_vocab().get(token)
    if number is None:
        raise Refused(
            f"{token!r} is not one token of the tokenizer", field=f"/spec/model/stopTokens/{n}"
        )
    return int(number)


def _ids(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except RecursionError:
        raise Refused(f"{path} is nested too deeply", field="/spec/model/uri") from None
    except msgspec.DecodeError as error:
        raise Refused(f"{path} is not a JSON object: {error}", field="/spec/model/uri") from None


def _files_digest(folder: Path, names: tuple[str, ...]) -> str:
    found = [(name, (folder / name).read_bytes()) for name in names if (folder / name).is_file()]
    return digest(json.dumps([(name, digest(data)) for name, data in found]).encode())
