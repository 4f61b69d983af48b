"""KV of prompts that the prefill service has: asked for once per prompt, for all siblings here."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from ebbtide import streams, wire
from ebbtide.errors import DeadlineExceeded, Temporary
from ebbtide.kv import kv_key
from ebbtide.logs import Log
from ebbtide.ports import Bus, Engine, Expired, Imported, KvData, Transfer
from ebbtide.wire import Assign, Granted, KvKey, KvTicket, TicketReply, TicketRequest
from services.decode.app.metrics import DecodeMetrics

_TOKEN_BYTES = 4
_REPLIES: msgspec.msgpack.Decoder[TicketReply] = msgspec.msgpack.Decoder(TicketReply)
Asking = asyncio.Task[KvData | None]


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """`ask`: seconds to wait for a ticket; `patience`: for a pull; `keep`: bytes of KV kept.

    What came of a prompt is kept for its siblings, also that nothing came: without KV the
    engine computes it, once for all of them, so nobody asks again.
    """

    bus: Bus
    transfer: Transfer | None
    engine: Engine
    metrics: DecodeMetrics
    log: Log
    job_uid: str
    pod: str
    ask: float
    patience: float
    keep: int
    _asked: OrderedDict[KvKey, Asking] = field(default_factory=OrderedDict)

    async def kv(self, assign: Assign, prompt: bytes) -> KvData | None:
        """KV of all of `prompt` but its last token, or nothing: then the engine computes."""
        key = self._wanted(assign, prompt)
        if key is None or self.transfer is None:
            self.metrics.prompt("unfit")
            return None
        if key not in self._asked:
            self._forget_others(key)
            self._asked[key] = asyncio.create_task(self._get(self.transfer, assign, key, prompt))
        self._asked.move_to_end(key)
        # A sample that is cut meanwhile must not take the answer from its siblings.
        kv = await asyncio.shield(self._asked[key])
        self._trim()
        return kv

    def forget(self) -> None:
        """Keep no KV; what is on its way is kept for whoever waits for it."""
        for key in [key for key, asking in self._asked.items() if asking.done()]:
            del self._asked[key]

    def _wanted(self, assign: Assign, prompt: bytes) -> KvKey | None:
        """The KV that this engine can use, if it is what `assign` promises."""
        promised, layout = assign.kv, self.engine.caps.kv_layout
        n = len(prompt) // _TOKEN_BYTES - 1
        if promised is None or not layout or n < 1:
            return None
        key = kv_key(assign.policy, prompt, n, layout)
        named = promised.prefix_hash in ("", key.prefix_hash)
        same = msgspec.structs.replace(promised, prefix_hash=key.prefix_hash) == key
        return key if named and same else None

    async def _get(
        self, transfer: Transfer, assign: Assign, key: KvKey, prompt: bytes
    ) -> KvData | None:
        ticket = await self._ticket(assign, key, prompt)
        if ticket is None:
            return None
        pulled = await transfer.pull(ticket, wanted=key, seconds=self.patience)
        if isinstance(pulled, Imported):
            self.metrics.prompt("imported", pulled.kv.data.nbytes)
            return pulled.kv
        self.metrics.prompt("expired" if isinstance(pulled, Expired) else "miss")
        self.log.info("a prompt's KV not pulled; computing", why=pulled.why)
        return None

    async def _ticket(self, assign: Assign, key: KvKey, prompt: bytes) -> KvTicket | None:
        fence = assign.dispatch.fence
        step = assign.key.step_issued
        request = TicketRequest(fence, self.pod, assign.policy, key, prompt, self.ask, step)
        data = wire.encode(request)
        if len(data) > streams.MAX_MESSAGE_BYTES:
            self.metrics.prompt("unfit")
            return None
        try:
            answer = await self.bus.request(streams.tickets(self.job_uid), data, self.ask)
            reply = _REPLIES.decode(answer)
        except (DeadlineExceeded, Temporary, msgspec.DecodeError) as error:
            self.metrics.prompt("silent")
            self.log.info("no ticket for a prompt; computing", why=str(error))
            return None
        if isinstance(reply, Granted):
            return reply.ticket
        self.metrics.prompt("refused")
        self.log.info("no ticket for a prompt; computing", code=reply.code, why=reply.detail)
        return None

    def _forget_others(self, key: KvKey) -> None:
        """What belongs to another policy serves nobody any more."""
        for old in [k for k in self._asked if k.policy_digest != key.policy_digest]:
            if self._asked[old].done():
                del self._asked[old]

    def _trim(self) -> None:
        """Let go of the KV of prompts that were used long ago."""
        sizes = {key: _size(task) for key, task in self._asked.items() if task.done()}
        used = sum(sizes.values())
        for key, size in sizes.items():
            if used <= self.keep:
                return
            used -= size
            del self._asked[key]


def _size(asking: Asking) -> int:
    kv = asking.result()
    return kv.data.nbytes if kv is not None else 0
