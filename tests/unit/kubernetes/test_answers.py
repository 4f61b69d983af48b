"""What the API server's refusals mean."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.adapters.cluster_kubernetes.answers import error_of, pointer, read_status
from ebbtide.errors import (
    Conflict,
    EbbtideError,
    Forbidden,
    NotFound,
    Permanent,
    Refused,
    Temporary,
)


def error(code: int, message: str = "m", reason: str = "", **details: object) -> EbbtideError:
    body = {"code": code, "message": message, "reason": reason, "details": details}
    return error_of(read_status(code, msgspec.json.encode(body)), "Pod default/a")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Refused),
        (401, Permanent),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Conflict),
        (422, Refused),
        (429, Temporary),
        (500, Temporary),
        (503, Temporary),
    ],
)
def test_every_code_has_one_meaning(code: int, kind: type[EbbtideError]) -> None:
    assert type(error(code)) is kind


def test_a_taken_name_and_a_change_are_told_apart() -> None:
    assert "exists already" in str(error(409, reason="AlreadyExists"))
    assert "read it again" in str(error(409, reason="Conflict"))
    assert "another object" in str(error(409, "UID in precondition: a", reason="Conflict"))


def test_expired_history_is_said_as_the_local_store_says_it() -> None:
    assert str(error(410)).startswith("expired")


def test_an_invalid_field_is_named_by_pointer() -> None:
    causes = [{"field": "spec.prices[1].pool", "message": "Duplicate"}]
    refused = error(422, causes=causes)
    assert isinstance(refused, Refused)
    assert refused.field == "/spec/prices/1/pool"
    assert "Duplicate" in refused.detail


def test_no_field_is_no_pointer() -> None:
    assert [pointer(""), pointer("<nil>")] == ["", ""]


def test_a_full_quota_may_have_room_later() -> None:
    assert isinstance(error(403, "exceeded quota: few"), Temporary)


def test_a_put_off_request_says_for_how_long() -> None:
    later = error(429, retryAfterSeconds=7)
    assert isinstance(later, Temporary)
    assert later.delay == 7.0
    status = read_status(503, b"<html>", "3")
    proxy = error_of(status, "x")
    assert isinstance(proxy, Temporary)
    assert proxy.delay == 3.0
