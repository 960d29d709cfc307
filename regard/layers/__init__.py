"""Layers that models are put together from: embeddings, blocks, pools, recurrence."""
