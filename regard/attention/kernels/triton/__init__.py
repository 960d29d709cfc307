"""Tiles of any score in Triton: `trace` → `expression` → `program`, `emit` → `launch`."""

from importlib.util import find_spec

#: Whether calls on a CPU take these tiles too, for tests. Triton must then have been imported with
#: TRITON_INTERPRET=1, which makes it interpret kernels: slowly, and wrongly for bfloat16.
INTERPRETED = False


def available(device: str) -> bool:
    """Return whether calls on a type of device may take these tiles."""
    return (device == "cuda" or INTERPRETED) and find_spec("triton") is not None
