"""AdamW by torch's fused kernel, and Muon, without `torch.optim.Optimizer` around them.

That class loads torch's compiler when it is first used: over 2 seconds of processor time in every
process, for nothing that is needed here. The state lies by parameter name, ready for a checkpoint.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adamw import adamw

from regard.errors import RegardError
from regard.layers.embedding import WordEmbedding
from regard.training.checkpoints import must_fit

TABLES = (nn.Embedding, WordEmbedding)  # their rows do not decay, seen or not
ROWS = ("table", "distance_keys")  # a vector or a score for each position: tables too
BETAS = (0.9, 0.999)
EPSILON = 1e-8
MOMENTUM = 0.95  # Muon's
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # of x, x³, x⁵: Jordan et al.'s
ITERATIONS = 5
AS_ADAM = 0.2  # the root mean square of Adam's usual step, which Muon's is given


class AdamW:
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019.

    Matrices decay; embeddings of words and positions, norms, biases, other vectors, and numbers
    one a head do not.
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
        """Errors: this optimizer finds nothing to do in the model."""

    def zero(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every parameter that has a gradient."""
        for decay in sorted(set(self.decays.values())):
            names, gradients = [], []
            for name, parameter in self.parameters.items():
                if self.decays[name] == decay and parameter.grad is not None:
                    names.append(name)
                    gradients.append(parameter.grad)
            adamw(
                [self.parameters[name] for name in names],
                gradients,
                [self.means[name] for name in names],
                [self.squares[name] for name in names],
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
        """All it remembers: ``mean/blocks.0.weight`` and so on."""
        return {
            f"{kind}/{name}": value
            for kind, values in self._kinds().items()
            for name, value in values.items()
        }

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave. Errors: it is of another model."""
        here = self.state()
        must_fit(here, state, "this is of another model or optimizer")
        for name, value in here.items():
            value.copy_(state[name])

    def _kinds(self) -> dict[str, dict[str, Tensor]]:
        return {"mean": self.means, "square": self.squares, "step": self.steps}


class Muon(AdamW):
    """Muon on the matrices of the layers, AdamW on all else. Jordan et al. 2024.

    m ← β m + (1 − β) g, W ← (1 − η λ) W − 0.2 η √max(rows, columns) orthogonal(β m + (1 − β) g),
    β = 0.95: a step is as long in the directions that few examples ask for as in the others. The
    factor gives it the size of AdamW's, so that one rate η and one decay λ serve both (Liu et al.
    2025, "Muon is scalable for LLM training", equation 4).

    Layers are what stands in a `torch.nn.ModuleList`, recurrent ones excepted. Vectors of words and
    positions, what reads the last layer, and parameters of one axis or three are AdamW's.

    Errors: nothing is left.
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
                "optimizer=muon turns the matrices of a stack of layers, which this model does not "
                "have; optimizer=adamw trains it"
            )

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every parameter that has a gradient; gradients of matrices are used up."""
        alike: dict[torch.Size, list[str]] = {}
        for name in self.turned:
            if self.parameters[name].grad is not None:
                alike.setdefault(self.parameters[name].shape, []).append(name)
        for shape, names in alike.items():
            moved: list[Tensor] = [self.parameters[name] for name in names]
            gradients = [cast(Tensor, parameter.grad) for parameter in moved]
            means = [self.means[name] for name in names]
            torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
            ahead = torch.stack(torch._foreach_lerp(gradients, means, MOMENTUM))
            far = rate * AS_ADAM * max(shape) ** 0.5
            turns = orthogonal(ahead).unbind()
            torch._foreach_mul_(moved, [1 - rate * self.decays[name] for name in names])
            torch._foreach_sub_(moved, turns, alpha=far)
            for parameter in moved:
                parameter.grad = None
        super().step(rate)


OPTIMIZERS: dict[str, type[AdamW]] = {"adamw": AdamW, "muon": Muon}  # as settings name them


def orthogonal(
    matrices: Float[Tensor, "several rows columns"],
) -> Float[Tensor, "several rows columns"]:
    """Nearly U Vᵀ of matrices U S Vᵀ: singular values from ‖S‖ / 500 on become 0.7 to 1.2.

    X ← a X + (b X Xᵀ + c (X Xᵀ)²) X, five times from X/‖X‖; bfloat16 is enough for it, and what
    surrounds the call says whether it is used (`torch.autocast`). Jordan et al. 2024, "Muon: an
    optimizer for hidden layers in neural networks".

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
    """Which parameters are matrices of stacked layers, by their ids."""
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
    """Which parameters are vectors of words or positions, by their ids."""
    return {id(module.weight) for module in model.modules() if isinstance(module, TABLES)}


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter multiplies vectors, by its shape and by what it is called.

    >>> is_matrix("widen.weight", torch.zeros(8, 4)), is_matrix("score.bias", torch.zeros(2, 32))
    (True, False)
    """
    last = name.rpartition(".")[2]
    vector = last.endswith("bias") or last in ROWS
    return parameter.ndim >= 2 and parameter.shape[-2:].numel() > 1 and not vector
