"""Training: one plain loop, checkpoints that survive anything, and what makes a step fast."""
