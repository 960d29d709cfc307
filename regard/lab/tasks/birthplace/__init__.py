"""Questions whose answers are in the pretraining texts."""
