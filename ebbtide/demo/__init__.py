"""The demonstration: its model, tokenizer and data, and the run that `make demo` shows."""
