"""A sequence-classification model with one output, as a score of a prompt with its answer.

Any such folder in Hugging Face format: a reward model on a language model's body (the score is read
at the last token) or an encoder. Padding changes no score: a body that reads left to right sees
only what stands before, and an encoder gets a mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification

from ebbtide.errors import Refused


class RewardModel:
    """`max_tokens` of one sequence; `batch_tokens` of one pass, padding included."""

    def __init__(
        self,
        folder: Path,
        *,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        max_tokens: int = 4096,
        batch_tokens: int = 16384,
    ) -> None:
        """Read model and tokenizer; raises Refused."""
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            model: Any = AutoModelForSequenceClassification.from_pretrained(
                folder, dtype="auto", local_files_only=True
            )
        except Exception as error:  # noqa: BLE001 - both libraries raise bare ones
            raise Refused(f"{folder} cannot be loaded as reward model: {error}") from None
        if model.config.num_labels != 1:
            labels = model.config.num_labels
            raise Refused(f"{folder} has {labels} outputs: a reward model has one (num_labels 1)")
        cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
        self._device = torch.device("cuda" if cuda else "cpu")
        self._model = model.eval().to(self._device)
        self._eos = _eos(model.config)
        self._max_tokens = max_tokens
        self._batch_tokens = batch_tokens

    @torch.inference_mode()
    def scores(self, texts: Sequence[tuple[str, str]]) -> list[float | None]:
        """One score per (prompt, answer), in order; None: it has too many tokens."""
        rows = [self._tokens(prompt + answer) for prompt, answer in texts]
        found: list[float | None] = [None] * len(rows)
        fitting = [i for i, row in enumerate(rows) if 0 < len(row) <= self._max_tokens]
        for batch in batches([len(rows[i]) for i in fitting], self._batch_tokens):
            places = [fitting[i] for i in batch]
            scores = self._forward([rows[i] for i in places]).float().tolist()
            for place, score in zip(places, scores, strict=True):
                found[place] = score
        return found

    def _tokens(self, text: str) -> list[int]:
        """As the model was trained: its tokenizer's special tokens once, EOS at the end."""
        ids: list[int] = self._tokenizer.encode(text).ids
        plain: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if len(ids) > len(plain) and ids[:1] == plain[:1]:
            ids = plain  # the prompt's chat template has written BOS already
        return ids if self._eos is None or ids[-1:] == [self._eos] else [*ids, self._eos]

    def _forward(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        tokens = torch.zeros(len(rows), width, dtype=torch.int64)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = torch.tensor(row)
        mask = (torch.arange(width) < lengths[:, None]).long().to(self._device)
        tokens = tokens.to(self._device)
        head = getattr(self._model, "score", None)
        if head is None:
            logits: torch.Tensor = self._model(input_ids=tokens, attention_mask=mask).logits
            return logits[:, 0]
        # transformers finds the last token by the padding's id, which may be a real token's too.
        hidden = self._model.base_model(input_ids=tokens, attention_mask=mask).last_hidden_state
        last = hidden[torch.arange(len(rows)), lengths - 1]
        scores: torch.Tensor = head(last)[:, 0]
        return scores


def identity(folder: Path) -> str:
    """SHA-256 over names and contents of what makes the scores: weights, configuration, tokenizer."""
    whole = hashlib.sha256()
    for pattern in ("*.safetensors", "config.json", "tokenizer.json"):
        for path in sorted(folder.glob(pattern)):
            with path.open("rb") as file:
                whole.update(
                    f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()};".encode()
                )
    return whole.hexdigest()


def batches(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Places of like lengths together, at most `limit` tokens with padding (or one alone)."""
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if found and lengths[place] * (len(found[-1]) + 1) <= limit:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _eos(config: Any) -> int | None:
    ids = config.get_text_config().eos_token_id
    return int(ids[0]) if isinstance(ids, list) else ids
