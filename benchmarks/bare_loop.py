"""The same work as a finished job, in one process and without a platform.

It reads a job's batches and rollouts from the blob folder and does them again: decodes the same
tokens of the same prompts with the torch engine's decoder, scores the same answers with the same
scorers, and makes the same updates on the same micro-batches with plain torch. No message, no
ledger, no publication, no checkpoint. `python -m benchmarks.bare_loop --help` runs it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ebbtide import ledger, parts, paths
from ebbtide.engines.samples import Sample, open_sample
from ebbtide.engines.torch.decoder import Decoder, Limits, make_storage
from ebbtide.engines.torch.runner import Ints, Runner, build_model
from ebbtide.ports import Admission
from ebbtide.rewards.outcomes import Answer
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import (
    Accepted,
    Assign,
    BatchManifest,
    Frozen,
    PolicyRef,
    PromptRef,
    Ref,
    Rollout,
    Row,
    Sampling,
    decode,
    unpack_ints,
)
from services.learner.core.samples import MicroBatch, Weighting, sample_of
from services.learner.core.sharing import Rows
from services.learner.engine.policy import tree_mask

NOWHERE = PromptRef(Ref("", "", 0), 0)


@dataclass(frozen=True)
class Work:
    """One step of the job: its rollouts, in key order, and its batch."""

    step: int
    rollouts: Sequence[Rollout]
    batch: BatchManifest


def read_work(blobs: Path, job_uid: str) -> list[Work]:
    """Every frozen step of the job, in order."""
    files = sorted((blobs / paths.segments(job_uid)).glob("*.seg"))
    records = [r for file in files for r in ledger.decode_segment(file.read_bytes()).records]
    frozen = {r.step: r.manifest for r in records if isinstance(r, Frozen)}
    accepted = [r for r in records if isinstance(r, Accepted)]
    return [
        Work(
            step,
            [
                decode(parts.of((blobs / parts.place(r.ref.path)[0]).read_bytes(), r.ref), Rollout)
                for r in sorted(accepted, key=lambda r: r.key)
                if r.key.step_issued == step
            ],
            decode((blobs / manifest.path).read_bytes(), BatchManifest),
        )
        for step, manifest in sorted(frozen.items())
    ]


class Replay(Decoder):
    """A decoder that computes every step as usual and then takes the recorded token."""

    recorded: dict[Any, NDArray[np.int32]]

    def _step(self) -> tuple[Ints, NDArray[np.float32]]:
        tokens, logprobs = super()._step()
        counts = self.rows.at["count"][: self.rows.n].tolist()
        pairs = zip(self.rows.samples, counts, strict=True)
        told = [self.recorded[sample.dispatch][count] for sample, count in pairs]
        return np.array(told, dtype=tokens.dtype), logprobs


class BareLoop:
    """Generate, score, update; everything in this process."""

    def __init__(self, spec: RLHFJobSpec, *, slots: int) -> None:
        folder = Path(spec.model.uri)
        width = spec.dataset.max_prompt_tokens + spec.training.max_response_tokens
        self._limits = Limits(slots=slots, width=width)
        self._storage = make_storage(self._limits)
        self._served = build_model(folder, device="cpu", dtype=torch.float32)
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.train(False)
        self._served.load_state_dict(model.state_dict())
        self._runner = Runner(self._served)
        self._runner.trace()
        self._adamw = torch.optim.AdamW(
            self._model.parameters(),
            lr=spec.training.learning_rate,
            betas=(spec.training.beta1, spec.training.beta2),
            weight_decay=spec.training.weight_decay,
        )
        assert spec.reward is not None
        self._scorers = tuple(scorer(component) for component in spec.reward.components)
        self._training = spec.training
        self._rows = Rows(hidden=model.config.hidden_size, share=spec.learner.share_prompts)

    def step(self, work: Work) -> None:
        """One whole step of the job."""
        self._generate(work.rollouts)
        for rollout in work.rollouts:
            text = self._tokenizer.decode(unpack_ints(rollout.tokens), skip_special_tokens=True)
            judge(self._scorers, Answer("", text, b'{"answer": ""}', ""))
        self._update(work)

    @torch.inference_mode()
    def _generate(self, rollouts: Sequence[Rollout]) -> int:
        """Decode them all; returns the number of tokens."""
        self._served.load_state_dict(self._model.state_dict())
        policy = PolicyRef(0, 0, "bare")
        decoder = Replay(
            self._runner,
            self._storage,
            policy=policy,
            limits=self._limits,
            now=time.perf_counter,
        )
        decoder.recorded = {r.dispatch: unpack_ints(r.tokens) for r in rollouts}
        for rollout in rollouts:
            decoder.submit(_sample(rollout, policy, self._limits.width))
        while not decoder.idle:
            decoder.round()
        return decoder.decoded

    def _update(self, work: Work) -> None:
        by_key = {rollout.key: rollout for rollout in work.rollouts}
        whole = work.batch
        weighting = Weighting("token-mean", whole.tokens, whole.sequences, limit=1)
        for rows in micro_batches(whole):
            samples = [sample_of(r, by_key[r.key], whole.base, weighting) for r in rows]
            loss = _loss(self._model, self._rows.of(samples), self._training.temperature)
            loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._training.max_grad_norm)
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)


def micro_batches(batch: BatchManifest) -> Iterator[list[Row]]:
    """The rows of each forward pass, as the learner's ranks had them."""
    for rank in range(batch.ranks):
        for number in range(batch.microbatches):
            rows = [r for r in batch.rows if (r.rank, r.microbatch) == (rank, number)]
            if rows:
                yield rows


def _sample(rollout: Rollout, policy: PolicyRef, width: int) -> Sample:
    assign = Assign(
        key=rollout.key,
        dispatch=rollout.dispatch,
        policy=policy,
        prompt_id=rollout.prompt_id,
        prompt_ref=NOWHERE,
        sampling=Sampling(temperature=1.0, stop_ids=()),
        noise_key=b"",
        max_new_tokens=rollout.n_tokens,
    )
    admission = Admission(assign, rollout.prompt_tokens)
    return open_sample(admission, vocab=1 << 31, width=width, now=0.0)


def _loss(model: Any, batch: MicroBatch, temperature: float) -> torch.Tensor:
    """GRPO with one update a batch: the ratio is 1, its gradient is the policy gradient's."""
    read: dict[str, Any] = {}
    if batch.branch is not None and batch.trunk is not None:
        assert batch.positions is not None, "what has branches has positions"
        mask = tree_mask(torch.from_numpy(batch.branch), torch.from_numpy(batch.trunk))
        read = {"attention_mask": mask, "position_ids": torch.from_numpy(batch.positions)}
    hidden = model.model(input_ids=torch.from_numpy(batch.tokens), use_cache=False, **read)[0]
    picked = hidden.reshape(-1, hidden.shape[-1])[torch.from_numpy(batch.where)]
    logprobs = torch.log_softmax(model.lm_head(picked).float() / temperature, dim=-1)
    chosen = logprobs.gather(1, torch.from_numpy(batch.targets)[:, None])[:, 0]
    ratio = torch.exp(chosen - chosen.detach())
    advantages, weights = torch.from_numpy(batch.advantages), torch.from_numpy(batch.weights)
    return -(ratio * advantages * weights).sum()


def main() -> None:
    """Replay a job and print one JSON line: seconds of each step, CPU seconds, samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blobs", type=Path, required=True)
    parser.add_argument("--job-uid", required=True)
    parser.add_argument("--spec", type=Path, required=True, help="the job's spec as JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--warmup", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    loop = BareLoop(RLHFJobSpec.model_validate_json(args.spec.read_text()), slots=args.slots)
    seconds, cpu, samples = [], 0.0, 0
    for number, work in enumerate(read_work(args.blobs, args.job_uid)):
        began, burnt = time.perf_counter(), time.process_time()
        loop.step(work)
        if number >= args.warmup:
            seconds.append(time.perf_counter() - began)
            cpu += time.process_time() - burnt
            samples += len(work.rollouts)
    result = {"seconds": seconds, "cpu_seconds": cpu, "samples": samples}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
