"""The embedded default engine: a transformers model on PyTorch, continuous batching over rows.

noise       Gumbel noise as a function of (key, position, token id) alone
sampling    logits to tokens and log-probabilities
attention   how one decode step attends with grouped heads
kv          key/value rows behind the transformers cache interface
runner      the model: building, loading, calling, teacher forcing
samples     one sample as the engine holds it
rows        host state of the running batch
prefill     prompts computed once, forked to siblings
decoder     one round: admit, prefill, decode, report
engine      the port: a thread around the decoder
"""
