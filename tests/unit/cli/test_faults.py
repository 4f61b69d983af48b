"""How the command line tells what is wrong with a job."""

from __future__ import annotations

import pytest
import typer

from ebbtide.api import ProblemDocument
from ebbtide.cli.ending import guarded
from ebbtide.client import ApiError
from ebbtide.spec.check import Fault, Invalid


def told(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    @guarded
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit):
        command()
    return capsys.readouterr().err


def test_one_fault_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = Invalid([Fault("/spec/model/uri", "there is no folder /x")])
    assert told(error, capsys) == "ebbtide: /spec/model/uri: there is no folder /x\n"


def test_each_of_several_faults_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(Invalid([Fault("/spec/a", "is wrong"), Fault("", "is odd")]), capsys)
    assert found == "ebbtide: 2 things are wrong:\n  /spec/a: is wrong\n  the document: is odd\n"


def test_what_a_problem_says_beside_its_faults_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors = [{"pointer": "/query/step", "detail": "Input should be a number"}]
    problem = {"type": "t", "title": "T", "status": 422, "detail": "Parameters are not valid."}
    error = ApiError(ProblemDocument.model_validate({**problem, "errors": errors}))
    assert told(error, capsys) == (
        "ebbtide: Parameters are not valid.\n  /query/step: Input should be a number\n"
    )
