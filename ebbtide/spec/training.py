"""What to learn from, and how much: model, dataset, training, evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ebbtide.models import Model
from ebbtide.spec.base import UID_PATTERN, Uri


class ModelSpec(Model):
    """The policy to train."""

    uri: Uri = Field(description="Folder in Hugging Face format (config, tokenizer, safetensors).")
    tokenizer_uri: Uri | None = Field(
        None, description="Folder of the tokenizer; unset: the model's."
    )
    chat_template: str | None = Field(
        None, max_length=65536, description="Jinja template; unset: the tokenizer's own."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Data type of published weights and of the engines."
    )
    stop_tokens: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        (), max_length=16, description="Tokens that end an answer, beside the tokenizer's EOS."
    )


class FileSource(Model):
    """Rows from files in one of TRL's prompt formats."""

    type: Literal["jsonl", "parquet", "hf"] = Field(
        description="jsonl, parquet, or a folder written by datasets.save_to_disk (hf)."
    )
    uri: Uri = Field(description="File, glob pattern or folder.")
    split: str | None = Field(None, max_length=64, description="Split of an hf dataset dict.")
    prompt_field: str = Field("prompt", max_length=64, description="Text or list of messages.")
    completion_field: str = Field(
        "completion", max_length=64, description="Answer to imitate (sft only)."
    )
    chosen_field: str = Field(
        "chosen", max_length=64, description="The better answer (dpo, reward-model)."
    )
    rejected_field: str = Field(
        "rejected", max_length=64, description="The worse answer (dpo, reward-model)."
    )
    task: str = Field("default", max_length=64, description="Task tag of rows that carry none.")


class ReasoningGymSource(Model):
    """Procedural prompts with their own scorer, from the reasoning-gym package."""

    type: Literal["reasoning_gym"] = Field(description="Generate with reasoning-gym.")
    task: str = Field(max_length=64, description="Dataset name, such as word_sequence_reversal.")
    size: int = Field(ge=1, le=10_000_000, description="Number of prompts.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the generator.")
    config: dict[str, int | float | str | bool] = Field(
        default_factory=dict, max_length=64, description="Options of the reasoning-gym dataset."
    )
    template: str = Field(
        "{question}",
        max_length=4096,
        description="Prompt text; {question} is replaced by the task's question.",
    )
    conversational: bool = Field(
        False, description="The prompt is a user's message for the chat template, not plain text."
    )


Source = Annotated[FileSource | ReasoningGymSource, Field(discriminator="type")]


class DatasetSpec(Model):
    """What to train and to evaluate on."""

    train: Source = Field(description="Prompts to train on.")
    eval: Source | None = Field(None, description="Held-out prompts; unset: no evaluation.")
    shuffle: bool = Field(
        True, description="Deterministic order by (seed, epoch); off: file order."
    )
    max_prompt_tokens: int = Field(
        1024, ge=1, le=1_000_000, description="Tokens; longer prompts are left out and reported."
    )


class ScheduleSpec(Model):
    """Learning rate over updates."""

    type: Literal["constant", "linear", "cosine"] = Field("constant", description="Shape.")
    warmup_updates: int = Field(0, ge=0, le=1_000_000, description="Updates of linear warm-up.")
    final_fraction: float = Field(
        0.0, ge=0, le=1, description="Last learning rate as a share of the first (not constant)."
    )


class LoraSpec(Model):
    """Low-rank adaptation (LoRA, arXiv 2106.09685): small matrices learn, the model stays."""

    rank: int = Field(16, ge=1, le=1024, description="Inner size of the adapters.")
    alpha: float = Field(
        32.0, gt=0, le=1e6, description="What they add is multiplied by alpha / rank."
    )
    targets: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = Field(
        (),
        max_length=64,
        description="Last names of the linear layers that are adapted, such as q_proj; none: all of"
        " the repeated layers.",
    )


class TrainingSpec(Model):
    """Sizes of a step and the optimiser."""

    total_steps: int = Field(
        ge=1, le=10_000_000, description="Steps (of jobs on given rows: of several updates)."
    )
    prompts_per_step: int = Field(
        32, ge=1, le=65536, description="Groups per step (not for jobs on given rows)."
    )
    max_response_tokens: int = Field(
        512, ge=1, le=1_000_000, description="Tokens; a longer answer is cut with finish=length."
    )
    temperature: float = Field(1.0, gt=0, le=10, description="Sampling temperature in training.")
    learning_rate: float = Field(1e-6, ge=0, le=1, description="AdamW learning rate.")
    schedule: ScheduleSpec = Field(
        default_factory=lambda: ScheduleSpec(), description="Learning-rate schedule."
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW beta 1.")
    beta2: float = Field(0.999, ge=0, lt=1, description="AdamW beta 2.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="AdamW weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, le=1e6, description="Clip the gradient's norm at this.")
    micro_batch_tokens: int = Field(
        8192, ge=1, le=100_000_000, description="Tokens per micro-batch and rank, padding included."
    )
    lora: LoraSpec | None = Field(
        None, description="Learn adapters instead of all weights; null: all weights."
    )
    updates_per_batch: int = Field(1, ge=1, le=64, description="Passes over the same batch.")
    mini_batches: int = Field(
        1,
        ge=1,
        le=64,
        description="Updates in one pass, each from its share of the answers (not for jobs on given"
        " rows).",
    )


class RecordedSpec(Model):
    """Batches that another job froze, learnt from again: no answer is sampled or scored.

    Answers, their advantages and the denominators are that job's; all else is this job's.
    """

    uid: str = Field(
        min_length=1, max_length=64, pattern=UID_PATTERN, description="metadata.uid of that job."
    )
    attempt: int = Field(1, ge=1, le=1_000_000, description="Whose batches.")
    first_step: int = Field(
        0, ge=0, le=10_000_000, description="The recorded step that this job's step 0 learns from."
    )


class EvaluationSpec(Model):
    """Held-out evaluation, decoded along with training samples."""

    every_steps: int = Field(10, ge=1, le=1_000_000, description="Steps between evaluations.")
    prompts: int = Field(256, ge=1, le=65536, description="Prompts from the eval source's start.")
    samples_per_prompt: int = Field(1, ge=1, le=256, description="Samples; k of pass@k.")
    temperature: float = Field(1.0, ge=0, le=10, description="0 is greedy.")
    pass_threshold: float = Field(1.0, description="A sample passes at this reward or above.")
