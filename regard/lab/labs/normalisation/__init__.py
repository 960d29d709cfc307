"""Why a Transformer uses LayerNorm and not BatchNorm."""
