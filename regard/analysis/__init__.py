"""Looking at a model: what its attention did, and what it costs."""
