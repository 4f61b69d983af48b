"""Which policy a process is to hold, and what came of the tries to load it (pure)."""

from __future__ import annotations

from ebbtide.wire import LoadPolicy, PolicyRef

_LONGEST_WHY = 500


class Loading:
    """At most `tries` in a row; the pause between two doubles, from `pause` seconds.

    `wanted`: to be loaded once nothing runs; `under_way`: being loaded; `why`: why the last try
    failed, until one succeeds or another policy is wanted.
    """

    def __init__(self, *, tries: int, pause: float) -> None:
        self.wanted: LoadPolicy | None = None
        self.under_way: LoadPolicy | None = None
        self.why = ""
        self._tries, self._pause = tries, pause
        self._failures = 0
        self._due = 0.0

    @property
    def busy(self) -> bool:
        """Whether a policy is being loaded or waits to be, also between two tries."""
        return self.wanted is not None or self.under_way is not None

    def want(self, command: LoadPolicy, held: PolicyRef | None) -> bool:
        """Note what is wanted; whether what is `held` must make room for it."""
        target = self.under_way.policy if self.under_way else held
        if command.policy == target:
            self.wanted = None
            return False
        if self.wanted is None or self.wanted.policy != command.policy:
            self._begin_anew()
        self.wanted = command
        return True

    def begin(self, now: float) -> LoadPolicy | None:
        """What to load now, if its time has come; the caller sees that nothing runs."""
        if self.wanted is None or self.under_way is not None or now < self._due:
            return None
        self.wanted, self.under_way = None, self.wanted
        return self.under_way

    def succeeded(self, policy: PolicyRef) -> bool:
        """Whether `policy` is what was being loaded, and is held now."""
        if self.under_way is None or self.under_way.policy != policy:
            return False
        self.under_way = None
        self._begin_anew()
        return True

    def failed(self, policy: PolicyRef, why: str, now: float) -> bool:
        """Have it tried again after a pause; whether it has been tried often enough."""
        command = self.under_way
        if command is None or command.policy != policy:
            return False
        self.under_way = None
        if self.wanted is not None:
            return False
        self.why, self._due = why[:_LONGEST_WHY], now + self._pause * 2.0**self._failures
        self.wanted, self._failures = command, self._failures + 1
        return self._failures >= self._tries

    def _begin_anew(self) -> None:
        self.why, self._failures, self._due = "", 0, 0.0
