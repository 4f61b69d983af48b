"""The prefill service: each prompt's keys and values once per policy, for all actors of a job."""
