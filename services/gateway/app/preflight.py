"""Looks at what a job names, beyond its schema: folders, files, tasks, functions.

Only looks: no user code is imported and nothing is executed (a check that ran reward code at
submission was a remote code execution elsewhere: kubernetes-platforms 4.7, thread 45).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec

from ebbtide.data import jsonl
from ebbtide.data.patterns import matching
from ebbtide.data.sources import local_path
from ebbtide.engines.model_files import check_weights
from ebbtide.engines.vllm.limits import check_fit, limits_of
from ebbtide.errors import Refused
from ebbtide.spec import (
    NO_PROGRAMS,
    DpoSpec,
    FileSource,
    FunctionReward,
    ModelReward,
    ModelSpec,
    ReasoningGymSource,
    RewardModelSpec,
    RLHFJob,
    RuleReward,
    SftSpec,
)
from ebbtide.spec.check import Fault
from services.gateway.app.modules import gym_tasks, unresolved
from services.gateway.app.words import hub_words, template_fault, unknown

_NO_GPU = "this machine has no NVIDIA GPU (no /dev/nvidia0): use cpu or auto"
_NOTHING_TO_OFFLOAD = "this machine has no NVIDIA GPU (no /dev/nvidia0): remove it"
_MAX_LINE = 1 << 22
_MAX_WORDS = 500
_ROLES = ("learner", "decode", "reward", "planner")
_COMPARING = ("exact", "numeric", "math")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


class Findings(msgspec.Struct, frozen=True):
    """What is wrong, and what is only worth knowing."""

    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()


def look(job: RLHFJob, *, paths: bool, gpus: int | None = None, programs: bool = True) -> Findings:
    """Findings of `job`; `paths` is off where this process does not see the learner's files.

    `gpus`: of this machine, where jobs run on it; None: they run elsewhere. `programs`: whether
    any of answers are run.
    """
    faults = [*_rewards(job), *_tasks(job), *_template(job)]
    if not programs and (number := job.spec.programs) is not None:
        faults.append(Fault(f"/spec/reward/components/{number}", NO_PROGRAMS))
    if gpus == 0:
        faults += _devices(job)
    if paths:
        faults += [*_model(job), *_engine(job), *_data(job), *_profile(job), *_judges(job)]
    return Findings(tuple(faults), tuple(_warnings(job, paths=paths)))


def _devices(job: RLHFJob) -> Iterator[Fault]:
    """Roles and judges that ask for a GPU where there is none."""
    spec = job.spec
    asked = {"learner": spec.learner.device} if spec.learns else {}
    if spec.samples and spec.decode.engine != "emulated":
        asked["decode"] = spec.decode.device
    if spec.prefill.mode != "colocated":
        asked["prefill"] = spec.prefill.device
    for number, part in enumerate(spec.reward.components if spec.reward else ()):
        if isinstance(part, ModelReward):
            asked[f"reward/components/{number}"] = part.device
    for place, device in asked.items():
        if device == "cuda":
            yield Fault(f"/spec/{place}/device", _NO_GPU)
    if spec.learns and spec.learner.cpu_offload:
        yield Fault("/spec/learner/cpuOffload", _NOTHING_TO_OFFLOAD)


def _looked(pointer: str, faults: Iterator[Fault]) -> Iterator[Fault]:
    """`faults`, and that the place cannot be looked at where the system or its name forbids it."""
    try:
        yield from faults
    except Refused as error:
        yield Fault(pointer, error.detail)
    except OSError as error:
        yield Fault(pointer, f"cannot be looked at: {error.strerror}")
    except ValueError as error:  # a NUL in the name, or what is no URI
        yield Fault(pointer, f"cannot be looked at: {error}")


def _template(job: RLHFJob) -> Iterator[Fault]:
    template = job.spec.model.chat_template
    if template is not None and (why := template_fault(template)):
        yield Fault("/spec/model/chatTemplate", why)


def _model(job: RLHFJob) -> Iterator[Fault]:
    model = job.spec.model
    yield from _looked("/spec/model/uri", _model_folder(model))
    if not job.spec.learns:
        yield from _looked("/spec/model/uri", _weights(model))
    if model.tokenizer_uri:
        pointer = "/spec/model/tokenizerUri"
        yield from _looked(pointer, _tokenizer_folder(model, pointer))


def _model_folder(model: ModelSpec) -> Iterator[Fault]:
    pointer = "/spec/model/uri"
    folder = _path(model.uri, hint=hub_words(model.uri))
    if not folder.is_dir():
        yield Fault(pointer, f"there is no folder {folder}{hub_words(str(folder))}")
        return
    if not (folder / "config.json").is_file():
        yield Fault(pointer, f"{folder} has no config.json: it is not a Hugging Face model folder")
    elif not any(folder.glob("*.safetensors")):
        yield Fault(pointer, f"{folder} has no *.safetensors file")
    if not model.tokenizer_uri:
        yield from _tokenizer_folder(model, pointer)


def _weights(model: ModelSpec) -> Iterator[Fault]:
    """Where nobody learns, the files are published as they are; a missing folder is told already."""
    folder = _path(model.uri)
    if any(folder.glob("*.safetensors")):
        check_weights(folder, model.dtype)
    yield from ()


def _tokenizer_folder(model: ModelSpec, pointer: str) -> Iterator[Fault]:
    uri = model.tokenizer_uri or model.uri
    folder = _path(uri, hint=hub_words(uri))
    if not folder.is_dir():
        yield Fault(pointer, f"there is no folder {folder}{hub_words(str(folder))}")
    elif not any((folder / name).is_file() for name in _TOKENIZERS):
        yield Fault(pointer, f"{folder} has no tokenizer.json")
    else:
        for n, token in unknown(model.stop_tokens, folder):
            detail = f"{token!r} is not one token of the tokenizer"
            yield Fault(f"/spec/model/stopTokens/{n}", detail)


def _engine(job: RLHFJob) -> Iterator[Fault]:
    """What vLLM could not do with this model; the actor asks again, knowing its device.

    A device that is not named is judged as a GPU, which can do more than a CPU.
    """
    decode = job.spec.decode
    if decode.engine != "vllm":
        return
    device: Literal["cpu", "cuda"] = "cpu" if decode.device == "cpu" else "cuda"
    try:
        data = (_path(job.spec.model.uri) / "config.json").read_bytes()
        config = msgspec.json.decode(data, type=dict[str, Any])
        check_fit(config, limits_of(job.spec, device=device))
    except OSError:
        return  # other faults say so
    except Refused as refused:
        if refused.field:  # those of the path itself are told already
            yield Fault(refused.field, refused.detail)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        yield Fault("/spec/model/uri", f"its config.json is not understood: {error}")


def _data(job: RLHFJob) -> Iterator[Fault]:
    for name in ("train", "eval"):
        source = getattr(job.spec.dataset, name)
        if isinstance(source, FileSource):
            pointer = f"/spec/dataset/{name}"
            yield from _looked(
                f"{pointer}/uri", _files(source, pointer, fields=_fields(job, source, name))
            )


def _profile(job: RLHFJob) -> Iterator[Fault]:
    pointer, uri = "/spec/decode/profile", job.spec.decode.profile
    if uri:
        yield from _looked(pointer, _one_file(uri, pointer))


def _one_file(uri: str, pointer: str) -> Iterator[Fault]:
    path = _path(uri)
    if not path.is_file():
        yield Fault(pointer, f"there is no file {path}")


def _fields(job: RLHFJob, source: FileSource, name: str) -> list[str]:
    """Fields that rows of this part must have."""
    match job.spec.algorithm if name == "train" else None:
        case SftSpec():
            return [source.prompt_field, source.completion_field]
        case DpoSpec() | RewardModelSpec():
            return [source.prompt_field, source.chosen_field, source.rejected_field]
        case _:
            return [source.prompt_field]


def _files(source: FileSource, pointer: str, *, fields: list[str]) -> Iterator[Fault]:
    path = _path(source.uri)
    if source.type == "hf":
        if not any((path / name).is_file() for name in ("state.json", "dataset_dict.json")):
            detail = f"{path} is no folder written by datasets.save_to_disk"
            yield Fault(f"{pointer}/uri", detail)
        return
    found = matching(path)
    if not found:
        yield Fault(f"{pointer}/uri", f"no file matches {path}")
    elif not any(file.stat().st_size for file in found):
        yield Fault(f"{pointer}/uri", f"{path} is empty")
    elif source.type == "parquet":
        yield from _parquet(found, pointer)
    else:
        yield from _jsonl(found, pointer, fields)


def _parquet(found: list[Path], pointer: str) -> Iterator[Fault]:
    for file in found:
        with file.open("rb") as opened:
            if opened.read(4) != b"PAR1":
                yield Fault(f"{pointer}/uri", f"{file} is not a Parquet file")
                return


def _jsonl(found: list[Path], pointer: str, fields: list[str]) -> Iterator[Fault]:
    row = _first_row(found)
    # TRL's conversation rows carry `messages` instead of prompt and completion.
    if row is None or "messages" in row:
        return
    missing = [field for field in fields if field not in row]
    if missing:
        have = ", ".join(sorted(row)[:20])[:_MAX_WORDS]
        yield Fault(pointer, f"the first row has no field {missing[0]!r}; it has {have}")


def _first_row(found: list[Path]) -> dict[str, Any] | None:
    """None if it is too long to be judged here; raises Refused if there is none."""
    for file in found:
        with file.open("rb") as opened:
            number, line = next(jsonl.filled(opened, most=_MAX_LINE), (0, b""))
        if len(line) == _MAX_LINE:
            return None
        if line:
            return jsonl.row(line, place=f"{file}:{number}")
    raise Refused("the files have no rows")


def _tasks(job: RLHFJob) -> Iterator[Fault]:
    known = gym_tasks()
    for name in ("train", "eval"):
        source = getattr(job.spec.dataset, name)
        if isinstance(source, ReasoningGymSource) and known and source.task not in known:
            near = _near(source.task, known)
            detail = f"reasoning-gym has no dataset {source.task!r}{near}"
            yield Fault(f"/spec/dataset/{name}/task", detail)


def _rewards(job: RLHFJob) -> Iterator[Fault]:
    for number, part in enumerate(job.spec.reward.components if job.spec.reward else ()):
        if isinstance(part, FunctionReward) and (why := unresolved(part.entry_point)):
            yield Fault(f"/spec/reward/components/{number}/entryPoint", why)
    environment = job.spec.environment
    if environment and environment.entry_point and (why := unresolved(environment.entry_point)):
        yield Fault("/spec/environment/entryPoint", why)


def _judges(job: RLHFJob) -> Iterator[Fault]:
    """Folders of reward models."""
    for number, part in enumerate(job.spec.reward.components if job.spec.reward else ()):
        if isinstance(part, ModelReward):
            pointer = f"/spec/reward/components/{number}/uri"
            yield from _looked(pointer, _judge_folder(part.uri, pointer))


def _judge_folder(uri: str, pointer: str) -> Iterator[Fault]:
    folder = _path(uri)
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            yield Fault(pointer, f"{folder} has no {name}: it is no folder of a reward model")
            return


def _warnings(job: RLHFJob, *, paths: bool) -> Iterator[Fault]:
    priced = {price.pool for price in job.spec.prices}
    prefill = ("prefill",) if job.spec.prefill.mode != "colocated" else ()
    for role in (*_ROLES, *prefill):
        part = getattr(job.spec, role)
        if part is not None and part.pool not in priced:
            priced.add(part.pool)  # said once
            detail = f"the pool {part.pool} has no price, so its cost will be unknown"
            yield Fault(f"/spec/{role}/pool", detail)
    if job.spec.dataset.eval is None and "every_steps" in job.spec.evaluation.model_fields_set:
        detail = "nothing is evaluated: there is no dataset.eval"
        yield Fault("/spec/evaluation/everySteps", detail)
    if paths:
        yield from _unanswered(job)
    else:
        yield Fault("/spec/model/uri", "files are not checked here: this gateway does not see them")
    if not gym_tasks():
        yield Fault("/spec/dataset", "tasks are not checked here: reasoning-gym is not installed")


def _unanswered(job: RLHFJob) -> Iterator[Fault]:
    """Rules that compare with a field that the first row lacks; each such row's score is invalid."""
    row = _train_row(job)
    for number, part in enumerate(job.spec.reward.components if job.spec.reward else ()):
        if row is None or not isinstance(part, RuleReward) or part.type not in _COMPARING:
            continue
        if part.answer_field not in row:
            have = ", ".join(sorted(row)[:20])[:_MAX_WORDS]
            detail = (
                f"the first row has no field {part.answer_field!r} to compare with; it has {have}"
            )
            yield Fault(f"/spec/reward/components/{number}/answerField", detail)


def _train_row(job: RLHFJob) -> dict[str, Any] | None:
    """The first row of a `jsonl` source; None where it cannot be judged: the faults say why."""
    source = job.spec.dataset.train
    if not isinstance(source, FileSource) or source.type != "jsonl":
        return None
    try:
        return _first_row(matching(_path(source.uri)))
    except (Refused, OSError, ValueError):
        return None


def _path(uri: str, *, hint: str = "") -> Path:
    """The path that `uri` names; raises Refused, or ValueError for what cannot be a URI."""
    path = local_path(uri)
    if not path.is_absolute():
        detail = "give the whole path, services run in folders of their own"
        raise Refused(f"{uri} is relative: {detail}{hint}")
    return path


def _near(name: str, known: frozenset[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
