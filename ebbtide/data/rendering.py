"""From a row's fields to token ids, by TRL's conventions.

A prompt is text or a list of messages ({role, content}). Text gets the tokenizer's own special
tokens; messages go through the chat template with a generation prompt, or go on from a last
assistant message. `tools` and `chat_template_kwargs` of a row reach the template. A completion
(supervised jobs) continues the prompt's own tokens, since that is what the model will be asked
to do; plain text is closed with EOS. Nothing here is ever tokenised twice on its way to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from jinja2 import TemplateError

from ebbtide.data.framing import Frame, Framing
from ebbtide.data.sources import RawRow
from ebbtide.errors import Refused


class Rendered(msgspec.Struct, frozen=True):
    """Text and token ids of a prompt, and of its completion where one was asked for.

    Of a pair the completion is the better answer; `rejected` is the other. `frame`: of an
    environment's replies; None: they stand by themselves, or there are none.
    """

    text: str
    prompt: list[int]
    completion: list[int]
    rejected: list[int] = []
    frame: Frame | None = None


class Fields(msgspec.Struct, frozen=True):
    """Which fields hold the prompt and, for supervised jobs, the completion or the pair."""

    prompt: str = "prompt"
    completion: str = ""
    rejected: str = ""


class _Texts(msgspec.Struct, frozen=True):
    prompt: str
    completion: str
    closed: bool
    """The template has said all: no special tokens, no EOS to add."""


class Renderer:
    """Renders rows in batches; `template` replaces the tokenizer's own chat template.

    `framing`: of replies, in jobs with an environment.
    """

    def __init__(
        self,
        *,
        tokenizer: Any,
        template: str | None,
        fields: Fields,
        framing: Framing | None = None,
    ) -> None:
        self._framing = framing
        self._tokenizer = tokenizer
        self._eos: int | None = tokenizer.eos_token_id
        self._template = template
        self._fields = fields

    def render(self, rows: Sequence[RawRow]) -> list[Rendered]:
        """One result per row, in order; raises Refused that names the row at fault."""
        found = self._rendered(rows, self._fields.completion)
        if not self._fields.rejected:
            return found
        others = self._rendered(rows, self._fields.rejected)
        return [
            msgspec.structs.replace(row, rejected=other.completion)
            for row, other in zip(found, others, strict=True)
        ]

    def _rendered(self, rows: Sequence[RawRow], answer: str) -> list[Rendered]:
        """The prompts with what the field `answer` holds (empty: the prompts alone)."""
        texts = [self._texts(row, answer) for row in rows]
        prompts = self._encode([(t.prompt, not t.closed) for t in texts])
        wholes = prompts
        if answer:
            wholes = self._encode([(t.prompt + t.completion, not t.closed) for t in texts])
        return [
            Rendered(
                text=t.prompt,
                prompt=prompt,
                completion=self._completion(t, prompt, whole),
                frame=self._frame(row, t),
            )
            for row, t, prompt, whole in zip(rows, texts, prompts, wholes, strict=True)
        ]

    def _frame(self, row: RawRow, texts: _Texts) -> Frame | None:
        """A text without chat template has no roles: replies are put after it as they are."""
        if self._framing is None or not texts.closed:
            return None
        return self._framing.frame(row, lambda r, said: self._chat(r, said, opens=True))

    def _texts(self, row: RawRow, answer: str) -> _Texts:
        prompt = self._field(row, self._fields.prompt)
        completion = self._field(row, answer) if answer else ""
        if isinstance(prompt, str):
            if not isinstance(completion, str):
                raise _refuse(row, answer, "must be text, as the prompt is")
            return _Texts(prompt, completion, closed=False)
        if isinstance(completion, str) and completion:
            raise _refuse(row, answer, "must be messages, as the prompt is")
        return self._conversation(row, prompt, completion, answer)

    def _conversation(self, row: RawRow, prompt: Any, completion: Any, answer: str) -> _Texts:
        head = self._chat(row, _messages(row, self._fields.prompt, prompt), opens=True)
        if not completion:
            return _Texts(head, "", closed=True)
        turns = prompt + _messages(row, answer, completion)
        whole = self._chat(row, turns, opens=False)
        if not whole.startswith(head):
            detail = "the chat template renders the prompt differently once it has an answer"
            raise Refused(f"{row.place}: {detail}", field="/spec/model/chatTemplate")
        return _Texts(head, whole.removeprefix(head), closed=True)

    def _chat(self, row: RawRow, messages: list[Any], *, opens: bool) -> str:
        goes_on = opens and messages[-1]["role"] == "assistant"
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages,
                chat_template=self._template,
                tools=row.fields.get("tools"),
                tokenize=False,
                add_generation_prompt=opens and not goes_on,
                continue_final_message=goes_on,
                **(row.fields.get("chat_template_kwargs") or {}),
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            detail = f"{row.place}: the chat template fails: {reason}"
            raise Refused(detail, field="/spec/model/chatTemplate") from None
        return text

    def _encode(self, texts: Sequence[tuple[str, bool]]) -> list[list[int]]:
        encoded: list[list[int]] = [[] for _ in texts]
        for special in (False, True):
            places = [n for n, (_, wants) in enumerate(texts) if wants is special]
            if places:
                batch = [texts[n][0] for n in places]
                ids = self._tokenizer(batch, add_special_tokens=special)["input_ids"]
                for n, row in zip(places, ids, strict=True):
                    encoded[n] = row
        return encoded

    def _completion(self, texts: _Texts, prompt: list[int], whole: list[int]) -> list[int]:
        if not texts.completion:
            return []
        if whole[: len(prompt)] == prompt:
            ids = whole[len(prompt) :]
        else:  # a token spans the border; the model will never see that one
            ids = self._encode([(texts.completion, False)])[0]
        eos = self._eos
        return ids if texts.closed or eos is None or ids[-1:] == [eos] else [*ids, eos]

    def _field(self, row: RawRow, name: str) -> Any:
        value = row.fields.get(name)
        if value is None:
            have = ", ".join(sorted(row.fields)) or "none"
            raise Refused(f"{row.place} lacks the field {name!r}; it has: {have}")
        if not value or not isinstance(value, str | list):
            raise _refuse(row, name, "must be text or a list of messages, and not empty")
        return value


def _messages(row: RawRow, field: str, value: Any) -> list[Mapping[str, Any]]:
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _refuse(row, field, "must be a list of messages with role and content")
        if message.get("content") is None and not message.get("tool_calls"):
            raise _refuse(row, field, "has a message without content")
    return list(value)


def _refuse(row: RawRow, field: str, what: str) -> Refused:
    return Refused(f"{row.place}: field {field!r} {what}")
