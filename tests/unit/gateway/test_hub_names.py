"""A model named as on a hub, where a folder is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.spec.check import check
from services.gateway.app.preflight import look
from tests.worlds.gateway import a_job

FIX = (
    "; names of a hub are not looked up: download it (for instance"
    " `hf download Qwen/Qwen2.5-0.5B --local-dir DIR`) and give the folder"
)


def said(pointer: str, **model: str) -> str:
    document = a_job(model={"uri": "/", **model})
    found = look(check(document), paths=True)
    return next(fault.detail for fault in found.faults if fault.pointer == pointer)


def test_a_name_of_a_hub_is_answered_with_how_to_get_the_folder(tmp_path: Path) -> None:
    uri = f"{tmp_path}/Qwen/Qwen2.5-0.5B"  # as the command line sends it
    assert said("/spec/model/uri", uri=uri) == f"there is no folder {uri}{FIX}"
    assert said("/spec/model/tokenizerUri", tokenizerUri=uri) == f"there is no folder {uri}{FIX}"


def test_a_name_of_a_hub_as_programs_send_it_is_answered_so_too() -> None:
    found = said("/spec/model/uri", uri="Qwen/Qwen2.5-0.5B")
    assert "is relative" in found
    assert found.endswith(FIX)


@pytest.mark.parametrize("name", ["tiny", "deep/er/tiny", "there/tiny"])
def test_a_folder_that_is_missing_is_no_name_of_a_hub(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    uri = f"{tmp_path}/{name}"
    assert said("/spec/model/uri", uri=uri) == f"there is no folder {uri}"


@pytest.mark.parametrize("uri", ["runs/model", "./own/model", "../own/model", "../../runs/a/model"])
def test_a_path_that_says_so_is_no_name_of_a_hub(uri: str) -> None:
    assert "hf download" not in said("/spec/model/uri", uri=uri)


def test_an_example_whose_files_are_missing_is_not_sent_to_a_hub(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    uri = f"{tmp_path}/runs/episodes/model"
    assert said("/spec/model/uri", uri=uri) == f"there is no folder {uri}"
