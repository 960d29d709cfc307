"""Recomputation and compilation of a network's Transformer blocks in training."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention.kernels.compiled import can_compile
from regard.core.errors import RegardError
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock

BLOCKS = (EncoderBlock, DecoderBlock)
KINDS = 64  # of blocks and masks; above this, torch runs without its compiler
Forward = Callable[..., Any]
Shapes = dict[type[nn.Module], list[torch.Size]]  # of the inputs, by the class of the block


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the Transformer blocks of a network."""
    return [module for module in model.modules() if isinstance(module, BLOCKS)]


def recompute(block: nn.Module) -> None:
    """Store only a block's inputs, and recompute its activations in the backward pass.

    Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """
    from torch.utils.checkpoint import checkpoint

    forward = block.forward

    def again(*inputs: Any, **options: Any) -> Any:
        return checkpoint(forward, *inputs, use_reentrant=False, **options)

    _in_training(block, again)


def compile_blocks(blocks: Sequence[nn.Module], device: str, first: Shapes, *, once: bool) -> bool:
    """Compile the forward pass of blocks in training; return whether CUDA graphs are used.

    Batches of the ``first`` shape without packed rows get specialised code (the shape is stored in
    ``first``; clear it to use the next one). A GPU records this code as CUDA graphs if each step
    computes it ``once``: a graph overwrites its gradients, so they cannot be accumulated. All other
    batches share code for all sizes. Equal blocks share both.

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
    """Undo `recompute` and `compile_blocks` for a block."""
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
