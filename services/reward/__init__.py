"""Reward service: takes accepted rollouts from the work queue, answers with scores."""
