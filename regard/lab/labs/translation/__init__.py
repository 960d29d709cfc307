"""The translation lab: what attention adds to a translator and where it looks."""
