"""Objects in the API's JSON, both ways."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ebbtide.adapters.cluster_kubernetes.forms import Forms
from ebbtide.adapters.cluster_kubernetes.kinds import KINDS
from ebbtide.errors import Refused
from ebbtide.ports import Meta, Owner, Resource

FORMS = Forms(kinds=KINDS, render=None)


def read(kind: str, **fields: Any) -> Resource:
    whole = {"metadata": {"name": "a", "namespace": "n", "managedFields": []}, **fields}
    return FORMS.read(kind, msgspec.json.encode(whole))


def managed(manager: str, subresource: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    return {"manager": manager, "subresource": subresource, "fieldsV1": fields}


def test_a_flat_kind_has_its_fields_beside_the_metadata() -> None:
    rules = [{"verbs": ["get"]}]
    role = Resource("x", "Role", Meta(name="a", namespace="n"), spec={"rules": rules})
    written = FORMS.write(role)
    assert written["rules"] == rules
    assert read("Role", rules=rules).spec == {"rules": rules}


def test_an_owner_is_named_with_its_version() -> None:
    meta = Meta(name="a", namespace="n", owner_references=(Owner("RLHFJob", "j", "u"),))
    owners = FORMS.write(Resource("v1", "Service", meta))["metadata"]["ownerReferences"]
    assert owners[0]["apiVersion"] == "rlhf.ebbtide.dev/v1alpha1"


def test_an_event_is_about_an_object_of_its_namespace() -> None:
    about = {"kind": "RLHFJob", "name": "j", "uid": "u"}
    event = Resource("v1", "Event", Meta(name="a", namespace="n"), spec={"involvedObject": about})
    written = FORMS.write(event)
    assert written["involvedObject"]["namespace"] == "n"
    assert "spec" not in written


def test_a_lease_lasts_for_whole_seconds() -> None:
    lease = Resource("x", "Lease", Meta(name="a"), spec={"leaseDurationSeconds": 5.5})
    assert FORMS.write(lease)["spec"] == {"leaseDurationSeconds": 6}


def test_a_patch_of_a_version_says_so() -> None:
    body = FORMS.patch("RLHFJob", {"spec": {"suspend": True}}, "7")
    assert body == {"metadata": {"resourceVersion": "7"}, "spec": {"suspend": True}}


def test_only_who_can_render_pods_makes_them() -> None:
    with pytest.raises(Refused, match="makes no pods"):
        FORMS.write(Resource("v1", "Pod", Meta(name="a")))


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="Secret"):
        FORMS.kind("Secret")


@pytest.mark.parametrize(
    ("entry", "writer"), [(managed("argocd"), "argocd"), (managed("kubectl", "scale"), "scale")]
)
def test_the_writer_of_a_pools_replicas_is_told(entry: dict[str, Any], writer: str) -> None:
    whole = {"metadata": {"name": "a", "managedFields": [entry]}}
    pool = FORMS.read("DecodePool", msgspec.json.encode(whole))
    assert pool.metadata.managers == {"spec.replicas": writer}
