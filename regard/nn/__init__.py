"""Layers and models for PyTorch networks."""
