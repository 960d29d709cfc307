"""AdamW by torch's fused kernel, without `torch.optim.Optimizer` around it.

That class loads torch's compiler when it is first used: over 2 seconds of processor time in every
process, for nothing that is needed here. The state lies by parameter name, ready for a checkpoint.
"""

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from regard.errors import RegardError
from regard.layers.embedding import WordEmbedding

TABLES = (nn.Embedding, WordEmbedding)  # their rows do not decay, seen or not
ROWS = ("table", "distance_keys")  # a vector or a score for each position: tables too
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class AdamW:
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019.

    Matrices decay; embeddings of words and positions, norms, biases, other vectors, and numbers
    one a head do not.
    """

    def __init__(self, model: nn.Module, weight_decay: float) -> None:
        tables = {id(module.weight) for module in model.modules() if isinstance(module, TABLES)}
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
        if odd := sorted(here.keys() ^ state.keys()):
            raise RegardError(f"this optimizer is of another model: {odd[0]} stands on one side")
        for name, value in here.items():
            value.copy_(state[name])

    def _kinds(self) -> dict[str, dict[str, Tensor]]:
        return {"mean": self.means, "square": self.squares, "step": self.steps}


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter multiplies vectors, by its shape and by what it is called.

    >>> is_matrix("widen.weight", torch.zeros(8, 4)), is_matrix("score.bias", torch.zeros(2, 32))
    (True, False)
    """
    last = name.rpartition(".")[2]
    vector = last.endswith("bias") or last in ROWS
    return parameter.ndim >= 2 and parameter.shape[-2:].numel() > 1 and not vector
