"""Runs a job's planner: `python -m services.planner`."""

from __future__ import annotations

import os
import sys

from ebbtide import logs
from ebbtide.errors import Refused
from ebbtide.kept_logs import Backlog
from ebbtide.metrics import new_registry
from ebbtide.runtime import EXIT_REFUSED, run
from services.planner.settings import PlannerSettings


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="planner")
    try:
        settings = PlannerSettings.load(os.environ)
    except Refused as error:
        log.error("settings refused", why=error.detail)  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    kept = Backlog(role="planner", secrets=settings.secrets(os.environ))
    log = logs.setup(
        settings.log_level,
        kept=kept,
        role="planner",
        job=settings.job,
        attempt=settings.attempt,
        pod=settings.pod,
    )
    from services.planner.app.body import body, relax_gc  # noqa: PLC0415 - settings first

    relax_gc()
    return run(
        body(settings=settings),
        settings=settings,
        registry=new_registry(counts=settings.metrics),
        log=log,
        kept=kept,
    )


if __name__ == "__main__":
    sys.exit(main())
