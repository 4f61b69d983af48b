"""Scoring in killable processes: `pool.Pool` hands answers to workers, `worker` is their program."""
