"""Training: a plain loop, crash-safe checkpoints, optimizers and parallel processes."""
