"""What one attention head can compute, and what a second one adds."""
