"""Runs one rank of a learner: `python -m services.learner`."""

from __future__ import annotations

import os
import sys

from ebbtide import logs
from ebbtide.errors import Refused
from ebbtide.kept_logs import Backlog
from ebbtide.metrics import new_registry
from ebbtide.runtime import EXIT_REFUSED, run
from services.learner.settings import LearnerSettings


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="learner")
    try:
        settings = LearnerSettings.load(os.environ)
    except Refused as error:
        log.error("settings refused", why=error.detail)  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    kept = Backlog(role="learner", secrets=settings.secrets(os.environ))
    log = logs.setup(
        settings.log_level,
        kept=kept,
        role="learner",
        job=settings.job,
        attempt=settings.attempt,
        pod=settings.pod,
        rank=settings.rank,
    )
    from services.learner.app.shell import body  # noqa: PLC0415 - settings are checked first

    code = run(
        body(settings=settings),
        settings=settings,
        registry=new_registry(counts=settings.metrics),
        log=log,
        kept=kept,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread may wait for a dead rank inside a collective, and would hold up a plain exit.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
