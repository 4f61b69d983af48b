"""What a worker and its pool say to each other: msgpack behind a length (pure)."""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from ebbtide.rewards.outcomes import Answer, Judged

LENGTH = struct.Struct("<I")
STATUS = struct.Struct("<i")
"""What a worker's guard tells: first its pid, at the end how the worker ended."""
LARGEST = 64 << 20
"""Bytes of a frame; more is no frame, but what a function wrote to descriptors that are not its."""


class Setup(msgspec.Struct, frozen=True, tag="setup"):
    """First frame to a nursery. `reward` is the job's RewardSpec as JSON.

    `memory_bytes` may be added to what the libraries take; `cpu_seconds` per answer and processor.
    `sandbox`: required, or if-possible, where programs of answers may run without isolation.
    """

    reward: bytes
    memory_bytes: int
    cpu_seconds: float
    sandbox: str = "required"


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """Answers to judge, one after the other."""

    answers: tuple[Answer, ...]


class Open(msgspec.Struct, frozen=True, tag="open"):
    """First frame of a nursery; with `threads` of what it loaded, it cannot fork warm workers."""

    threads: bool


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """First frame of a worker: everything is imported, in these versions."""

    versions: dict[str, str]


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """Instead of Open or Ready: the components cannot be had; trying again changes nothing."""

    why: str


ToWorker = Setup | Batch
FromWorker = Open | Ready | Unfit | Judged


def read_frame(source: BinaryIO) -> ToWorker | None:
    """A worker's next frame, or None at the end."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return msgspec.msgpack.decode(source.read(LENGTH.unpack(head)[0]), type=ToWorker)


def write_frame(sink: BinaryIO, message: FromWorker) -> None:
    """Send a frame to the pool; `sink` is unbuffered."""
    sink.write(pack(message))


def pack(message: ToWorker | FromWorker) -> bytes:
    """One frame."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> FromWorker | None:
    """The message in a frame, or None if it is none."""
    try:
        return msgspec.msgpack.decode(body, type=FromWorker)
    except msgspec.DecodeError:
        return None
