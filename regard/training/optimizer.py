"""AdamW (torch's fused kernel) and Muon, without the class `torch.optim.Optimizer`.

That class imports torch's compiler, which takes over 2 seconds of processor time in every process
and is not needed here. The state is stored by parameter name, ready for a checkpoint.
"""

from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adamw import adamw

from regard.core.errors import RegardError
from regard.nn.layers.embedding import WordEmbedding
from regard.training.checkpoints import filled, must_fit
from regard.training.sharded import gathered, local, own_rows

TABLES = (nn.Embedding, WordEmbedding)  # no weight decay for their rows
#: Parameters with a vector or a score for each position, distance or head: tables too.
ROWS = ("table", "distance_keys", "distance_queries", "rows", "columns", "shift")
BETAS = (0.9, 0.999)
EPSILON = 1e-8
MOMENTUM = 0.95  # of Muon
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of x, x³, x⁵: Jordan et al.
ITERATIONS = 5
AS_ADAM = 0.2  # root mean square of Adam's usual step; Muon's steps are scaled to it


class AdamW:
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019.

    Weight decay applies to matrices, not to embeddings of words and positions, norms, biases, other
    vectors and scalars per head.
    """

    def __init__(self, model: nn.Module, weight_decay: float) -> None:
        tables = tables_of(model)
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.decays = {
            name: weight_decay
            if is_matrix(name, parameter) and id(parameter) not in tables
            else 0.0
            for name, parameter in self.parameters.items()
        }
        self.means = {n: torch.zeros_like(p) for n, p in self.parameters.items()}
        self.squares = {n: torch.zeros_like(p) for n, p in self.parameters.items()}
        self.steps = {
            n: torch.zeros((), dtype=torch.float32, device=p.device)
            for n, p in self.parameters.items()
        }

    @classmethod
    def suits(cls, model: nn.Module) -> None:
        """Raise an error if this optimizer has no parameters to optimize in the model."""

    def zero(self) -> None:
        """Delete the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update every parameter that has a gradient."""
        for decay in sorted(set(self.decays.values())):
            names, gradients = [], []
            for name, parameter in self.parameters.items():
                if self.decays[name] == decay and parameter.grad is not None:
                    names.append(name)
                    gradients.append(parameter.grad)
            adamw(
                [local(self.parameters[name]) for name in names],
                [local(gradient) for gradient in gradients],
                [local(self.means[name]) for name in names],
                [local(self.squares[name]) for name in names],
                [],
                [self.steps[name] for name in names],
                fused=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=rate,
                weight_decay=decay,
                eps=EPSILON,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """Return the state by name: ``mean/blocks.0.weight`` and so on."""
        return {
            f"{kind}/{name}": value
            for kind, values in self._kinds().items()
            for name, value in values.items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state` returned. Raises: it belongs to another model."""
        here = self.state()
        must_fit(here, state, "this state belongs to another model or optimizer")
        filled(here, state)

    def _kinds(self) -> dict[str, dict[str, Tensor]]:
        return {"mean": self.means, "square": self.squares, "step": self.steps}


class Muon(AdamW):
    """Muon for the matrices of the layers, AdamW for the rest. Jordan et al. 2024.

    m ← β m + (1 − β) g, W ← (1 − η λ) W − 0.2 η √max(rows, columns) orthogonal(β m + (1 − β) g),
    β = 0.95: a step has the same length in rare directions as in frequent ones. The factor scales
    it to the size of AdamW's, so that one rate η and one decay λ work for both (Liu et al. 2025,
    "Muon is scalable for LLM training", equation 4).

    Layers are the modules in a `torch.nn.ModuleList`, except recurrent ones. Embeddings of words
    and positions, the output layer, and parameters with one or three axes use AdamW.

    Raises: the model has no such matrices.
    """

    def __init__(self, model: nn.Module, weight_decay: float) -> None:
        super().__init__(model, weight_decay)
        self.suits(model)
        inside = in_layers(model)
        self.turned = [name for name, p in self.parameters.items() if id(p) in inside]
        for name in self.turned:
            del self.squares[name], self.steps[name]

    @classmethod
    def suits(cls, model: nn.Module) -> None:
        if not in_layers(model):
            raise RegardError(
                "optimizer=muon needs the matrices of a stack of layers, which this model does not "
                "have; use optimizer=adamw"
            )

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update every parameter that has a gradient; gradients of matrices are deleted."""
        by_shape: dict[torch.Size, list[str]] = {}
        for name in self.turned:
            if self.parameters[name].grad is not None:
                by_shape.setdefault(self.parameters[name].shape, []).append(name)
        for shape, names in by_shape.items():
            parameters = [self.parameters[name] for name in names]
            gradients = [local(cast(Tensor, parameter.grad)) for parameter in parameters]
            means = [local(self.means[name]) for name in names]
            torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, means, MOMENTUM)
            scale = rate * AS_ADAM * max(shape) ** 0.5
            turns = orthogonal(torch.stack(list(map(gathered, ahead, parameters)))).unbind()
            moved = [local(parameter) for parameter in parameters]
            torch._foreach_mul_(moved, [1 - rate * self.decays[name] for name in names])
            torch._foreach_sub_(moved, list(map(own_rows, turns, parameters)), alpha=scale)
            for parameter in parameters:
                parameter.grad = None
        super().step(rate)


OPTIMIZERS: dict[str, type[AdamW]] = {"adamw": AdamW, "muon": Muon}  # by the name in the settings


def orthogonal(
    matrices: Float[Tensor, "several rows columns"],
) -> Float[Tensor, "several rows columns"]:
    """Compute roughly U Vᵀ of matrices U S Vᵀ: singular values above ‖S‖ / 500 become 0.7 to 1.2.

    X ← a X + (b X Xᵀ + c (X Xᵀ)²) X, five times from X/‖X‖; bfloat16 is precise enough, and is used
    inside `torch.autocast`. Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural
    networks".

    >>> turned = orthogonal(torch.diag(torch.tensor([5.0, -1.0]))[None])[0]
    >>> [round(x) for x in turned.diag().tolist()]
    [1, -1]
    """
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def in_layers(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that are matrices of stacked layers."""
    modules = list(model.modules())
    lists = [module for module in modules if isinstance(module, nn.ModuleList)]
    cells = [module for module in modules if isinstance(module, nn.RNNBase)]
    others = {id(parameter) for cell in cells for parameter in cell.parameters()}
    return {
        id(parameter)
        for layers in lists
        for name, parameter in layers.named_parameters()
        if parameter.ndim == 2 and is_matrix(name, parameter)
    } - (others | tables_of(model))


def tables_of(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that are embeddings of words or positions."""
    return {id(module.weight) for module in model.modules() if isinstance(module, TABLES)}


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Return whether a parameter is a matrix that multiplies vectors, by its shape and name.

    >>> is_matrix("widen.weight", torch.zeros(8, 4)), is_matrix("score.bias", torch.zeros(2, 32))
    (True, False)
    """
    last = name.rpartition(".")[2]
    vector = last.endswith("bias") or last in ROWS
    return parameter.ndim >= 2 and parameter.shape[-2:].numel() > 1 and not vector
