"""A text in, another text out."""
