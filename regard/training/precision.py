"""The choice of device and precision: bf16 if the hardware supports it."""

from typing import NamedTuple

import torch

from regard.core.errors import RegardError


class Precision(NamedTuple):
    """A precision and the reason for it. Weights and optimizer state are always fp32."""

    name: str
    reason: str

    def autocast(self, device: str = "cpu") -> torch.autocast:
        """Return the context for a forward pass."""
        return torch.autocast(device, torch.bfloat16, enabled=self.name == "bf16")


def choose_device(asked: str = "cpu") -> torch.device:
    """Return the requested device: "cpu" or "cuda".

    Raises: "cuda" where torch sees no GPU, with the reason.
    """
    if asked == "cuda" and not torch.cuda.is_available():
        why = "has no CUDA support" if torch.version.cuda is None else "finds no GPU"
        raise RegardError(f"device=cuda: this torch ({torch.__version__}) {why}; use device=cpu")
    return torch.device(asked)


def choose_precision(asked: str = "auto", device: str = "cpu") -> Precision:
    """Choose the precision on this processor or GPU: the requested one, or with `auto` the best.

    bf16 is faster (1.6× for a training step) if the processor has AMX or AVX512-BF16 and oneDNN,
    which torch uses for products, supports it, and on GPUs from Ampere on. Elsewhere it is emulated
    and slower, and an LSTM does not support it. Raises: an unknown name; a missing GPU.
    """
    if asked in ("fp32", "bf16"):
        return Precision(asked, "requested")
    if asked != "auto":
        raise RegardError(f"unknown precision {asked!r}; choose auto, fp32 or bf16")
    if choose_device(device).type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision("bf16", "this GPU supports it")
        return Precision("fp32", "this GPU only emulates bf16")
    if not (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()):
        return Precision(
            "fp32", "this processor has neither AMX nor AVX512-BF16; bf16 would be slower"
        )
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return Precision("fp32", "oneDNN does not use this processor's bf16 (ONEDNN_MAX_CPU_ISA?)")
    has = "AMX" if torch.cpu._is_amx_tile_supported() else "AVX512-BF16"
    return Precision("bf16", f"this processor has {has}")
