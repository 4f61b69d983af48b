"""The planner's shell: hears, asks the core, performs its effects in order."""
