"""What the REST API answers, typed.

The gateway documents itself with these, the client parses into them. Unknown fields are kept
out, so an older client reads a newer gateway.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ebbtide.figures import Figures
from ebbtide.reports import DecisionReport, MigrationReport

JobState = Literal[
    "Pending", "Starting", "Running", "Draining", "Suspended", "Complete", "Failed", "Cancelled"
]
TERMINAL = frozenset({"Complete", "Failed", "Cancelled"})


class ApiModel(BaseModel):
    """Base of all answers: frozen, camelCase on the wire."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class FieldError(ApiModel):
    """One field that is wrong."""

    pointer: str = Field(description="RFC 6901 JSON pointer into what was sent.")
    detail: str = Field(description="What is wrong, and what would be right.")


class ProblemDocument(ApiModel):
    """RFC 9457."""

    type: str = Field(description="Stable URI of the kind of problem.")
    title: str = Field(description="The kind in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field("", description="What went wrong this time.")
    instance: str = Field("", description="Path of the request.")
    request_id: str = Field("", description="Also in the header X-Request-Id and in the logs.")
    errors: list[FieldError] = Field(default_factory=list, description="All fields at fault.")


class JobMetadata(ApiModel):
    """Metadata of a stored job."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = Field("", description="Also the ETag.")
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Job(ApiModel):
    """The job object as it is stored, and its state in one word."""

    api_version: str
    kind: Literal["RLHFJob"]
    metadata: JobMetadata
    spec: dict[str, Any] = Field(description="RLHFJobSpec with defaults filled in.")
    status: dict[str, Any] = Field(default_factory=dict, description="Conditions, progress, cost.")
    state: JobState = Field(description="Computed from the conditions.")
    reason: str = Field("", description="Reason of the condition that decides the state.")
    message: str = Field("", description="Its message.")

    @property
    def name(self) -> str:
        """The job's name."""
        return self.metadata.name

    @property
    def terminal(self) -> bool:
        """Nothing more will happen to the job."""
        return self.state in TERMINAL


class JobList(ApiModel):
    """One page of jobs, newest first."""

    items: list[Job]
    next: str | None = Field(None, description="Cursor of the next page; null at the end.")


class Remark(ApiModel):
    """Not wrong, but worth knowing."""

    pointer: str
    detail: str


class RoleMemory(ApiModel):
    """Memory of one member of a role."""

    role: str
    members: int = Field(description="Such members.")
    parts: dict[str, int] = Field(description="Bytes by what holds them.")
    total: int = Field(description="Bytes.")


class Estimate(ApiModel):
    """What a job would take; null: not known."""

    members: dict[str, int] = Field(description="Processes by role, actors as at the start.")
    currency: str
    cost_per_hour: float | None = Field(None, description="Of all members; null: no price.")
    seconds: float | None = Field(None, description="All steps, start-up left out.")
    cost: float | None = None
    basis: str = Field(description="Where the time comes from.")
    parameters: int | None = Field(None, description="null: the model's files are not seen here.")
    memory: list[RoleMemory] = Field(default_factory=list)


class Validation(ApiModel):
    """Answer to a dry run of a valid job."""

    valid: Literal[True] = True
    name: str = Field(description="Name that the job would get.")
    warnings: list[Remark] = Field(default_factory=list)
    estimate: Estimate | None = Field(None, description="Where it was asked for.")


class Event(ApiModel):
    """Something that happened to a job. Give `id` as `after`, or as Last-Event-ID, to go on."""

    id: str
    type: Literal["state", "note", "step", "progress", "end"]
    time: str = Field("", description="RFC 3339; empty where it is not known.")
    reason: str = ""
    message: str = ""
    data: dict[str, Any] = Field(default_factory=dict)


class EventList(ApiModel):
    """Events after a cursor. `next` may be asked again later: it never ends before the job."""

    items: list[Event]
    next: str


class LogLine(ApiModel):
    """One line of one pod."""

    pod: str
    role: str
    number: int = Field(description="From 1, within the pod.")
    text: str
    at: str = Field("", description="When it was said, RFC 3339; empty where nothing tells.")


class LogQuery(TypedDict, total=False):
    """Which lines of a job's logs; None: all."""

    role: str | None
    pod: str | None
    step: int | None
    tail: int


class LogList(ApiModel):
    """Lines of all pods in one order of time; those of one pod stay in their own."""

    items: list[LogLine]
    pods: list[str] = Field(description="Every pod that the filter matches, also ended ones.")


class Metrics(ApiModel):
    """Step reports (ebbtide.reports.StepReport), in step order."""

    items: list[dict[str, Any]]
    next: str | None = None


class StepDecision(ApiModel):
    """How a committed step was laid out, and why; amounts are in `currency`."""

    step: int
    currency: str
    decision: DecisionReport
    migration: MigrationReport | None = Field(None, description="Unset: nothing was to move.")


class ScrapeTarget(ApiModel):
    """What Prometheus can scrape, and the labels that its series get."""

    targets: list[str] = Field(description="host:port.")
    labels: dict[str, str]


class CostPart(ApiModel):
    """Seconds and money of one group; what it was not grouped by is empty."""

    role: str = ""
    actor: str = Field("", description="Pod, or rank of a learner.")
    pool: str = ""
    capacity: str = Field(
        "", description="on-demand, spot, reserved, or unknown: no price says it."
    )
    cause: str = ""
    seconds: float
    cost: float | None = Field(None, description="null: the price is not known.")


class CostWindow(ApiModel):
    """Whole steps, and the time from the commit before them to the last one's."""

    first_step: int
    last_step: int
    start: float | None = Field(None, description="Unix seconds; null: the job's start.")
    end: float = Field(description="Unix seconds.")


class CostReport(ApiModel):
    """The operator's held time joined with the planner's causes.

    Held time that no cause explains is the cause `unattributed`.
    """

    currency: str
    total: float | None = Field(None, description="null: some price is not known.")
    known: float = Field(description="Cost of what has a price.")
    held_seconds: float
    unpriced_seconds: float = Field(description="Held without a known price.")
    over_attributed_seconds: float = Field(
        0.0, description="Caused beyond what was held: should be 0."
    )
    by_role: dict[str, float | None]
    by_cause: dict[str, float | None]
    parts: list[CostPart]
    window: CostWindow | None = Field(None, description="null: all of the job.")
    steps: int = Field(0, description="Committed steps in it.")
    per_step: float | None = Field(None, description="null: not known, or no step yet.")
    per_thousand_tokens: float | None = Field(None, description="Accepted response tokens.")
    per_reward_point: float | None = Field(
        None, description="Reward gained; null: not known, or nothing was gained."
    )


class CostGroup(ApiModel):
    """Jobs that are alike in what they were asked to be told apart by, and of one currency."""

    key: dict[str, str] = Field(description="By key its value; empty: the jobs do not say.")
    currency: str
    jobs: int
    unpriced_jobs: int = Field(0, description="Of these, how many held time without a known price.")
    held_seconds: float
    unpriced_seconds: float = Field(description="Held without a known price.")
    known: float = Field(description="Cost of what has a price.")
    total: float | None = Field(None, description="null: some price is not known.")


class CostGroupList(ApiModel):
    """All jobs that are still stored, in groups."""

    by: list[str]
    items: list[CostGroup]


class Reconciled(ApiModel):
    """One job's bill by us, at full price, and by OpenCost. null: not known."""

    job: str
    uid: str
    currency: str
    held_seconds: float
    ours: float | None = None
    theirs: float | None = None
    agree: bool | None = Field(None, description="They differ by at most 5 %.")


class Reconciliation(ApiModel):
    """Jobs with held time between two moments (Unix seconds)."""

    since: float
    until: float
    items: list[Reconciled]
    strangers: list[str] = Field(description="Uids of jobs that OpenCost knows and we do not.")


class Checkpoint(ApiModel):
    """One committed checkpoint."""

    step: int
    attempt: int
    policy_version: int
    policy_digest: str
    policy_path: str = Field(description="Folder of the policy in the blob store.")
    policy_uri: str = Field(
        "", description="The same folder, in Hugging Face format: a path, or the URI of a bucket."
    )
    manifest: str = Field(description="Path of the manifest in the blob store.")
    parent: str | None = None
    data_cursor: int = 0
    counters: dict[str, float] = Field(default_factory=dict)


class CheckpointList(ApiModel):
    """Checkpoints, newest first."""

    items: list[Checkpoint]


class ScorePart(ApiModel):
    """One component of a reward."""

    name: str
    value: float
    weighted: float


class SampleScore(ApiModel):
    """value, invalid or error; pending while there is none."""

    kind: Literal["value", "invalid", "error", "pending"]
    total: float | None = None
    parts: list[ScorePart] = Field(default_factory=list)
    fault: str = ""
    why: str = ""


class VersionSpan(ApiModel):
    """Tokens [start, end) were drawn from this policy."""

    start: int
    end: int
    version: int
    digest: str


class Sample(ApiModel):
    """One accepted rollout, as read from the ledger and its blob."""

    step: int
    group: int
    index: int
    turn: int = 0
    purpose: Literal["train", "eval"]
    prompt_id: str
    prompt: str
    response: str
    n_tokens: int
    finish: str
    score: SampleScore
    advantage: float | None = Field(None, description="null: not in the batch.")
    versions: list[VersionSpan]
    actor: str
    dispatch: str = Field(description="attempt.epoch.sequence")


class HandOut(ApiModel):
    """One time that a sample was given to an actor."""

    dispatch: str = Field(description="attempt.epoch.sequence")
    actor: str
    version: int = Field(description="Policy that it was to be drawn from.")
    counts: bool = Field(description="Its answer is the one that was accepted.")


class SampleWhole(Sample):
    """All that is known of one sample."""

    prompt_tokens: list[int]
    tokens: list[int]
    logprobs: list[float | None] = Field(
        description="Of each token, as the engine drew it; null: an environment gave it."
    )
    hand_outs: list[HandOut] = Field(description="In order; one that moved has several.")


class Slice(Figures):
    """Samples that are alike in what they were asked to be told apart by."""

    key: dict[str, str] = Field(description="By key its value; empty: it is not known.")


class SliceList(ApiModel):
    """Slices in order of their keys' values; steps `first_step` to `last_step`."""

    first_step: int
    last_step: int
    by: list[str]
    items: list[Slice]


class SampleList(ApiModel):
    """Samples of one step in key order."""

    step: int
    items: list[Sample]
    next: str | None = None
