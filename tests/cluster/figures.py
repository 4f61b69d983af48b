"""How long an installation took over what has a target: told at the end of a run, asserted by nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from ebbtide import labels, paths
from tests.cluster.running import Course, Witnessed
from tests.worlds.cluster import Cluster


@dataclass
class Figures:
    """Seconds by what they were spent on, beside the most they are to be."""

    found: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, what: str, seconds: float, *, most: float) -> None:
        self.found[what] = (seconds, most)

    def lines(self) -> list[str]:
        """One for each."""
        return [
            f"{what}: {seconds:.1f} s (at most {most:g}{'' if seconds <= most else ': MISSED'})"
            for what, (seconds, most) in self.found.items()
        ]


def actors_stayed(cluster: Cluster, course: Course, seen: Witnessed) -> float:
    """From the last stored rollout until no actor ran; the kubelet tells whole seconds."""
    place = cluster.store / paths.job(course.uid) / "rollouts"
    last = max(file.stat().st_mtime for file in place.rglob("*.msgpack"))
    ends = [
        datetime.fromisoformat(ended["finishedAt"]).timestamp() + 1.0
        for pod in seen.pods
        if pod["metadata"]["labels"][labels.ROLE] == "decode"
        for container in pod["status"].get("containerStatuses", ())
        if (ended := container.get("state", {}).get("terminated"))
    ]
    assert ends, "no actor was seen to end"
    return max(ends) - last
