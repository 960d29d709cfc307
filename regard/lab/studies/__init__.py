"""Comparisons: arms, budgets, jobs in several processes, and statistics."""
