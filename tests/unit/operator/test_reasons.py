"""The closed list of reasons and its page."""

from pathlib import Path

from ebbtide_operator.core.reasons import EVENTS, MEANINGS, Reason

PAGE = Path(__file__).parents[3] / "docs" / "job-status.md"


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Reason)


def test_the_page_shows_every_reason_and_event_with_its_meaning() -> None:
    rows = {line.strip() for line in PAGE.read_text().splitlines()}
    for name, meaning in [*MEANINGS.items(), *EVENTS.items()]:
        assert f"| {name} | {meaning} |" in rows, f"docs/job-status.md does not say: {name}"
