"""What regard gives to and takes from other libraries."""
