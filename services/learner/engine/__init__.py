"""The computing half of a rank: sharded model, loss, optimiser, checkpoints. Needs torch."""
