"""Comparisons: arms, budgets, jobs over processes, and the statistics that judge them."""
