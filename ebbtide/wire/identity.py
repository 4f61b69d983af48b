"""Who is who: samples, dispatches, fences, policies, references (protocol.md 1, 6)."""

from __future__ import annotations

from ebbtide.wire.base import Wire


class SampleKey(Wire, frozen=True, order=True):
    """Names one sample for life; neither attempt nor dispatch is part of it."""

    job_uid: str
    step_issued: int
    group: int
    index: int
    turn: int = 0


class Fence(Wire, frozen=True, order=True):
    """Of whoever sends a command; receivers refuse a lower one than they have seen."""

    attempt: int
    planner_epoch: int


class Dispatch(Wire, frozen=True, order=True):
    """Names one hand-out of one sample. `seq` counts within an epoch, from 0."""

    attempt: int
    planner_epoch: int
    seq: int

    @property
    def fence(self) -> Fence:
        """The fence of the planner that made this dispatch."""
        return Fence(attempt=self.attempt, planner_epoch=self.planner_epoch)


class PolicyRef(Wire, frozen=True, eq=False):
    """A policy version. Equality is on the digest alone: version 7 trained again is another."""

    n: int
    attempt: int
    digest: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PolicyRef) and self.digest == other.digest

    def __ne__(self, other: object) -> bool:
        # The base struct brings its own inequality, which is identity under eq=False.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.digest)


class Ref(Wire, frozen=True):
    """A blob by path, with the digest and size (bytes) of its content."""

    path: str
    digest: str
    size: int


class PromptRef(Wire, frozen=True):
    """Row `row` of a chunk of the prepared dataset."""

    chunk: Ref
    row: int


class JournalRef(Wire, frozen=True):
    """Tokens that a dispatch journalled in the hot store, readable up to `n_tokens`."""

    key: SampleKey
    dispatch: Dispatch
    n_tokens: int


class KvKey(Wire, frozen=True):
    """A content name of KV blocks; covers at most n-1 tokens of what it serves."""

    policy_digest: str
    prefix_hash: str
    n_tokens: int
    layout: str


class KvTicket(Wire, frozen=True):
    """One reader's right to KV, for `expires_in` seconds; a miss means compute."""

    key: KvKey
    holder: str
    holder_epoch: int
    reader: str
    expires_in: float
    opaque: bytes
