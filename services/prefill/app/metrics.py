"""What the prefill service counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from ebbtide.catalogue import PREFILL, Instruments
from ebbtide.wire import Granted, PrefillBeat, TicketReply


class PrefillMetrics:
    """`seen` shows the state, the rest counts as it happens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Instruments(registry, PREFILL)
        self._waiting = make.gauge("ebbtide_prefill_waiting_requests")
        self._open = make.gauge("ebbtide_prefill_held_exports")
        self._policy = make.gauge("ebbtide_prefill_policy_version")
        self._answers = make.counter("ebbtide_prefill_requests_total")
        self._prompts = make.counter("ebbtide_prefill_prompts_total")
        self._tokens = make.counter("ebbtide_prefill_tokens_total")
        self._shared = make.counter("ebbtide_prefill_shared_tokens_total")
        self._granted = make.counter("ebbtide_prefill_granted_tokens_total")
        self._seconds = make.histogram("ebbtide_prefill_prompt_seconds")
        self._loads = make.counter("ebbtide_prefill_loads_total")
        self._past = (0, 0)
        self._policy.set(-1)

    def seen(self, beat: PrefillBeat, *, exports: int) -> None:
        """Show the service as it is now."""
        self._waiting.set(beat.waiting)
        self._open.set(exports)
        self._policy.set(beat.policy.n if beat.policy else -1)
        tokens, shared = beat.stats.prefill_tokens, beat.stats.prefill_shared
        self._tokens.inc(max(0, tokens - self._past[0]))
        self._shared.inc(max(0, shared - self._past[1]))
        self._past = (tokens, shared)

    def answered(self, reply: TicketReply) -> None:
        """Count a request by what it got: granted, or the code of the refusal."""
        if isinstance(reply, Granted):
            self._granted.inc(reply.ticket.key.n_tokens)
        self._answers.labels("granted" if isinstance(reply, Granted) else reply.code).inc()

    def computed(self, seconds: float) -> None:
        """A prompt was computed, with whatever was computed along with it."""
        self._prompts.inc()
        self._seconds.observe(seconds)

    def loaded(self, *, well: bool) -> None:
        """A policy was loaded, or could not be."""
        self._loads.labels("loaded" if well else "failed").inc()
