"""The scorer's shell: takes requests from the queue, scores, publishes, acknowledges."""
