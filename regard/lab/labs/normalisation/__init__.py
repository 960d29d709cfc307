"""Why LayerNorm and not BatchNorm in a Transformer."""
