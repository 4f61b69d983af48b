"""KV that comes with a sample and KV that goes with one; without either the engine computes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ebbtide.errors import Temporary
from ebbtide.kv import kv_key
from ebbtide.logs import Log
from ebbtide.ports import Engine, Expired, Imported, KvData, Miss, Transfer
from ebbtide.wire import Assign, KvTicket
from services.decode.app.metrics import DecodeMetrics
from services.decode.core.messages import Export, Exported, Fetched, StillOpen

_TOKEN_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Handover:
    """`hold`: seconds for which a reader has its KV; `patience`: seconds for a pull at most."""

    transfer: Transfer | None
    engine: Engine
    metrics: DecodeMetrics
    log: Log
    hold: float
    patience: float

    async def pull(self, assign: Assign, found: Fetched) -> KvData | None:
        """What `assign`'s ticket stands for, whole, or nothing."""
        ticket = assign.ticket
        if ticket is None:
            return None
        began = time.perf_counter()
        pulled = await self._pull(assign, ticket, found)
        if isinstance(pulled, Imported):
            self.metrics.pulled("imported", pulled.kv.data.nbytes, time.perf_counter() - began)
            return pulled.kv
        outcome = "expired" if isinstance(pulled, Expired) else "miss"
        self.metrics.pulled(outcome, 0, time.perf_counter() - began)
        self.log.info("KV not pulled; computing", outcome=outcome, why=pulled.why)
        return None

    async def _pull(
        self, assign: Assign, ticket: KvTicket, found: Fetched
    ) -> Imported | Miss | Expired:
        layout = self.engine.caps.kv_layout
        if self.transfer is None or not layout:
            return Miss("this actor takes no KV")
        text = found.prompt + (found.resumed.tokens if found.resumed else b"")
        n = ticket.key.n_tokens
        if not 0 < n < len(text) // _TOKEN_BYTES:
            return Miss(f"KV of {n} tokens for a text of {len(text) // _TOKEN_BYTES}")
        wanted = kv_key(assign.policy, text, n, layout)
        return await self.transfer.pull(ticket, wanted=wanted, seconds=self.patience)

    async def export(self, effect: Export) -> Exported:
        """Hold it for its reader; the ticket is nothing if that cannot be done."""
        ticket = None
        try:
            if self.transfer is not None:
                ticket = await self.transfer.export(
                    effect.kv, reader=effect.reader, seconds=self.hold
                )
        except Temporary as error:
            self.log.warning("KV not exported; the reader computes", why=str(error))
        self.metrics.exported(effect.kv.data.nbytes if ticket else 0)
        return Exported(effect.dispatch, ticket)

    def release(self, ticket: KvTicket) -> None:
        """Nobody goes on with it."""
        if self.transfer is not None:
            self.transfer.release(ticket)

    def still_open(self) -> StillOpen:
        """Which exports may still be read."""
        tickets = self.transfer.held() if self.transfer is not None else ()
        self.metrics.holds(len(tickets))
        return StillOpen(frozenset(ticket.opaque for ticket in tickets))
