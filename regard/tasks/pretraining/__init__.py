"""What texts without labels teach: the next token, the hidden ones, the spans left out."""
