"""A text in, one of a few labels out."""
