"""Scorers: what one component says of one answer. No I/O and no clock; programs run in `ebbtide.sandbox`.

Who uses it: the reward service's worker processes, and programs that replay a run in one
process. `scorer(component)` builds the function for a component of the job's spec.
"""
