"""Subjects, streams, consumers and limits of the broker, declared once (protocol.md 5, pure)."""

from __future__ import annotations

import msgspec

FACTS = "FACTS"
SCORING = "SCORING"
MAX_MESSAGE_BYTES = 256 * 1024


class StreamSpec(msgspec.Struct, frozen=True):
    """retention: limits | workqueue. `max_age` and `dedup_window` in seconds, 0: for ever."""

    name: str
    subjects: tuple[str, ...]
    retention: str
    max_bytes: int
    max_age: float
    dedup_window: float
    discard_new: bool = True
    max_message_bytes: int = MAX_MESSAGE_BYTES


class ConsumerSpec(msgspec.Struct, frozen=True):
    """Times in seconds. No delivery limit: what is not acknowledged comes again.

    A durable that nobody asks for `unused` seconds goes away with what it knew.
    """

    stream: str
    max_ack_pending: int
    ack_wait: float
    unused: float = 24 * 3600.0


STREAMS = (
    StreamSpec(FACTS, ("f.>",), "limits", 1 << 30, 24 * 3600.0, 120.0),
    StreamSpec(SCORING, ("s.>",), "workqueue", 1 << 30, 24 * 3600.0, 120.0),
)
CONSUMERS = {
    FACTS: ConsumerSpec(FACTS, max_ack_pending=16384, ack_wait=30.0),
    SCORING: ConsumerSpec(SCORING, max_ack_pending=1024, ack_wait=10.0),
}


def fact(job_uid: str, attempt: int, kind: str) -> str:
    """Subject of a fact; kind: finished | cut | failed | score."""
    return f"f.{job_uid}.{attempt}.{kind}"


def facts(job_uid: str) -> str:
    """All facts of one job, whatever the attempt."""
    return f"f.{job_uid}.>"


def scoring(job_uid: str) -> str:
    """Work queue of one job's scorers."""
    return f"s.{job_uid}"


def holders(job_uid: str) -> str:
    """Prefix of the planner's durables on the facts of one job."""
    return f"planner-{job_uid}-"


def holder(job_uid: str, planner_epoch: int) -> str:
    """The durable of one planner epoch; names rise with the epoch."""
    return f"{holders(job_uid)}{planner_epoch:08d}"


def scorers(job_uid: str) -> str:
    """The durable that all scorers of one job share."""
    return f"scorers-{job_uid}"


def actor(job_uid: str, name: str) -> str:
    """Commands to one decode actor."""
    return f"c.{job_uid}.decode.{name}"


def prefill(job_uid: str, name: str) -> str:
    """Commands to the prefill service's pod."""
    return f"c.{job_uid}.prefill.{name}"


def tickets(job_uid: str) -> str:
    """Actors' requests for tickets, which the prefill service answers."""
    return f"k.{job_uid}"


def learner(job_uid: str, attempt: int) -> str:
    """Commands to the learner gang of one attempt (rank 0 answers)."""
    return f"c.{job_uid}.learner.{attempt}"


def beat(job_uid: str, role: str, instance: str) -> str:
    """Heartbeats of one process."""
    return f"h.{job_uid}.{role}.{instance}"


def beats(job_uid: str) -> str:
    """All heartbeats of one job."""
    return f"h.{job_uid}.>"


def planner(job_uid: str) -> str:
    """Signs of life of a job's planner."""
    return f"p.{job_uid}"
