"""What a chat template puts around an environment's reply, between two turns of the policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.data.sources import RawRow
from ebbtide.errors import Refused

_ANSWER, _REPLY = "EBBTIDEANSWER", "EBBTIDEREPLY"
_FIELD = "/spec/model/chatTemplate"

Chat = Callable[[RawRow, list[Any]], str]
"""Renders a conversation with the row's own settings, and opens the policy's turn."""


class Frame(msgspec.Struct, frozen=True):
    """Token ids before and after a reply."""

    opens: list[int]
    closes: list[int]


class Framing:
    """`role`: as whom the template shows a reply; `stops`: texts of the tokens that end a turn.

    What the template puts at the end of a turn begins the frame, for a turn may have ended at another
    token; where it ended at this one, it is not given again (`ebbtide.turns.given_ids`).
    Rows with the same settings have the same frame, which is made once.
    """

    def __init__(
        self, *, role: str, stops: Sequence[str], encode: Callable[[str], list[int]]
    ) -> None:
        self._role, self._encode = role, encode
        self._stops = tuple(stop for stop in stops if stop)
        self._known: dict[str, Frame] = {}

    def frame(self, row: RawRow, chat: Chat) -> Frame:
        """The frame of the row; raises Refused where the template has none."""
        name = _settings(row.fields)
        if name not in self._known:
            self._known[name] = self._made(row, chat)
        return self._known[name]

    def _made(self, row: RawRow, chat: Chat) -> Frame:
        said = [("user", "?"), ("assistant", _ANSWER), (self._role, _REPLY)]
        text = chat(row, [{"role": role, "content": content} for role, content in said])
        if text.count(_ANSWER) != 1 or text.count(_REPLY) != 1:
            detail = f"the chat template does not show a reply of role {self._role} as it is"
            raise Refused(f"{row.place}: {detail}", field=_FIELD)
        between = text.partition(_ANSWER)[2].partition(_REPLY)[0]
        after = text.partition(_REPLY)[2]
        return Frame(self._encode(self._from_stop(between)), self._encode(after))

    def _from_stop(self, text: str) -> str:
        """Without space before the end of the turn, where the policy drew none."""
        stripped = text.lstrip()
        return stripped if stripped.startswith(self._stops) else text


def _settings(fields: Mapping[str, Any]) -> str:
    shaping = [fields.get("tools"), fields.get("chat_template_kwargs")]
    return json.dumps(shaping, sort_keys=True, default=str)
