"""What one head can do, and what two add."""
