"""The one decision that is still static: which running samples go on elsewhere (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from services.planner.core.samples import OpenStep


def moves(step: OpenStep) -> Sequence[int]:
    """Samples that are to be cut now and go on elsewhere. Static: none."""
    assert step is not None
    return ()
