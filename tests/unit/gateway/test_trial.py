"""Templates become pods that can be tried out."""

from collections.abc import Mapping
from typing import Any

from ebbtide.errors import Refused
from ebbtide.spec import RLHFJob
from ebbtide.spec.check import check
from services.gateway.app.trials import refusals
from services.gateway.core.trial import trials
from tests.worlds.gateway import a_job


def templated(role: str, template: Mapping[str, Any]) -> RLHFJob:
    document = a_job("mine")
    document["spec"].setdefault(role, {})["podTemplate"] = template
    return check(document)


class Judge:
    """Refuses every pod for one field, and remembers it."""

    def __init__(self) -> None:
        self.tried: list[Mapping[str, Any]] = []

    async def pod(self, namespace: str, body: Mapping[str, Any]) -> None:
        self.tried.append(body)
        raise Refused(f"not in {namespace}", field="/spec/tolerations/0")


def test_only_roles_with_a_template_are_tried() -> None:
    job = templated("decode", {"spec": {"nodeSelector": {"gpu": "h200"}}})
    [(pointer, pod)] = trials(job)
    assert pointer == "/spec/decode/podTemplate"
    assert pod["spec"]["nodeSelector"] == {"gpu": "h200"}
    assert pod["spec"]["containers"][0]["name"] == "main"


def test_a_volume_whose_name_is_taken_is_there_twice_and_so_refused() -> None:
    volumes = [{"name": "tmp", "emptyDir": {}}]
    [(_, pod)] = trials(templated("learner", {"spec": {"volumes": volumes}}))
    assert [one["name"] for one in pod["spec"]["volumes"]].count("tmp") == 2


def test_the_trial_is_confined_as_the_real_pod_is() -> None:
    [(_, pod)] = trials(templated("planner", {"spec": {"nodeSelector": {"a": "b"}}}))
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert pod["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


async def test_a_refusal_points_into_the_jobs_own_template() -> None:
    job = templated("decode", {"spec": {"tolerations": [{"key": "a"}]}})
    [fault] = await refusals(job, trials=Judge(), namespace="jobs")
    assert fault.pointer == "/spec/decode/podTemplate/spec/tolerations/0"
    assert fault.detail == "not in jobs"


async def test_a_job_without_templates_asks_nobody() -> None:
    judge = Judge()
    assert await refusals(check(a_job("mine")), trials=judge, namespace="jobs") == ()
    assert judge.tried == []
