"""Tokens per second and memory of one update, against TRL's trainer on the same rollouts.

Answers of very different lengths, groups of eight to a prompt. TRL pads them to the longest of the
batch; ours are laid out as the planner lays them out, with `learner.packing` and without.
"""

from benchmarks.learner_throughput.compare import measure

__all__ = ["measure"]
