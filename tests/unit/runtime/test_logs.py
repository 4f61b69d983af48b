"""Logs are JSON lines that carry the process's ids."""

import asyncio
import io
import json
import logging

from ebbtide import logs


def test_a_line_carries_ids_event_and_fields() -> None:
    stream = io.StringIO()
    logs.setup("info", stream=stream, role="decode", job="sums").info("policy loaded", policy=7)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["role"], line["policy"]) == ("policy loaded", "decode", 7)


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    logs.setup("warning", stream=stream).info("chatter")
    assert stream.getvalue() == ""


def test_other_libraries_log_in_the_same_form() -> None:
    stream = io.StringIO()
    logs.setup("info", stream=stream, role="decode")
    logging.getLogger("some.library").warning("slow %s", "disk")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"], line["role"]) == ("slow disk", "some.library", "decode")


async def test_lines_tell_the_step_of_the_process_in_whatever_task_they_are_said() -> None:
    stream = io.StringIO()
    log = logs.setup("info", stream=stream)
    place = logs.begin()

    async def say() -> None:
        log.info("before")
        place.step = 3
        log.info("then")

    await asyncio.create_task(say())
    assert [json.loads(line).get("step") for line in stream.getvalue().splitlines()] == [None, 3]
