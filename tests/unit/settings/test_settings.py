"""Settings come from the environment whole, or are refused by the variable's name."""

import pytest

from ebbtide.errors import Refused
from ebbtide.settings import RoleSettings

LEAST = {
    "EBBTIDE_BLOBS_URL": "memory:///",
    "EBBTIDE_JOB": "sums",
    "EBBTIDE_JOB_UID": "u-1",
}


def test_variables_become_typed_fields() -> None:
    settings = RoleSettings.load({**LEAST, "EBBTIDE_HEALTH_PORT": "8081", "PATH": "/bin"})
    assert settings.health_port == 8081
    assert settings.job == "sums"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"EBBTIDE_HEALTH_PROT": "1"}, "EBBTIDE_HEALTH_PROT"),
        ({"EBBTIDE_HEALTH_PORT": "many"}, "EBBTIDE_HEALTH_PORT"),
        ({"EBBTIDE_HEALTH_PORT": "70000"}, "EBBTIDE_HEALTH_PORT"),
        ({"EBBTIDE_LOG_LEVEL": "loud"}, "EBBTIDE_LOG_LEVEL"),
    ],
)
def test_a_bad_variable_is_refused_by_name(change: dict[str, str], named: str) -> None:
    with pytest.raises(Refused, match=named) as refusal:
        RoleSettings.load({**LEAST, **change})
    assert refusal.value.field == named


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(Refused, match="EBBTIDE_BLOBS_URL is not set"):
        RoleSettings.load({})


def test_secrets_are_never_shown() -> None:
    secrets = {"EBBTIDE_NATS_PASSWORD": "hush", "EBBTIDE_NATS_URL": "nats://me:hush@host:1"}
    settings = RoleSettings.load({**LEAST, **secrets})
    assert "hush" not in str(settings.describe())
    assert settings.nats_password.get_secret_value() == "hush"


def test_a_refusal_does_not_quote_the_value() -> None:
    with pytest.raises(Refused) as refusal:
        RoleSettings.load({**LEAST, "EBBTIDE_GRACE_SECONDS": "hush"})
    assert "hush" not in str(refusal.value)


def test_settings_survive_the_way_through_an_environment() -> None:
    settings = RoleSettings.load({**LEAST, "EBBTIDE_NATS_PASSWORD": "hush"})
    assert RoleSettings.load(settings.environ()) == settings
