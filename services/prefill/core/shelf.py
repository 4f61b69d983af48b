"""Computed prompts that are kept for more readers, the least recently used going first (pure)."""

from __future__ import annotations

from collections import OrderedDict

from ebbtide.wire import KvKey


class Shelf:
    """At most `limit` bytes of KV; a prompt that is larger alone is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: OrderedDict[KvKey, int] = OrderedDict()
        self.used = 0

    def __contains__(self, key: KvKey) -> bool:
        return key in self._sizes

    def use(self, key: KvKey) -> bool:
        """Whether it is kept; if so, it is the last to go."""
        if key not in self._sizes:
            return False
        self._sizes.move_to_end(key)
        return True

    def add(self, key: KvKey, size: int) -> list[KvKey]:
        """Keep it; returns what must go for that, itself perhaps."""
        assert key not in self._sizes, "a prompt is computed once"
        self._sizes[key] = size
        self.used += size
        gone = []
        while self.used > self._limit:
            old, freed = self._sizes.popitem(last=False)
            self.used -= freed
            gone.append(old)
        return gone

    def clear(self) -> list[KvKey]:
        """Keep nothing; returns what was kept."""
        gone = list(self._sizes)
        self._sizes.clear()
        self.used = 0
        return gone
