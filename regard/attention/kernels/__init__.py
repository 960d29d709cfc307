"""One meaning, several ways to compute it."""
