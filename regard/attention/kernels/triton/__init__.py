"""Tiles of any score in Triton: `trace` → `expression` → `program`, `emit` → `launch`."""

import os
from importlib.util import find_spec


def available(device: str) -> bool:
    """Return whether Triton runs on a type of device: a GPU, or any with its interpreter."""
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return False
    return find_spec("triton") is not None
