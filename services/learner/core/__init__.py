"""What the learner decides, on values alone: no I/O, no clock, no torch."""
