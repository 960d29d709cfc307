"""Where a model is trained, and in which numbers: bf16 where the hardware multiplies them."""

from typing import NamedTuple

import torch

from regard.errors import RegardError


class Precision(NamedTuple):
    """A choice and why it was made. Weights and optimizer stay in fp32 either way."""

    name: str
    reason: str

    def autocast(self, device: str = "cpu") -> torch.autocast:
        """The context in which a forward pass runs."""
        return torch.autocast(device, torch.bfloat16, enabled=self.name == "bf16")


def choose_device(asked: str = "cpu") -> torch.device:
    """What was asked for: the processor ("cpu") or a GPU ("cuda").

    Errors: "cuda" where torch sees no GPU, with the reason.
    """
    if asked == "cuda" and not torch.cuda.is_available():
        why = "has no CUDA in it" if torch.version.cuda is None else "finds no GPU here"
        raise RegardError(
            f"device=cuda: this torch ({torch.__version__}) {why}; without it the processor trains"
        )
    return torch.device(asked)


def choose_precision(asked: str = "auto", device: str = "cpu") -> Precision:
    """Decide how to compute on this processor or GPU: `auto`, or what was asked.

    bf16 pays (1.6× over a training step) where the processor has AMX or AVX512-BF16 and oneDNN, by
    which torch multiplies, uses it, and on GPUs from Ampere on; elsewhere it is emulated and
    slower, and an LSTM has none. Errors: a name that is neither auto, fp32 nor bf16; a GPU that is
    not there.
    """
    if asked == "fp32":
        return Precision("fp32", "asked for")
    if asked == "bf16":
        return Precision("bf16", "asked for")
    if asked != "auto":
        raise RegardError(f"precision is auto, fp32 or bf16, not {asked!r}")
    if choose_device(device).type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision("bf16", "this GPU multiplies it")
        return Precision("fp32", "this GPU only emulates bf16")
    if not (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()):
        return Precision(
            "fp32", "this processor has neither AMX nor AVX512-BF16; bf16 would be slower"
        )
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return Precision("fp32", "oneDNN does not use this processor's bf16 (ONEDNN_MAX_CPU_ISA?)")
    has = "AMX" if torch.cpu._is_amx_tile_supported() else "AVX512-BF16"
    return Precision("bf16", f"this processor has {has}")
