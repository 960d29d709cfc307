"""Comparisons: arms, budgets, parallel jobs and statistics."""
