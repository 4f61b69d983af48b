"""Where things lie in the blob store: the one place that spells a path (pure)."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from ebbtide.wire import Dispatch, SampleKey


def outside(store: str, path: str) -> str:
    """`path` as other programs take it: a file's path, or a URI below the URL of the store."""
    parts = urlsplit(store)
    root = unquote(parts.path) if parts.scheme == "file" else store
    return (
        f"{root.rstrip('/')}/{path}" if parts.netloc or parts.scheme == "file" else f"{store}{path}"
    )


def job(uid: str) -> str:
    """Everything of one job."""
    return f"jobs/{uid}/"


def segment(uid: str, slot: int) -> str:
    """Ledger segment in `slot`: one chain per job, written with put_if_absent alone."""
    return f"jobs/{uid}/ledger/{slot:012d}.seg"


def segments(uid: str) -> str:
    """Prefix of the ledger."""
    return f"jobs/{uid}/ledger/"


def rollouts(key: SampleKey, dispatch: Dispatch) -> str:
    """Rollouts that ended together, named by the first one's key and dispatch.

    The dispatch keeps late writers apart. The rollouts are parts (`ebbtide.parts`).
    """
    name = f"{key.group:06d}-{key.index:04d}-{key.turn}"
    hand = f"{dispatch.attempt}.{dispatch.planner_epoch}.{dispatch.seq}"
    return f"jobs/{key.job_uid}/rollouts/{key.step_issued:08d}/{name}-{hand}.msgpack"


def given(key: SampleKey, digest: str) -> str:
    """What the turn after `key` begins from, named by its content: replies may differ."""
    name = f"{key.group:06d}-{key.index:04d}-{key.turn}-{digest[:16]}"
    return f"jobs/{key.job_uid}/rollouts/{key.step_issued:08d}/given/{name}.msgpack"


def attempt(uid: str, n: int) -> str:
    """All that one attempt's learner writes."""
    return f"jobs/{uid}/attempts/{n:04d}/"


def policy(uid: str, n_attempt: int, version: int) -> str:
    """Folder of a publication: index.msgpack, model files, config, tokenizer."""
    return f"{attempt(uid, n_attempt)}policies/{version:08d}/"


def base(uid: str) -> str:
    """A publication that is written once: what a job's adapters are added to, or all of its policy."""
    return f"jobs/{uid}/base/"


def batch(uid: str, n_attempt: int, step: int) -> str:
    """The frozen batch manifest of a step."""
    return f"{attempt(uid, n_attempt)}batches/{step:08d}.msgpack"


def batches(uid: str, n_attempt: int) -> str:
    """Prefix of an attempt's frozen batches."""
    return f"{attempt(uid, n_attempt)}batches/"


def shards(uid: str, n_attempt: int, step: int) -> str:
    """Folder of a checkpoint's learner shards."""
    return f"{attempt(uid, n_attempt)}checkpoints/{step:08d}/"


def manifest(uid: str, n_attempt: int, step: int) -> str:
    """The planner's manifest: its presence makes the checkpoint real."""
    return f"{attempt(uid, n_attempt)}manifests/{step:08d}.msgpack"


def manifests(uid: str, n_attempt: int) -> str:
    """Prefix of an attempt's manifests."""
    return f"{attempt(uid, n_attempt)}manifests/"


def step_of(path: str) -> int:
    """The step number that ends the path of a batch, a manifest or a planner state."""
    return int(path.rpartition("/")[2].partition(".")[0])


def planner_state(uid: str, n_attempt: int, step: int) -> str:
    """The planner's part of a checkpoint."""
    return f"{attempt(uid, n_attempt)}planner/{step:08d}.msgpack"


def dataset(digest: str) -> str:
    """A prepared dataset, shared by all jobs that name the same content."""
    return f"datasets/{digest}/"


def data_of(uid: str) -> str:
    """Which prepared data a job began with; written once, so a job's data never change."""
    return f"datasets/of/{uid}.msgpack"


def step_report(uid: str, step: int) -> str:
    """Derived, for people: what a step did (JSON)."""
    return f"jobs/{uid}/steps/{step:08d}.json"


def step_reports(uid: str) -> str:
    """Prefix of the step reports."""
    return f"jobs/{uid}/steps/"


def usage(uid: str, pod: str, uid_pod: str) -> str:
    """Held seconds of one pod, written by the operator."""
    return f"jobs/{uid}/usage/{pod}-{uid_pod}.json"


def usages(uid: str) -> str:
    """Prefix of the operator's usage segments."""
    return f"jobs/{uid}/usage/"


def log_part(uid: str, role: str, pod: str, number: int) -> str:
    """One part of what a pod said, in the order of their numbers; the pod's own process writes it."""
    return f"{pod_logs(uid, role, pod)}{number:06d}.log"


def log_tail(uid: str, role: str, pod: str) -> str:
    """Last lines of a pod that failed, as the operator found them; they may overlap the parts."""
    return f"{pod_logs(uid, role, pod)}tail.log"


def pod_logs(uid: str, role: str, pod: str) -> str:
    """Prefix of what is kept of one pod's log."""
    return f"{logs(uid)}{role}/{pod}/"


def logs(uid: str) -> str:
    """Prefix of what is kept of a job's logs."""
    return f"jobs/{uid}/logs/"


def samples(uid: str) -> str:
    """Prefix of a job's rollouts."""
    return f"jobs/{uid}/rollouts/"


def ended(uid: str) -> str:
    """The operator's word that a job is over for good: only then may retention touch it (JSON)."""
    return f"ended/{uid}.json"


def endings() -> str:
    """Prefix of these words."""
    return "ended/"
