"""In which numbers a model computes: bf16 where the processor multiplies them in hardware."""

from typing import NamedTuple

import torch

from regard.errors import RegardError


class Precision(NamedTuple):
    """A choice and why it was made. Weights and optimizer stay in fp32 either way."""

    name: str
    reason: str

    def autocast(self) -> torch.autocast:
        """The context in which a forward pass runs."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.name == "bf16")


def choose_precision(asked: str = "auto") -> Precision:
    """Decide how to compute on this processor: `auto`, or what was asked.

    bf16 pays (1.6× over a training step) where the processor has AMX or AVX512-BF16; elsewhere it
    is emulated and slower. Errors: a name that is neither auto, fp32 nor bf16.
    """
    if asked == "fp32":
        return Precision("fp32", "asked for")
    if asked == "bf16":
        return Precision("bf16", "asked for")
    if asked != "auto":
        raise RegardError(f"precision is auto, fp32 or bf16, not {asked!r}")
    if torch.cpu._is_amx_tile_supported():
        return Precision("bf16", "this processor has AMX")
    if torch.cpu._is_avx512_bf16_supported():
        return Precision("bf16", "this processor has AVX512-BF16")
    return Precision("fp32", "this processor has neither AMX nor AVX512-BF16; bf16 would be slower")
