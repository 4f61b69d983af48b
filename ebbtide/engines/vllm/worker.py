"""What the platform adds to vLLM's workers, one per device; vLLM mixes the class into its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
)

_LOOK_SECONDS = 2.0


class PolicyWorker:
    """Called by name through vLLM's `collective_rpc`. Names must not meet those of its workers."""

    model_runner: Any
    reload_weights: Any

    def adopt_policy(self, folder: str) -> None:
        """Load the weights of the Hugging Face folder into the running model, in place.

        A head that shares its weights with the embedding is not among what vLLM processes again
        after a load; on a CPU it computes with a packed copy, which would be that of the old
        policy for ever. So it is packed anew here.
        """
        self.reload_weights(weights_path=folder)
        for module in self.model_runner.get_model().modules():
            method: Any = getattr(module, "quant_method", None)
            if isinstance(module, ParallelLMHead) and type(method) is UnquantizedEmbeddingMethod:
                method.process_weights_after_loading(module)

    def end_with(self, actor: int) -> None:
        """Kill this process and the one that feeds it once the process `actor` is gone.

        Whoever is killed without notice leaves children behind, and these hold the device.
        """
        feeder = os.getppid()
        watch = threading.Thread(target=_watch, args=(actor, feeder), daemon=True)
        watch.start()


def _watch(actor: int, feeder: int) -> None:
    while os.path.exists(f"/proc/{actor}"):  # noqa: PTH110 - every two seconds, for ever
        time.sleep(_LOOK_SECONDS)
    if feeder != actor and os.getppid() == feeder:
        os.kill(feeder, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
