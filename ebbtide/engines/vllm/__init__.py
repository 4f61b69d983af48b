"""vLLM behind the engine port: `ebbtide.engines.vllm.engine.VllmEngine`.

Only `engine`, `requests`, `worker` and `metrics` import vllm; it has an environment of its own
(docs/engines.md), so nothing else may.
"""
