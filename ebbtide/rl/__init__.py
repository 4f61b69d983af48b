"""What the planner and the learner must agree on: advantages and the layout of a batch."""
