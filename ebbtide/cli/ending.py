"""How a command ends: one clear line and an exit code, never a traceback.

Exit codes: 0 done, 1 it failed, 2 the input or usage is wrong, 130 interrupted.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import typer

from ebbtide.errors import EbbtideError, Refused

F = TypeVar("F", bound=Callable[..., Any])

FAILED = 1
WRONG = 2
INTERRUPTED = 130
_WRONG_STATUS = (400, 413, 415, 422)


def guarded(command: F) -> F:
    """End with a line and a code instead of an exception."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            _close_output()
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except EbbtideError as error:
            _explain(error)
            raise typer.Exit(_code(error)) from None
        except OSError as error:  # a full disk behind stdout, a file that cannot be written
            say(str(error))
            raise typer.Exit(FAILED) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if os.environ.get("EBBTIDE_DEBUG"):
                raise
            say(f"this is a bug in ebbtide: {error!r}; EBBTIDE_DEBUG=1 shows where")
            raise typer.Exit(FAILED) from None

    return run  # type: ignore[return-value] # wraps keeps the signature that typer reads


def say(line: str) -> None:
    """A line for people on stderr."""
    print(f"ebbtide: {line}", file=sys.stderr)


def fail(line: str, code: int = FAILED) -> NoReturn:
    """Say `line` and end with `code`."""
    say(line)
    raise typer.Exit(code)


def _explain(error: EbbtideError) -> None:
    found, said = faults(error), str(error)
    repeated = bool(found) and found[0][1] in said
    if repeated and len(found) == 1:
        pointer, detail = found[0]
        say(said.replace(f"{pointer} {detail}", f"{pointer}: {detail}") if pointer else said)
        return
    say(f"{len(found)} things are wrong:" if repeated else said)
    for pointer, detail in found:
        print(f"  {pointer or 'the document'}: {detail}", file=sys.stderr)


def faults(error: EbbtideError) -> list[tuple[str, str]]:
    """(pointer, detail) of every field at fault."""
    from ebbtide.client import ApiError  # noqa: PLC0415 - httpx, only where a call was made
    from ebbtide.spec.check import Invalid  # noqa: PLC0415 - pydantic, likewise

    if isinstance(error, ApiError):
        return [(one.pointer, one.detail) for one in error.problem.errors]
    if isinstance(error, Invalid):
        return [(one.pointer, one.detail) for one in error.faults]
    return []


def _code(error: EbbtideError) -> int:
    status = getattr(error, "status", None)
    if status is not None:
        return WRONG if status in _WRONG_STATUS else FAILED
    return WRONG if isinstance(error, Refused) else FAILED


def _close_output() -> None:
    """Python would complain about the closed pipe once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
