"""What vLLM says of each of its steps, as the engine port's figures (no vllm here)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MEMORY = 0.9


class Meter:
    """Hears of every step. Fractions of KV in [0, 1], times in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: float | None = None
        self.kv_share = 0.0
        self.waiting = 0
        self.tpot = 0.0
        self.filling = 0.0
        """Seconds spent on prompts: of each step the share of its tokens that were a prompt's."""

    def step(self, *, waiting: int, running: int, kv_share: float, prompt: int, drawn: int) -> None:
        """One step computed `prompt` tokens of texts and drew `drawn` tokens."""
        now, last = self._now(), self._last
        self._last = now if running or waiting else None
        self.waiting, self.kv_share = waiting, kv_share
        if last is None or not prompt + drawn:
            return
        seconds = now - last
        self.filling += seconds * prompt / (prompt + drawn)
        if drawn and not prompt:
            self.tpot = _MEMORY * self.tpot + (1 - _MEMORY) * seconds if self.tpot else seconds

    def idle(self) -> None:
        """Nothing runs: time that passes now is nobody's."""
        self._last, self.waiting, self.kv_share = None, 0, 0.0


class StepLogger:
    """What AsyncLLM takes for a stat logger: passes each step on to a `Meter`."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,  # noqa: ARG002 - the signature is vLLM's
        engine_idx: int = 0,  # noqa: ARG002
    ) -> None:
        """One step; either of the first two may be None."""
        if scheduler_stats is None:
            return
        self._meter.step(
            waiting=scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs,
            running=scheduler_stats.num_running_reqs,
            kv_share=scheduler_stats.kv_cache_usage,
            prompt=iteration_stats.num_prompt_tokens if iteration_stats else 0,
            drawn=iteration_stats.num_generation_tokens if iteration_stats else 0,
        )

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def log(self) -> None:
        """Nothing to say."""

    def record_sleep_state(self, is_awake: int, level: int) -> None:
        """Never called: no vLLM engine sleeps here."""
