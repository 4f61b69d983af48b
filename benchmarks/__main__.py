"""`python -m benchmarks NAME`: measure, print the table and the verdict."""

from __future__ import annotations

import sys

from benchmarks import harness


def main(arguments: list[str]) -> int:
    """Run one benchmark, or list them all with --list; returns the exit status."""
    targets = harness.load_targets()
    if arguments == ["--list"]:
        print(*(f"{name:16} {target.about}" for name, target in targets.items()), sep="\n")
        return 0
    if len(arguments) != 1 or arguments[0] not in targets:
        print(f"usage: make bench NAME=..., one of: {', '.join(targets)}", file=sys.stderr)
        return 2
    name = arguments[0]
    measured = harness.find(name)()
    line, holds = harness.verdict(name, targets[name], measured)
    print(harness.table(measured), line, sep="\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
