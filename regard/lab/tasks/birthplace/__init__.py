"""Questions whose answers stood in the texts of pretraining."""
