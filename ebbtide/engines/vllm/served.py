"""A running vLLM: start, load another policy into it, score a text, add and abort samples."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM

from ebbtide.engines.vllm.limits import VllmLimits, prepare
from ebbtide.engines.vllm.meter import Meter, StepLogger
from ebbtide.engines.vllm.requests import Live, params_of, probe_params, prompt_of, prompt_scores
from ebbtide.errors import Permanent

_WORKER = "ebbtide.engines.vllm.worker.PolicyWorker"


class Served:
    """One AsyncLLM with one model in it; belongs to the event loop that it was started in."""

    def __init__(self, llm: AsyncLLM, limits: VllmLimits) -> None:
        self._llm, self._limits = llm, limits
        cache = llm.vllm_config.cache_config
        self.kv_tokens: int = (cache.num_gpu_blocks or 0) * cache.block_size
        self.vocab: int = llm.model_config.get_vocab_size()

    @classmethod
    async def start(
        cls, folder: Path, dtype: str, longest: int, limits: VllmLimits, meter: Meter
    ) -> Served:
        """Start on the Hugging Face folder; blocks the event loop while processes come up."""
        prepare(os.environ)
        args = engine_args(folder, dtype, longest, limits)
        llm = AsyncLLM.from_engine_args(args, stat_loggers=[lambda *_: StepLogger(meter)])
        try:
            served = cls(llm, limits)
            await served._call("end_with", os.getpid())
        except BaseException:
            llm.shutdown()
            raise
        return served

    @property
    def broken(self) -> bool:
        return bool(self._llm.errored)

    async def adopt(self, folder: Path) -> None:
        """Load the folder's weights; no KV of the old ones is left. Only while nothing runs."""
        await self._call("adopt_policy", str(folder))
        if not await self._llm.reset_prefix_cache():
            raise Permanent("vLLM kept KV of the old policy")

    async def score(self, tokens: np.ndarray) -> np.ndarray:
        """Log-probabilities of tokens[1:], float32."""
        prompt, last = tokens_input([int(token) for token in tokens]), None
        async for output in self._llm.generate(prompt, probe_params(), f"probe-{uuid.uuid4().hex}"):
            last = output
        assert last is not None, "a generation has an output"
        return prompt_scores(last)

    async def run(self, live: Live) -> AsyncIterator[RequestOutput]:
        """What vLLM says of the sample; the last output is `finished`."""
        sample = live.sample
        queue = await self._llm.add_request(
            live.name,
            prompt_of(sample, live.policy),
            params_of(sample, self._limits.stream_tokens),
            priority=sample.admission.assign.key.step_issued,
        )
        try:
            if live.cut:  # while it was being added
                await self.abort(live)
            finished = False
            while not finished:
                output = queue.get_nowait() or await queue.get()
                finished = output.finished
                yield output
        finally:
            queue.close()

    async def abort(self, live: Live) -> None:
        """End it; `run` then gives what is left and the end. Unknown or finished: nothing."""
        await self._llm.abort(live.name)

    def stop(self) -> None:
        """End all its processes."""
        self._llm.shutdown()

    async def _call(self, name: str, argument: object) -> None:
        seconds = self._limits.sync_seconds
        await self._llm.collective_rpc(name, timeout=seconds, args=(argument,))


def device_memory(limits: VllmLimits) -> int:
    """Bytes of one GPU; 0 on a CPU, whose KV has a size of its own."""
    return int(current_platform.get_device_total_memory()) if limits.device == "cuda" else 0


def engine_args(folder: Path, dtype: str, longest: int, limits: VllmLimits) -> AsyncEngineArgs:
    """How vLLM is started: token ids alone, log-probabilities of what was drawn from."""
    on_gpu = limits.device == "cuda"
    batched = limits.batched_tokens or max(2048, longest, limits.slots)
    batched = batched if limits.chunked_prefill else max(batched, longest)
    return AsyncEngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        generation_config="vllm",  # the folder's sampling defaults are not the job's
        dtype=dtype,
        max_model_len=longest,
        max_num_seqs=limits.slots,
        max_num_batched_tokens=batched,
        enable_chunked_prefill=limits.chunked_prefill,
        block_size=limits.block_size,
        enable_prefix_caching=True,
        tensor_parallel_size=limits.tensor_parallel,
        distributed_executor_backend=None if on_gpu or limits.tensor_parallel > 1 else "uni",
        gpu_memory_utilization=limits.memory_share,
        kv_cache_memory_bytes=None if on_gpu else limits.kv_bytes,
        kv_cache_dtype=limits.kv_dtype,
        enforce_eager=limits.eager,
        logprobs_mode="processed_logprobs",
        scheduling_policy="priority",
        worker_extension_cls=_WORKER,
        enable_log_requests=False,
    )
