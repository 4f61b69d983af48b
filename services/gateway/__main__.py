"""Runs the gateway: `python -m services.gateway`; `--openapi FILE` writes its document."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ebbtide import logs
from ebbtide.errors import Refused
from ebbtide.metrics import new_registry
from ebbtide.runtime import EXIT_OK, EXIT_REFUSED, run
from services.gateway.settings import GatewaySettings


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit code of the process."""
    if "--openapi" in arguments[:1]:
        return _write_openapi(Path(arguments[1]))
    log = logs.setup("info", role="gateway")
    try:
        settings = GatewaySettings.load(environ)
    except Refused as error:
        log.error("settings refused", why=error.detail)  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    log = logs.setup(settings.log_level, role="gateway", pod=settings.pod)
    from services.gateway.app.server import body  # noqa: PLC0415 - settings are checked first

    registry = new_registry(counts=settings.metrics)
    return run(body(settings=settings), settings=settings, registry=registry, log=log)


def _write_openapi(path: Path) -> int:
    from services.gateway.app.server import openapi  # noqa: PLC0415 - heavy, as above

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(openapi(), "utf-8")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
