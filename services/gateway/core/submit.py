"""Submission: from a document and an idempotency key to the object that is created.

Same tenant, key and payload always give the same name, so the object store's own uniqueness of
names makes submission idempotent: no table of keys, nothing to lose (kubernetes-platforms 3.2).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ebbtide.ports import Meta, Resource
from ebbtide.spec import GROUP, RLHFJob
from ebbtide.spec.check import Fault, Invalid, check, dump
from services.gateway.core.problems import Problem

KEY_LABEL = f"{GROUP}/idempotency-key"
PAYLOAD = f"{GROUP}/payload"
TENANT_LABEL = f"{GROUP}/tenant"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?")


class Submission(msgspec.Struct, frozen=True):
    """A checked job on its way to the store. `fingerprint` is of what the caller sent."""

    job: RLHFJob
    key_hash: str
    fingerprint: str
    tenant: str

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.job.metadata.name


def require_key(header: str | None) -> str:
    """The Idempotency-Key, or a problem that tells how to send one."""
    if header is None:
        detail = "Send the header Idempotency-Key with a value of your own, such as a UUID."
        raise Problem("idempotency-key-missing", detail)
    if not _KEY.fullmatch(header):
        raise Problem("malformed", "Idempotency-Key must be 1 to 255 printable ASCII characters.")
    return header


def prepare(document: Any, *, tenant: str, key: str, namespace: str) -> Submission:
    """Check `document` and give it its name; raises Invalid with every fault."""
    key_hash = _hash(f"{tenant}\n{key}")
    job = check(named(document, f"job-{key_hash[:12]}", namespace))
    found = label_faults(job, namespace)
    if found:
        raise Invalid(found)
    return Submission(job, key_hash[:32], fingerprint(document), tenant)


def named(document: Any, name: str, namespace: str) -> Any:
    """`document` with a name and namespace where it gives none; other shapes stay as they are."""
    if not isinstance(document, dict):
        return document
    metadata = document.get("metadata", {})
    if not isinstance(metadata, dict):
        return document
    return {**document, "metadata": {"name": name, "namespace": namespace, **metadata}}


def label_faults(job: RLHFJob, namespace: str) -> list[Fault]:
    """What the object store would refuse: another namespace, labels that are none."""
    faults: list[Fault] = []
    if job.metadata.namespace != namespace:
        detail = f"this gateway serves the namespace {namespace} alone"
        faults.append(Fault("/metadata/namespace", detail))
    for field, entries in (
        ("labels", job.metadata.labels),
        ("annotations", job.metadata.annotations),
    ):
        for key, value in entries.items():
            if detail := _label_fault(field, key, value):
                escaped = key.replace("~", "~0").replace("/", "~1")
                faults.append(Fault(f"/metadata/{field}/{escaped}", detail))
    return faults


def _label_fault(field: str, key: str, value: str) -> str:
    if not _LABEL_KEY.fullmatch(key):
        return "the key is not a Kubernetes label key"
    if key.startswith(f"{GROUP}/"):
        return f"keys that start with {GROUP}/ are set by ebbtide alone"
    if field == "labels" and not _LABEL_VALUE.fullmatch(value):
        return "a label value has at most 63 letters, digits, '-', '_', '.'"
    return "an annotation has at most 4096 characters" if len(value) > 4096 else ""


def fingerprint(document: Any) -> str:
    """Digest of the payload's values: YAML and JSON of the same job are the same payload."""
    return _hash(json.dumps(document, sort_keys=True, separators=(",", ":")))


def resource(submission: Submission) -> Resource:
    """The object to create."""
    values = dump(submission.job)
    metadata = submission.job.metadata
    ours = {KEY_LABEL: submission.key_hash, TENANT_LABEL: submission.tenant}
    return Resource(
        api_version=values["apiVersion"],
        kind=values["kind"],
        metadata=Meta(
            name=metadata.name,
            namespace=metadata.namespace,
            labels={**metadata.labels, **ours},
            annotations={**metadata.annotations, PAYLOAD: submission.fingerprint},
        ),
        spec=values["spec"],
    )


def is_replay(found: Resource, submission: Submission) -> bool:
    """Whether `found` is the first answer to this very submission.

    Raises idempotency-mismatch when the key was used with another payload.
    """
    labels: Mapping[str, str] = found.metadata.labels
    if labels.get(KEY_LABEL) != submission.key_hash:
        return False
    if found.metadata.annotations.get(PAYLOAD) != submission.fingerprint:
        detail = f"The key made the job {found.metadata.name} from another payload; use a new key."
        raise Problem("idempotency-mismatch", detail)
    return True


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
