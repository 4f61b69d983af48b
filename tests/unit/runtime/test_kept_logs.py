"""What a process says is kept within bounds, without secrets, in whole lines."""

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from ebbtide import logs
from ebbtide.kept_logs import LINE_BYTES, Backlog, Parts
from ebbtide.settings import RoleSettings
from services.reward.settings import RewardSettings

LINES = st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=12)


def stored(parts: Parts, batches: list[list[bytes]]) -> dict[int, bytes]:
    """What a store that does as it is told holds after these writes."""
    objects: dict[int, bytes] = {}
    for lines in batches:
        change = parts.add(b"".join(lines))
        objects |= change.put
        for number in change.drop:
            objects.pop(number, None)  # what came and went in one write was never there
    return objects


@given(st.lists(LINES, max_size=5))
def test_parts_hold_every_line_in_order_while_there_is_room(batches: list[list[bytes]]) -> None:
    objects = stored(Parts(first=3, most_bytes=1 << 20, part_bytes=100), batches)
    whole = b"".join(objects[number] for number in sorted(objects))
    assert whole == b"".join(line for lines in batches for line in lines)
    assert sorted(objects) == list(range(3, 3 + len(objects)))


@given(st.lists(LINES, max_size=5))
def test_parts_stay_within_their_bytes_and_keep_beginning_and_end(
    batches: list[list[bytes]],
) -> None:
    objects = stored(Parts(first=0, most_bytes=300, part_bytes=100), batches)
    said = b"".join(line for lines in batches for line in lines)
    assert sum(map(len, objects.values())) <= 400
    assert said.startswith(objects.get(0, b""))
    assert said.endswith(objects[max(objects)] if objects else b"")


def test_what_one_write_brings_and_drops_is_never_put() -> None:
    change = Parts(first=0, most_bytes=300, part_bytes=100).add(b"x" * 99 + b"\n" * 500)
    assert not change.put.keys() & set(change.drop)
    assert change.drop


def test_a_flood_is_left_out_and_counted() -> None:
    kept = Backlog(role="decode", limit=100)
    for _ in range(30):
        kept.add("ten bytes\n")
    assert kept.take() == (b"ten bytes\n" * 10, 20)
    kept.add("room again\n")
    assert kept.take() == (b"room again\n", 0)


def test_a_line_of_any_length_stays_one_line() -> None:
    kept = Backlog(role="decode")
    kept.add("x" * (LINE_BYTES + 10) + "\n")
    (line,) = kept.take()[0].splitlines()
    assert line.endswith(b"x ... 11 bytes more")
    assert len(line) < LINE_BYTES + 100


def test_secrets_reach_neither_the_screen_nor_the_store() -> None:
    given = {"blobs_url": "memory:///", "job": "j", "job_uid": "u", "nats_password": 'hunter"2'}
    secrets = RoleSettings(**given).secrets({"HF_TOKEN": "hf_sesame", "PATH": "/usr/bin"})
    kept, stream = Backlog(role="decode", secrets=secrets), io.StringIO()
    logs.setup("info", stream=stream, kept=kept).info("refused", why='hf_sesame and hunter"2')
    assert json.loads(stream.getvalue())["why"] == "*** and ***"
    assert kept.take()[0].decode() == stream.getvalue()


def test_each_key_of_a_scorer_is_a_secret() -> None:
    keys = '{"judge": {"key": "sk-open-sesame", "origin": "https://judge"}}'
    settings = RewardSettings(blobs_url="memory:///", job="j", job_uid="u", keys=keys)
    assert "sk-open-sesame" in settings.secrets({})
