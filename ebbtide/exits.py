"""How a process ends, as its exit code says; the operator judges failures by it (pure)."""

from __future__ import annotations

EXIT_OK = 0
EXIT_BUG = 1
EXIT_REFUSED = 2
"""Configuration or input that cannot work; starting again changes nothing."""
EXIT_FENCED = 3
"""A newer epoch or attempt has taken over."""
EXIT_PERMANENT = 4
EXIT_TEMPORARY = 5
"""A server or peer did not answer; worth another start."""
EXIT_OVERRAN = 6
"""Drain did not end within the grace period, or was cut short by a second signal."""
