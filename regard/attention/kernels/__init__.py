"""Kernels: several ways to compute the same attention."""
