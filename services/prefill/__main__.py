"""Runs the prefill service: `python -m services.prefill`."""

from __future__ import annotations

import os
import sys

from ebbtide import logs
from ebbtide.errors import Refused
from ebbtide.kept_logs import Backlog
from ebbtide.metrics import new_registry
from ebbtide.runtime import EXIT_REFUSED, run
from services.prefill.settings import PrefillSettings


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="prefill")
    try:
        settings = PrefillSettings.load(os.environ)
    except Refused as error:
        log.error("settings refused", why=error.detail)  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    kept = Backlog(role="prefill", secrets=settings.secrets(os.environ))
    log = logs.setup(
        settings.log_level, kept=kept, role="prefill", job=settings.job, pod=settings.pod
    )
    from services.prefill.app.body import body  # noqa: PLC0415 - settings are checked first

    return run(
        body(settings=settings),
        settings=settings,
        registry=new_registry(counts=settings.metrics),
        log=log,
        kept=kept,
    )


if __name__ == "__main__":
    sys.exit(main())
