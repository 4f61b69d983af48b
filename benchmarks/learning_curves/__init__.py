"""Reward over steps for every algorithm, three seeds each: learner and engine in one process.

The task is the demonstration's kind, reversing a list, and so is the way: a short supervised start
on sloppy answers, then reinforcement. The figure is the smallest gain of reward over algorithms,
the mean of the last steps less that of the first, averaged over seeds. Pictures go to docs/curves.
"""

from benchmarks.learning_curves.runs import measure

__all__ = ["measure"]
