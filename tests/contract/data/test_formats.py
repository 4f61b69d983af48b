"""The file formats and generators that libraries read for us."""

from __future__ import annotations

from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from ebbtide.data import sources
from ebbtide.errors import Refused
from ebbtide.spec import FileSource, ReasoningGymSource

ROWS = [{"prompt": "x", "answer": 1}, {"prompt": "y", "answer": 2}]
MESSAGES = [{"role": "user", "content": "x"}]


def fields(source: FileSource | ReasoningGymSource) -> list[dict[str, object]]:
    return [dict(row.fields) for row in sources.read(source)]


def test_parquet_rows_are_read_in_order(tmp_path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert fields(FileSource(type="parquet", uri=f"{tmp_path}/a.parquet")) == ROWS


def test_parquet_keeps_conversations(tmp_path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist([{"prompt": MESSAGES}]), tmp_path / "a.parquet")
    assert fields(FileSource(type="parquet", uri=f"{tmp_path}/a.parquet")) == [{"prompt": MESSAGES}]


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("not at all")
    with pytest.raises(Refused, match=r"a\.parquet is not a Parquet file"):
        fields(FileSource(type="parquet", uri=f"{tmp_path}/a.parquet"))


def test_a_saved_dataset_is_read(tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    assert fields(FileSource(type="hf", uri=f"{tmp_path}/saved")) == ROWS


def test_a_split_of_a_saved_dataset_dict_is_read(tmp_path: Path) -> None:
    both = {"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS[:1])}
    datasets.DatasetDict(both).save_to_disk(tmp_path / "saved")
    assert fields(FileSource(type="hf", uri=f"{tmp_path}/saved", split="test")) == ROWS[:1]
    with pytest.raises(Refused, match="it has test, train"):
        fields(FileSource(type="hf", uri=f"{tmp_path}/saved", split="dev"))


def test_a_folder_that_is_no_saved_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme").write_text("x")
    with pytest.raises(Refused, match=r"no folder of datasets\.save_to_disk"):
        fields(FileSource(type="hf", uri=str(tmp_path)))


def gym(task: str, **config: int) -> ReasoningGymSource:
    return ReasoningGymSource(type="reasoning_gym", task=task, size=2, seed=3, config=dict(config))


def test_a_generator_gives_prompts_with_all_that_its_scorer_needs() -> None:
    first, second = fields(gym("word_sequence_reversal", min_words=2, max_words=2))
    assert first["prompt"] == first["question"] != second["question"]
    assert ", ".join(reversed(str(first["answer"]).split(", "))) in str(first["question"])


def test_a_generator_gives_messages_on_request() -> None:
    plain = gym("spell_backward")
    chat = plain.model_copy(update={"conversational": True, "template": "Q: {question}"})
    [row, _] = sources.read(chat)
    text = f"Q: {row.fields['question']}"
    assert row.fields["prompt"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (gym("no_such_task"), "no_such_task"),
        (gym("spell_backward", minimal=1), "minimal"),
        (gym("word_sequence_reversal", min_words=0), "min_words must be positive"),
        (gym("rearc"), "do not survive JSON"),
    ],
)
def test_a_generator_that_cannot_be_used_is_refused(
    source: ReasoningGymSource, message: str
) -> None:
    with pytest.raises(Refused, match=message):
        fields(source)
