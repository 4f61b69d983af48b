"""What `ebbtide up` says."""

import pytest

from ebbtide.cli.local import told
from ebbtide.endpoint import Up


def test_it_names_the_web_page_and_where_its_token_is(capsys: pytest.CaptureFixture[str]) -> None:
    up = Up(url="http://127.0.0.1:8470", token_file="state/token", state_dir="state", pids={})
    told(up, as_json=False, how="is ready")
    said = capsys.readouterr().out.splitlines()
    assert said[1:3] == [
        "page: http://127.0.0.1:8470/ui (asks for the token)",
        "token: state/token",
    ]
