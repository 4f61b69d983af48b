"""`python -m tests.checker BLOBS JOB_UID [AUDIT ...]`: judge one job; status 1 on any fault."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.checker.reader import read
from tests.checker.verdict import examine


def main(arguments: list[str]) -> int:
    """Print the summary and each fault; returns the exit status."""
    blobs, job_uid, *audits = arguments
    verdict = examine(read(Path(blobs), job_uid, [Path(audit) for audit in audits]))
    lines = [f"{name}: {one}" for name, found in verdict.faults().items() for one in found]
    sys.stdout.write("\n".join([verdict.summary(), *lines]) + "\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
