"""What each role may write in the blob store and say on the broker, in one place (pure).

Used by whoever makes credentials (the embedded servers, the chart) and by shells when they open
the blob store. `*` in a blob pattern matches anything; in a subject it matches one token.
"""

from __future__ import annotations

import msgspec

ROLES = ("planner", "prefill", "decode", "reward", "learner", "operator", "gateway")

_BLOBS: dict[str, tuple[str, ...]] = {
    "planner": (
        "jobs/{uid}/ledger/*",
        "jobs/{uid}/attempts/*/batches/*",
        "jobs/{uid}/attempts/*/manifests/*",
        "jobs/{uid}/attempts/*/planner/*",
        "jobs/{uid}/base/*",
        "jobs/{uid}/steps/*",
        "datasets/*",
        "jobs/{uid}/logs/planner/*",
    ),
    "learner": (
        "jobs/{uid}/attempts/*/policies/*",
        "jobs/{uid}/attempts/*/checkpoints/*",
        "jobs/{uid}/base/*",
        "jobs/{uid}/logs/learner/*",
    ),
    "decode": ("jobs/{uid}/rollouts/*", "jobs/{uid}/logs/decode/*"),
    "prefill": ("jobs/{uid}/logs/prefill/*",),
    "reward": ("jobs/{uid}/rollouts/*/given/*", "jobs/{uid}/logs/reward/*"),
    "operator": ("jobs/*/usage/*", "jobs/*/logs/*", "jobs/*/rollouts/*", "ended/*"),
    "gateway": (),
}


class Subjects(msgspec.Struct, frozen=True):
    """What a user of the broker may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def blob_writes(role: str, job_uid: str) -> tuple[str, ...]:
    """Patterns of the blob paths that `role` may write, for `ebbtide.adapters.blobs`."""
    return tuple(pattern.format(uid=job_uid) for pattern in _BLOBS[role])


def inbox(user: str) -> str:
    """Prefix of the reply subjects of one user; nobody else may hear them."""
    return f"_INBOX_{user or 'any'}"


def subjects(role: str) -> Subjects:
    """The broker's rights of `role`; replying to a request is always allowed."""
    own_inbox = f"{inbox(role)}.>"
    publish, subscribe = _SUBJECTS[role]
    return Subjects(publish, (own_inbox, *subscribe))


_SUBJECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "planner": (("s.>", "c.>", "p.*", "$JS.API.>", "$JS.ACK.FACTS.>"), ("h.>",)),
    "decode": (
        ("f.*.*.finished", "f.*.*.cut", "f.*.*.failed", "h.*.decode.>", "k.*"),
        ("c.*.decode.>", "p.*"),
    ),
    "prefill": (("h.*.prefill.>",), ("c.*.prefill.>", "k.*", "p.*")),
    "reward": (
        (
            "f.*.*.score",
            "h.*.reward.>",
            "$JS.API.STREAM.INFO.SCORING",
            "$JS.API.CONSUMER.*.SCORING.>",
            "$JS.API.CONSUMER.MSG.NEXT.SCORING.>",
            "$JS.ACK.SCORING.>",
        ),
        (),
    ),
    "learner": (("h.*.learner.>",), ("c.*.learner.>", "p.*")),
    "operator": (("$JS.API.>",), ("h.>",)),
    "gateway": ((), ("h.>", "f.>")),
}
