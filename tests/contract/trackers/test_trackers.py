"""Every tracker keeps what it is told, offline, in files that its own tools read."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbtide.adapters.trackers import open_tracker
from ebbtide.errors import Refused
from ebbtide.tracking import KINDS, TrackedRun, Tracker, ended_at, figures
from tests.unit.gateway.test_figures import a_report

Points = list[tuple[int, float]]
RUN = TrackedRun("demo", "uid-1", {"algorithm": {"type": "grpo"}, "seed": 3})
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


def of_tensorboard(folder: Path, name: str) -> Points:
    from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415 - an extra

    (file,) = folder.glob("demo/events.*")
    found = []
    for record in _records(file.read_bytes()):
        event = Event.FromString(record)
        found += [(event.step, v.simple_value) for v in event.summary.value if v.tag == name]
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """TFRecord: length, its checksum, the record, its checksum."""
    while data:
        (length,) = struct.unpack_from("<Q", data)
        yield data[12 : 12 + length]
        data = data[16 + length :]


def of_mlflow(folder: Path, name: str) -> Points:
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - an extra

    client = MlflowClient(tracking_uri=folder.resolve().as_uri())
    experiment = client.get_experiment_by_name("ebbtide")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]


def of_wandb(folder: Path, name: str) -> Points:
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - an extra
    from wandb.sdk.internal.datastore import DataStore  # noqa: PLC0415

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    store = DataStore()
    store.open_for_scan(str(file))
    found: Points = []
    while data := store.scan_data():
        items = Record.FromString(data).history.item
        row = {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
        if name in row:
            found.append((row["step"], row[name]))
    store.close()
    return found


READERS: dict[str, Callable[[Path, str], Points]] = {
    "tensorboard": of_tensorboard,
    "mlflow": of_mlflow,
    "wandb": of_wandb,
}


def opened(kind: str, folder: Path) -> Tracker:
    pytest.importorskip(PACKAGES[kind], reason=f"the extra {kind} is not installed")
    return open_tracker(kind, str(folder), RUN)


@pytest.mark.filterwarnings("default::FutureWarning", "default::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_kept_and_a_step_that_is_done_again_comes_again(
    kind: str, tmp_path: Path
) -> None:
    tracker = opened(kind, tmp_path)
    for number, mean in ((0, 0.25), (1, 0.5), (1, 0.75)):
        report = a_report(number, mean=mean)
        tracker.step(number, ended_at(report), figures(report))
    tracker.end("Complete")
    assert READERS[kind](tmp_path, "reward") == [(0, 0.25), (1, 0.5), (1, 0.75)]
    assert READERS[kind](tmp_path, "clip_ratio/low_mean") == [(0, 0.125), (1, 0.125), (1, 0.125)]


def test_a_tracker_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="tensorboard, mlflow, wandb, not tape"):
        open_tracker("tape", "x", RUN)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pytest.importorskip("tensorboardX")
    with pytest.raises(Refused, match="cannot write into"):
        open_tracker("tensorboard", str(tmp_path / "file"), RUN)


def test_figures_have_trls_names_where_trl_has_the_quantity() -> None:
    found = figures(a_report(0, mean=0.5))
    wanted = {"reward", "reward_std", "rewards/task/mean", "kl", "loss/value_avg", "eval_reward"}
    assert wanted <= set(found)
    assert found["completions/clipped_ratio"] == pytest.approx(2 / 7)
    assert found["learner/ratio_p99"] == 1.5
