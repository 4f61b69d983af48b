"""The prefill service's shell: answers actors and the planner, computes, exports."""
