"""Tasks that map a text to another text."""
