"""Who is who: what makes two names the same."""

from ebbtide.wire import PolicyRef


def test_policies_are_the_same_by_digest_alone() -> None:
    first, again = PolicyRef(7, 1, "a"), PolicyRef(7, 2, "a")
    assert first == again
    assert not first != again  # noqa: SIM202
    assert len({first, again}) == 1


def test_a_version_trained_again_is_another_policy() -> None:
    assert PolicyRef(7, 1, "a") != PolicyRef(7, 1, "b")
