"""Starts the preparing process and hears it out; for a service that must stay light."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

import msgspec

from ebbtide.data.outcome import Outcome, Prepared, Rejected
from ebbtide.errors import DeadlineExceeded, Permanent, Refused, Temporary
from ebbtide.exits import EXIT_TEMPORARY

_LONGEST_LINE = 1 << 20
_MODULE = ("-m", "ebbtide.data.prepare")


async def prepare(
    spec_json: bytes, *, blobs_url: str, timeout: float, said: Callable[[str], None]
) -> Prepared:
    """Prepare the data of the job whose spec is `spec_json`, within `timeout` seconds.

    `said` gets each line of progress. Raises Refused (with a JSON pointer into the job) for bad
    input, DeadlineExceeded, Temporary or Permanent else. Cancelling ends the process too.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_MODULE,
        "--blobs",
        blobs_url,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=_LONGEST_LINE,
    )
    try:
        async with asyncio.timeout(timeout):
            answer, last = await _converse(process, spec_json, said)
    except TimeoutError:
        raise DeadlineExceeded(f"preparing the data took more than {timeout:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _judge(answer, process.returncode or 0, last)


async def _converse(
    process: Process, spec_json: bytes, said: Callable[[str], None]
) -> tuple[bytes, str]:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(spec_json)
    process.stdin.close()
    answer = asyncio.ensure_future(process.stdout.read())
    last = ""
    async for line in process.stderr:
        last = line.decode(errors="replace").rstrip() or last
        said(last)
    await process.wait()
    return await answer, last


def _judge(answer: bytes, status: int, last: str) -> Prepared:
    if answer:
        outcome = msgspec.json.decode(answer, type=Outcome)
        if isinstance(outcome, Rejected):
            raise Refused(outcome.detail, field=outcome.field)
        return outcome
    how = f"was killed by signal {-status}" if status < 0 else f"failed with status {status}"
    detail = f"preparing the data {how}: {last.removeprefix('error: ')}"
    raise Temporary(detail) if status == EXIT_TEMPORARY else Permanent(detail)
