"""What the job's actors can do: the profile, corrected by what they report (pure)."""

from __future__ import annotations

import statistics

import msgspec

from ebbtide.profiles import ProfileFile
from ebbtide.wire import Heartbeat
from services.planner.core.planning.profile import Observation, Profile, make_profile

_WEIGHT = 0.5
"""Of a start that was timed, against those before."""


class Curves:
    """`measured`: the file is the user's; a built-in one is scaled to the first reports whole.

    Nothing here is in the ledger: a planner that takes over starts from the file again, and
    follows the decision that its predecessor recorded.
    """

    def __init__(self, file: ProfileFile, *, measured: bool) -> None:
        self._profile = make_profile(file)
        self._anchored = measured
        self._measured = measured
        self._timed = self._woken = False
        self._news: dict[str, Observation] = {}
        self.reports = 0

    @property
    def words(self) -> str:
        """Where the curve comes from."""
        kind = "measured" if self._measured else "built-in"
        return f"{kind} curve of the {self._profile.file.engine} engine, {self.reports} reports"

    def hear(self, beat: Heartbeat) -> None:
        """Note the actor's last report; the profile takes it in when it is looked at."""
        stats = beat.stats
        if stats.running >= 1 and stats.tpot > 0:
            self._news[beat.actor] = Observation(stats.running, stats.kv_used, stats.tpot)
        if 0 < stats.kv_total < self._profile.file.kv_tokens and not self._measured:
            self._change(kv_tokens=stats.kv_total)

    def started(self, seconds: float) -> None:
        """An actor served `seconds` after it was asked for."""
        known = self._profile.startup_seconds
        mean = known + _WEIGHT * (seconds - known) if self._timed else seconds
        self._timed = True
        self._change(startup={"start": mean})

    def woke(self, seconds: float) -> None:
        """An actor served `seconds` after it was to wake."""
        known = self._profile.file.wake_seconds
        self._change(wake_seconds=known + _WEIGHT * (seconds - known) if self._woken else seconds)
        self._woken = True

    def profile(self) -> Profile:
        """As of now."""
        news, self._news = list(self._news.values()), {}
        if news:
            self.reports += len(news)
            self._anchor(news)
            self._profile = self._profile.refine(news)
        return self._profile

    def _anchor(self, news: list[Observation]) -> None:
        """A guessed curve has the right shape at best: its height is that of the first reports."""
        if self._anchored:
            return
        self._anchored = True
        ratios = [one.seconds / float(self._profile.tpot(one.batch, one.context)) for one in news]
        ratio = statistics.median(ratios)
        rows = self._profile.file.seconds
        self._change(seconds=tuple(tuple(s * ratio for s in row) for row in rows))

    def _change(self, **fields: object) -> None:
        file = msgspec.structs.replace(self._profile.file, **fields)
        made = make_profile(file)
        self._profile = Profile(file, made.grid, self._profile.factors, self._profile.seen)
