"""How a step is laid out: predicted times, who decodes what, how many actors, where, and moves.

Everything here is pure and cheap; the running planner and the simulator call the same functions.
"""
