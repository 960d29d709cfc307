"""How the Transformer blocks of a network are computed in training: recomputed, or compiled."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention.kernels.compiled import can_compile
from regard.core.errors import RegardError
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock

BLOCKS = (EncoderBlock, DecoderBlock)
KINDS = 64  # of blocks and masks; torch goes on with more, but without its compiler
Forward = Callable[..., Any]
Shapes = dict[type[nn.Module], list[torch.Size]]  # of the inputs, by the class of the block


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the Transformer blocks of a network."""
    return [module for module in model.modules() if isinstance(module, BLOCKS)]


def recompute(block: nn.Module) -> None:
    """Let a block store only its inputs, and compute its activations again in the backward pass.

    Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """
    from torch.utils.checkpoint import checkpoint

    forward = block.forward

    def again(*inputs: Any, **options: Any) -> Any:
        return checkpoint(forward, *inputs, use_reentrant=False, **options)

    _in_training(block, again)


def compile_blocks(blocks: Sequence[nn.Module], device: str, first: Shapes, *, once: bool) -> bool:
    """Compile what blocks compute in training by `torch.compile`; return whether as CUDA graphs.

    Batches of the ``first`` shape without packed rows have code of their own (the shape is kept
    there; clear it to take the next one). A GPU records this code as CUDA graphs if each step
    computes it ``once``: a graph writes its gradients to the same places again, so that none may be
    summed up there. All other batches share code for all sizes. Blocks that are alike share both.

    Raises: no blocks; no compiler.
    """
    if not blocks:
        raise RegardError(
            "compile=true compiles Transformer blocks, and this network has none; leave it out"
        )
    if not can_compile(device):
        needed = "Triton" if device == "cuda" else "a C++ compiler (g++ or clang++)"
        raise RegardError(f"compile=true needs {needed}, which is not installed; leave it out")
    graphs = once and device == "cuda"
    for block in blocks:
        _compile(block, first, graphs)
    return graphs


def restore(block: nn.Module) -> None:
    """Undo what was done to a block."""
    vars(block).pop("forward", None)


def _compile(block: nn.Module, first: Shapes, graphs: bool) -> None:
    forward, compiled = block.forward, cast(Any, torch.compile)
    more = {"options": {"triton.cudagraphs": True}} if graphs else {}
    for_first = compiled(forward, dynamic=False, recompile_limit=KINDS, **more)
    for_all = compiled(forward, dynamic=True, recompile_limit=KINDS)

    def run(*inputs: Any, packing: Any = None, **options: Any) -> Any:
        shapes = [x.shape for x in inputs if isinstance(x, Tensor)]
        fixed = packing is None and shapes == first.setdefault(type(block), shapes)
        return (for_first if fixed else for_all)(*inputs, packing=packing, **options)

    _in_training(block, run)


def _in_training(block: nn.Module, run: Forward) -> None:
    """Let a block call ``run`` in training, and its own method without gradients."""
    forward = block.forward

    def chosen(*inputs: Any, **options: Any) -> Any:
        training = block.training and torch.is_grad_enabled()
        return (run if training else forward)(*inputs, **options)

    vars(block)["forward"] = chosen
