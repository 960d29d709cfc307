"""The lab exploration: the functions that one attention head and two heads can compute."""
