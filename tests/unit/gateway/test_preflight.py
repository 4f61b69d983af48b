from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.spec.check import Fault, Invalid, check
from services.gateway.app import preflight
from services.gateway.app.modules import gym_tasks, unresolved
from services.gateway.app.preflight import look
from services.gateway.app.words import template_fault
from tests.e2e.tiny import write_model
from tests.worlds.gateway import a_job


def faults(document: dict[str, Any], *, paths: bool = True) -> dict[str, str]:
    found = look(check(document), paths=paths)
    return {fault.pointer: fault.detail for fault in found.faults}


def model(folder: Path, *names: str) -> dict[str, Any]:
    for name in names:
        (folder / name).write_text("{}")
    return {"model": {"uri": str(folder)}}


WHOLE = ("config.json", "tokenizer.json", "model.safetensors")


DEEP = b'{"x":' + b"[" * 100_000


def files(folder: Path, kind: str, uri: str) -> dict[str, Any]:
    return {**model(folder, *WHOLE), "dataset": {"train": {"type": kind, "uri": uri}}}


def test_a_whole_model_folder_has_no_faults(tmp_path: Path) -> None:
    assert faults(a_job(**model(tmp_path, *WHOLE))) == {}


def test_files_that_are_published_as_they_are_must_have_the_jobs_data_type(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    for dtype, words in (("float32", []), ("bfloat16", ["/spec/model/uri"])):
        job = a_job(mode="rollout-only", model={"uri": str(folder), "dtype": dtype})
        assert list(faults(job)) == words
    assert faults(a_job(model={"uri": str(folder), "dtype": "bfloat16"})) == {}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("tokenizer.json", "model.safetensors"), "no config.json"),
        (("config.json", "model.safetensors"), "no tokenizer.json"),
        (("config.json", "tokenizer.json"), "no *.safetensors"),
    ],
)
def test_a_model_folder_that_lacks_something(
    tmp_path: Path, names: tuple[str, ...], words: str
) -> None:
    assert words in faults(a_job(**model(tmp_path, *names)))["/spec/model/uri"]


SHAPE = {
    "num_attention_heads": 4,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}


def on_vllm(folder: Path, shape: dict[str, Any], **decode: Any) -> dict[str, str]:
    parts = model(folder, *WHOLE)
    (folder / "config.json").write_text(json.dumps(SHAPE | shape))
    return faults(a_job(**parts, decode={"engine": "vllm", "device": "cpu", **decode}))


@pytest.mark.parametrize(
    ("shape", "settings", "pointer"),
    [
        ({}, {"vllm": {"tensorParallel": 3}}, "/spec/decode/vllm/tensorParallel"),
        ({"hidden_size": 96}, {}, "/spec/decode/engine"),
        ({"max_position_embeddings": 64}, {}, "/spec/training/maxResponseTokens"),
        ({"num_hidden_layers": 900}, {"vllm": {"cpuKvMib": 16}}, "/spec/decode/vllm/cpuKvMib"),
        ({"hidden_size": "wide"}, {}, "/spec/model/uri"),
        ({"text_config": None}, {}, "/spec/model/uri"),
    ],
    ids=str,
)
def test_what_vllm_could_not_do_with_the_model_is_refused_before_anything_starts(
    tmp_path: Path, shape: dict[str, Any], settings: dict[str, Any], pointer: str
) -> None:
    assert list(on_vllm(tmp_path, shape, **settings)) == [pointer]


def test_a_config_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    parts = model(tmp_path, *WHOLE)
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    assert list(faults(a_job(**parts, decode={"engine": "vllm"}))) == ["/spec/model/uri"]


def test_what_vllm_can_do_is_let_through_and_other_engines_are_not_asked(tmp_path: Path) -> None:
    assert on_vllm(tmp_path, {}, vllm={"tensorParallel": 2}) == {}
    assert on_vllm(tmp_path, {"hidden_size": 96}, device="cuda") == {}
    assert on_vllm(tmp_path, {"hidden_size": 96}, engine="torch") == {}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("/no/such/file", "there is no file /no/such/file"),
        ("tiny", "is relative"),
        ("s3://bucket/model", "only files and folders"),
    ],
)
def test_a_profile_that_is_not_there(uri: str, words: str) -> None:
    assert words in faults(a_job(decode={"profile": uri}))["/spec/decode/profile"]


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("/no/such/folder", "there is no folder /no/such/folder"),
        ("tiny", "is relative"),
        ("s3://bucket/model", "only files and folders"),
    ],
)
def test_a_model_that_is_not_there(uri: str, words: str) -> None:
    assert words in faults(a_job(model={"uri": uri}))["/spec/model/uri"]


@pytest.mark.parametrize(
    ("content", "pointer", "words"),
    [
        (None, "/spec/dataset/train/uri", "no file matches"),
        (b"", "/spec/dataset/train/uri", "is empty"),
        (b"\n", "/spec/dataset/train/uri", "no rows"),
        (b"{", "/spec/dataset/train/uri", "rows.jsonl:1 is not a JSON object"),
        (b"\n\n[1]", "/spec/dataset/train/uri", "rows.jsonl:3 is not a JSON object"),
        pytest.param(DEEP, "/spec/dataset/train/uri", "rows.jsonl:1 is nested", id="deep"),
        (b'{"question": "x"}', "/spec/dataset/train", "no field 'prompt'; it has question"),
    ],
)
def test_a_dataset_file_that_cannot_be_used(
    tmp_path: Path, content: bytes | None, pointer: str, words: str
) -> None:
    file = tmp_path / "rows.jsonl"
    if content is not None:
        file.write_bytes(content)
    assert words in faults(a_job(**files(tmp_path, "jsonl", str(file))))[pointer]


def test_a_dataset_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n')
    assert faults(a_job(**files(tmp_path, "jsonl", f"{tmp_path}/*.jsonl"))) == {}


@pytest.mark.parametrize(
    "content",
    [
        b'\n \n{"prompt": "x"}\n',
        b'\xef\xbb\xbf{"prompt": "x"}\n',
        b'{"x": "' + b"y" * (5 << 20) + b'", "prompt": "x"}\n',
    ],
    ids=["blank first line", "byte order mark", "long first row"],
)
def test_a_dataset_that_the_preparation_takes_is_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    assert faults(a_job(**files(tmp_path, "jsonl", f"{tmp_path}/rows.jsonl"))) == {}


PLACES = st.builds(
    "{}{}".format,
    st.sampled_from(["/", "file:///", "/tmp/*/", "file://", "//["]),
    st.text(max_size=20) | st.sampled_from(["n" * 300, "a%00b", "a%00b/*", "x/" * 600, "[", "%"]),
)


@settings(deadline=None)
@given(uri=PLACES, kind=st.sampled_from(["jsonl", "parquet", "hf"]))
def test_no_place_breaks_the_look(uri: str, kind: str) -> None:
    """Whatever a document may say (what the schema refuses comes no further)."""
    both = {"uri": uri, "tokenizerUri": uri}
    document = a_job(model=both, dataset={"train": {"type": kind, "uri": uri}})
    try:
        found = faults(document)
    except Invalid:
        return
    assert "/spec/model/uri" in found


LONG = "/" + "n" * 300
NUL = "file:///tmp/a%00b"
PATTERN_IN_NUL = f"{NUL}/*"


@pytest.mark.parametrize("uri", [LONG, NUL])
def test_a_model_in_a_place_that_cannot_be_is_a_fault(tmp_path: Path, uri: str) -> None:
    whole = model(tmp_path, *WHOLE)["model"]
    assert set(faults(a_job(model={"uri": uri}))) == {"/spec/model/uri"}
    other = faults(a_job(model={**whole, "tokenizerUri": uri}))
    assert set(other) == {"/spec/model/tokenizerUri"}


@pytest.mark.parametrize("uri", [LONG, NUL, PATTERN_IN_NUL])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "hf"])
def test_a_dataset_in_a_place_that_cannot_be_is_a_fault(
    tmp_path: Path, kind: str, uri: str
) -> None:
    found = faults(a_job(**files(tmp_path, kind, uri)))
    assert set(found) == {"/spec/dataset/train/uri"}


def test_a_loop_of_links_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for document in (
        a_job(model={"uri": f"{tmp_path}/loop"}),
        a_job(**files(tmp_path, "jsonl", f"{tmp_path}/loop")),
        a_job(**files(tmp_path, "hf", f"{tmp_path}/loop")),
    ):
        assert len(faults(document)) == 1


def test_a_place_that_may_not_be_looked_at_is_a_fault() -> None:
    def forbidden() -> Iterator[Fault]:
        yield Fault("/other", "seen before")
        raise PermissionError(errno.EACCES, "Permission denied")

    found = [(fault.pointer, fault.detail) for fault in preflight._looked("/uri", forbidden())]
    assert found[1:] == [("/uri", "cannot be looked at: Permission denied")]


def test_a_pattern_that_walks_too_far_is_named(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / "many" / str(number)).mkdir(parents=True)
    document = a_job(**files(tmp_path, "jsonl", f"{tmp_path}/many/*/../*/../*/rows.jsonl"))
    assert "more than 100,000 entries" in faults(document)["/spec/dataset/train/uri"]


def test_imitation_needs_completions(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n')
    document = a_job(**files(tmp_path, "jsonl", f"{tmp_path}/rows.jsonl"))
    document["spec"]["algorithm"] = {"type": "sft"}
    assert "no field 'completion'" in faults(document)["/spec/dataset/train"]


def test_preferences_need_both_answers(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x", "chosen": "y"}\n')
    document = a_job(**files(tmp_path, "jsonl", f"{tmp_path}/rows.jsonl"))
    document["spec"]["algorithm"] = {"type": "dpo"}
    assert "no field 'rejected'" in faults(document)["/spec/dataset/train"]


def test_a_reward_model_is_a_folder_with_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    part = {"type": "model", "name": "m", "uri": str(tmp_path)}
    found = faults(a_job(reward={"components": [part]}))
    assert "has no tokenizer.json" in found["/spec/reward/components/0/uri"]


@pytest.mark.parametrize(("kind", "words"), [("parquet", "not a Parquet"), ("hf", "save_to_disk")])
def test_a_file_of_another_kind(tmp_path: Path, kind: str, words: str) -> None:
    (tmp_path / "rows").write_text("text")
    document = a_job(**files(tmp_path, kind, f"{tmp_path}/rows"))
    assert words in faults(document)["/spec/dataset/train/uri"]


def test_files_are_left_alone_where_the_gateway_does_not_see_them() -> None:
    assert faults(a_job(model={"uri": "/no/such/folder"}), paths=False) == {}


def test_reasoning_gym_tasks_are_known_without_importing_it() -> None:
    assert "word_sequence_reversal" in gym_tasks()
    assert len(gym_tasks()) > 100


def reward(**component: Any) -> dict[str, Any]:
    return a_job(reward={"components": [{"name": "r", **component}]})


@pytest.mark.parametrize(
    ("component", "field", "words"),
    [
        ({"type": "function", "entryPoint": "no_such_module_x:f"}, "entryPoint", "no module"),
        ({"type": "function", "entryPoint": "json:no_such"}, "entryPoint", "defines no no_such"),
    ],
)
def test_a_reward_that_cannot_work(component: Any, field: str, words: str) -> None:
    found = faults(reward(**component), paths=False)
    assert words in found[f"/spec/reward/components/0/{field}"]


def test_an_environment_that_is_not_there_is_refused_before_anything_runs() -> None:
    found = faults(a_job(environment={"entryPoint": "json:no_such"}), paths=False)
    assert "defines no no_such" in found["/spec/environment/entryPoint"]
    assert faults(a_job(environment={"name": "calculator"}), paths=False) == {}


@pytest.mark.parametrize(
    ("row", "noted"),
    [({"prompt": "p", "anser": 1}, True), ({"prompt": "p", "answer": 1}, False)],
)
def test_rows_without_the_field_that_a_rule_compares_with_are_noted(
    tmp_path: Path, row: dict[str, Any], *, noted: bool
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    rule = {
        "components": [
            {"type": "numeric", "name": "r"},
            {"type": "regex", "name": "s", "pattern": "a"},
        ]
    }
    job = a_job(**files(tmp_path, "jsonl", str(tmp_path / "rows.jsonl")), reward=rule)
    fields = [
        fault for fault in look(check(job), paths=True).warnings if "no field" in fault.detail
    ]
    pointers = [fault.pointer for fault in fields]
    assert pointers == (["/spec/reward/components/0/answerField"] if noted else [])


def test_looking_for_a_function_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mine_x"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    source = (
        "raise SystemExit('imported')\ndef score(): ...\nfrom json import loads as other\nx = 1\n"
    )
    (package / "rewards.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("score", "other", "x"):
        assert unresolved(f"mine_x.rewards:{name}") == ""
    assert unresolved("mine_x.rewards:nope") == "the module mine_x.rewards defines no nope"
    assert "no module mine_x.nope" in unresolved("mine_x.nope:score")
    assert "PYTHONPATH" in unresolved("mine_x.nope:score")
    assert not any(name.startswith("mine_x") for name in sys.modules)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}", "cannot be parsed: Unexpected end"),
        ("\n{{ messages", "(line 2)"),
        ("{{ " + "(" * 5000 + " }}", "nested too deeply"),
    ],
    ids=["open block", "open expression", "deep"],
)
def test_a_chat_template_that_cannot_be_parsed(template: str, words: str) -> None:
    document = a_job(model={"uri": "/models/tiny", "chatTemplate": template})
    assert words in faults(document, paths=False)["/spec/model/chatTemplate"]


def test_a_chat_template_may_use_what_transformers_adds_to_jinja() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}"
        "{% generation %}{{ m.content | tojson }}{% endgeneration %}{% endfor %}"
        "{{ raise_exception('no') }}{{ strftime_now('%d') }}"
    )
    assert template_fault(template) == ""


@pytest.mark.parametrize("vocabulary", [{"a": 0, "<stop>": 1}, [["a", 0.0], ["<stop>", -1.5]]])
def test_a_stop_token_must_be_one_of_the_tokenizers(tmp_path: Path, vocabulary: Any) -> None:
    document = a_job(**model(tmp_path, *WHOLE))
    known = {"model": {"type": "any", "vocab": vocabulary}, "added_tokens": [{"content": "<eot>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(known))
    (tmp_path / "tokenizer_config.json").write_text('{"extra": ["<other>"]}')
    tokens = ["<stop>", "<eot>", "<other>", "</answer"]
    document["spec"]["model"]["stopTokens"] = tokens
    assert list(faults(document)) == ["/spec/model/stopTokens/3"]


def test_stop_tokens_are_left_alone_where_the_tokenizer_cannot_be_read(tmp_path: Path) -> None:
    document = a_job(**model(tmp_path, *WHOLE))
    document["spec"]["model"]["stopTokens"] = ["<stop>"]
    assert faults(document) == {}
