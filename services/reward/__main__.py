"""Runs a scorer: `python -m services.reward`."""

from __future__ import annotations

import os
import sys

from ebbtide import logs
from ebbtide.errors import Refused
from ebbtide.kept_logs import Backlog
from ebbtide.metrics import new_registry
from ebbtide.runtime import EXIT_REFUSED, run
from services.reward.settings import RewardSettings


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="reward")
    try:
        settings = RewardSettings.load(os.environ)
    except Refused as error:
        log.error("settings refused", why=error.detail)  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    kept = Backlog(role="reward", secrets=settings.secrets(os.environ))
    log = logs.setup(
        settings.log_level, kept=kept, role="reward", job=settings.job, pod=settings.pod
    )
    from services.reward.app.shell import body  # noqa: PLC0415 - settings are checked first

    return run(
        body(settings=settings),
        settings=settings,
        registry=new_registry(counts=settings.metrics),
        log=log,
        kept=kept,
    )


if __name__ == "__main__":
    sys.exit(main())
