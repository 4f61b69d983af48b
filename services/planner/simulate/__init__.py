"""Policies of rollout side by side on the same answers, in simulated time (pure but for `__main__`).

The planner's own functions decide (`services.planner.core`); only engines and time are made up.
"""
