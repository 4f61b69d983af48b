"""The learner: sharded ranks that turn frozen batches into policies."""
