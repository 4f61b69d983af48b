"""`python -m ebbtide.generate [ROOT]` writes every generated file below ROOT (default: here)."""

from __future__ import annotations

import sys
from pathlib import Path

from ebbtide.generate.files import generated


def main(root: Path) -> None:
    """Write all files."""
    for name, content in generated().items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, "utf-8")
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
