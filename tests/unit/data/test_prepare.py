"""From a job to prepared rows in the blob store."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.adapters.blobs import open_blobs
from ebbtide.data import chunks, tokenizers
from ebbtide.data.prepare import prepare
from ebbtide.errors import Refused
from ebbtide.ports import Blobs
from ebbtide.spec import EnvironmentSpec, ModelSpec, RLHFJobSpec
from ebbtide.wire import DatasetIndex, PromptRow, Ref, decode, unpack_ints

REWARD = {"components": [{"type": "exact", "name": "right"}]}


@pytest.fixture
def blobs() -> Blobs:
    return open_blobs("memory:///")


@pytest.fixture
def job(folder: Path, tmp_path: Path) -> Any:
    """A job on rows that the test gives; dotted keyword arguments change its fields."""

    def job(*rows: dict[str, Any], sft: bool = False, **changes: Any) -> RLHFJobSpec:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec: dict[str, Any] = {
            "model": {"uri": str(folder)},
            "dataset": {"train": {"type": "jsonl", "uri": str(path)}},
            "algorithm": {"type": "sft"} if sft else {"type": "grpo"},
            "training": {"totalSteps": 1},
            "reward": REWARD,
        }
        for name, value in changes.items():
            part, _, field = name.partition("__")
            spec[part][field] = value
        return RLHFJobSpec.model_validate_json(json.dumps(spec))

    return job


async def prepared(spec: RLHFJobSpec, blobs: Blobs, said: io.StringIO | None = None) -> Ref:
    return (await prepare(spec, blobs=blobs, progress=said or io.StringIO())).train


async def index_of(ref: Ref, blobs: Blobs) -> DatasetIndex:
    return decode(await blobs.fetch(ref), DatasetIndex)


async def rows_of(index: DatasetIndex, blobs: Blobs) -> list[PromptRow]:
    return [row for ref in index.chunks for row in chunks.decode_rows(await blobs.fetch(ref))]


async def test_a_row_keeps_its_other_fields_for_the_scorers(job: Any, blobs: Blobs) -> None:
    spec = job({"prompt": "ab", "answer": "ba", "task": "turn"})
    index = await index_of(await prepared(spec, blobs), blobs)
    [row] = await rows_of(index, blobs)
    assert (row.prompt_id, row.text, row.task, row.source) == (
        "rows.jsonl:1",
        "ab",
        "turn",
        "rows.jsonl",
    )
    assert json.loads(row.reference) == {"answer": "ba", "task": "turn"}
    assert unpack_ints(row.tokens).tolist() == [7, 8]


async def test_chunks_are_full_but_for_the_last(job: Any, blobs: Blobs) -> None:
    n = chunks.CHUNK_ROWS + 3
    rows = [{"prompt": "ab"}, *({"prompt": "a"} for _ in range(n))]
    spec = job(*rows, dataset__maxPromptTokens=1)
    index = await index_of(await prepared(spec, blobs), blobs)
    last = chunks.row_ref(index, n - 1)
    found = chunks.decode_rows(await blobs.fetch(last.chunk))[last.row]
    assert (index.n_rows, len(index.chunks)) == (n, 2)
    assert found.prompt_id == f"rows.jsonl:{n + 1}"


async def test_long_prompts_are_left_out_and_named(job: Any, blobs: Blobs) -> None:
    spec = job({"prompt": "abc"}, {"prompt": "ab"}, dataset__maxPromptTokens=2)
    index = await index_of(await prepared(spec, blobs), blobs)
    assert (index.n_rows, index.too_long) == (1, ("rows.jsonl:1",))


async def test_prompts_with_unknown_tokens_are_counted_and_told(job: Any, blobs: Blobs) -> None:
    said = io.StringIO()
    spec = job({"prompt": "17 + 25?"}, {"prompt": "ab"}, {"prompt": "why?"})
    index = await index_of(await prepared(spec, blobs, said), blobs)
    words = "2 of 3 prompts hold tokens that the model does not know (<unk>)"
    assert (index.unknown, index.warning) == (2, words)
    assert f"train: warning: {words}" in said.getvalue()


class Few:
    """A tokenizer's special tokens."""

    eos_token_id, pad_token_id, bos_token_id = 1, 0, None

    def __init__(self, unk: int | None) -> None:
        self.unk_token_id = unk

    def __len__(self) -> int:
        return 81


@pytest.mark.parametrize(("unk", "found"), [(2, 2), (1, None), (None, None)])
def test_a_token_that_means_something_else_too_is_not_called_unknown(
    folder: Path, unk: int | None, found: int | None
) -> None:
    words = tokenizers.vocabulary(ModelSpec(uri=str(folder)), Few(unk))
    assert words.unknown == found


async def test_supervised_rows_carry_their_completion(job: Any, blobs: Blobs) -> None:
    rows = [{"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "bbb"}]
    spec = job(*rows, sft=True, training__maxResponseTokens=2)
    index = await index_of(await prepared(spec, blobs), blobs)
    [row] = await rows_of(index, blobs)
    assert unpack_ints(row.completion).tolist() == [8, 1]
    assert index.too_long == ("rows.jsonl:2",)


async def test_pairs_carry_both_answers_and_fit_with_both(job: Any, blobs: Blobs) -> None:
    rows = [
        {"prompt": "a", "chosen": "b", "rejected": "ab"},
        {"prompt": "a", "chosen": "b", "rejected": "bbbb"},
    ]
    spec = job(*rows, algorithm__type="dpo", training__maxResponseTokens=3)
    index = await index_of(await prepared(spec, blobs), blobs)
    [row] = await rows_of(index, blobs)
    answers = [unpack_ints(row.completion).tolist(), unpack_ints(row.rejected).tolist()]
    assert (answers, row.reference) == ([[8, 1], [7, 8, 1]], b"{}")
    assert index.too_long == ("rows.jsonl:2",)


async def test_answers_end_at_eos_and_at_the_stop_tokens_of_the_job(job: Any, blobs: Blobs) -> None:
    spec = job({"prompt": "a"}, model__stopTokens=["</answer>"])
    index = await index_of(await prepared(spec, blobs), blobs)
    assert (index.stop_ids, index.pad_id, index.vocab_size) == ((1, 6), 0, 81)


async def test_the_same_content_is_prepared_once(job: Any, blobs: Blobs) -> None:
    first = await prepared(job({"prompt": "a"}), blobs)
    said = io.StringIO()
    assert await prepared(job({"prompt": "a"}), blobs, said) == first
    assert said.getvalue() == "train: found prepared\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset__maxPromptTokens": 7},
        {"model__chatTemplate": "{{ messages }}"},
        {"model__stopTokens": ["a"]},
    ],
)
async def test_whatever_shapes_the_rows_is_part_of_their_name(
    job: Any, blobs: Blobs, changes: dict[str, Any]
) -> None:
    plain = await prepared(job({"prompt": "a"}), blobs)
    assert await prepared(job({"prompt": "a"}, **changes), blobs) != plain


async def test_an_unfinished_preparation_is_done_again(job: Any, blobs: Blobs) -> None:
    ref = await prepared(job({"prompt": "a"}), blobs)
    await blobs.delete(ref.path)
    assert await prepared(job({"prompt": "a"}), blobs) == ref


@pytest.mark.parametrize(
    ("rows", "changes", "expected"),
    [
        ([], {}, ("/spec/dataset/train", "the dataset is empty")),
        ([{"prompt": "abc"}], {"dataset__maxPromptTokens": 1}, ("/spec/dataset/maxPromptTokens", "all 1 rows are too long")),
        ([{"prompt": "a"}, {"text": "a"}], {}, ("/spec/dataset/train", "rows.jsonl:2 lacks the field 'prompt'")),
        ([{"prompt": "a"}], {"model__stopTokens": ["a", "zz"]}, ("/spec/model/stopTokens/1", "'zz' is not one token")),
        ([{"prompt": "a"}], {"model__uri": "/nowhere"}, ("/spec/model/uri", "no folder /nowhere")),
        ([{"prompt": "a"}], {"model__tokenizerUri": "/tmp"}, ("/spec/model/tokenizerUri", "no tokenizer in /tmp")),
        ([{"prompt": [{"role": "user", "content": "a"}]}], {}, ("/spec/model/chatTemplate", "template")),
    ],
)  # fmt: skip
async def test_bad_input_is_refused_where_it_stands_in_the_job(
    job: Any, blobs: Blobs, rows: list[Any], changes: dict[str, Any], expected: tuple[str, str]
) -> None:
    with pytest.raises(Refused, match=expected[1]) as caught:
        await prepared(job(*rows, **changes), blobs)
    assert caught.value.field == expected[0]


async def test_a_tokenizer_larger_than_the_model_is_refused(
    job: Any, blobs: Blobs, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 8}')
    spec = job({"prompt": "az"}, model__uri=str(tmp_path), model__tokenizerUri=str(folder))
    with pytest.raises(Refused, match="beyond the model's vocabulary of 8"):
        await prepared(spec, blobs)


async def test_a_malformed_tokenizer_is_refused(job: Any, blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Refused, match="cannot read the tokenizer"):
        await prepared(job({"prompt": "a"}, model__uri=str(tmp_path)), blobs)


async def test_rows_of_a_job_with_an_environment_have_the_frame_of_its_replies(
    job: Any, blobs: Blobs
) -> None:
    row = {"prompt": [{"role": "user", "content": "ab"}]}
    template = "{% for m in messages %}{{ m.role }};{{ m.content }}<eos>{% endfor %}a:"
    plain = job(row, model__chatTemplate=template)
    spec = plain.model_copy(update={"environment": EnvironmentSpec(name="calculator")})
    index = await index_of(await prepared(spec, blobs), blobs)
    [found] = await rows_of(index, blobs)
    assert tokenizers.load(spec.model).decode(unpack_ints(found.opens).tolist()) == "<eos>user;"
    assert tokenizers.load(spec.model).decode(unpack_ints(found.closes).tolist()) == "<eos>a:"
    other = await index_of(await prepared(plain, blobs), blobs)
    assert other.digest != index.digest
    assert (await rows_of(other, blobs))[0].opens == b""
