import subprocess
import sys

import pytest
import torch

from regard.errors import RegardError
from regard.layers.embedding import WordEmbedding
from regard.models.gpt import GPT
from regard.models.settings import GPTSettings
from regard.training.optimizer import AdamW

from .toys import Bag


def gradients(model: torch.nn.Module, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw)


def test_steps_as_torch_does_bit_by_bit() -> None:
    ours, theirs = Bag(), Bag()
    matrices = [theirs.to_logits.weight]
    others = [p for p in theirs.parameters() if p is not theirs.to_logits.weight]
    peer = torch.optim.AdamW(
        [{"params": matrices}, {"params": others, "weight_decay": 0.0}],
        lr=0.02,
        weight_decay=0.3,
        fused=True,
    )
    optimizer = AdamW(ours, 0.3)
    for step in range(5):
        gradients(ours, step)
        gradients(theirs, step)
        if step == 2:  # a part that took no part
            ours.norm.bias.grad = theirs.norm.bias.grad = None
        optimizer.step(0.02)
        peer.step()
    for here, there in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(here, there)


def test_only_matrices_decay() -> None:
    model = torch.nn.Sequential(
        WordEmbedding(7, 4), torch.nn.Embedding(5, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 3)
    )
    decayed = {name for name, decay in AdamW(model, 0.1).decays.items() if decay}
    assert decayed == {"3.weight"}


@pytest.mark.parametrize(
    ("settings", "decayed"),
    [
        ({"position": "learned"}, set()),
        ({"position": "t5-bias"}, set()),
        ({"position": "relative-keys"}, set()),
        ({"position": "rotary", "score": "cosine-temperature"}, set()),
        ({"position": "rotary", "normalize": "entmax"}, set()),
        ({"position": "learned", "score": "synthesizer"}, {"query_weight", "weight"}),
    ],
)
def test_of_attention_its_matrices_alone_decay(settings: dict[str, str], decayed: set[str]) -> None:
    model = GPT(GPTSettings(width=8, heads=2, layers=1, feedforward=16, length=6, **settings), 11)
    decays = AdamW(model, 0.1).decays
    linear = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    found = {name for name, decay in decays.items() if decay}
    assert linear & found
    assert {name.rpartition(".")[2] for name in found - linear} == decayed


def test_state_round_trip() -> None:
    first, second = Bag(), Bag()
    ours, theirs = AdamW(first, 0.1), AdamW(second, 0.1)
    gradients(first, 0)
    ours.step(0.1)
    theirs.load(ours.state())
    assert theirs.state().keys() == ours.state().keys()
    assert all(torch.equal(theirs.state()[name], value) for name, value in ours.state().items())
    assert ours.state()["step/norm.bias"] == 1
    with pytest.raises(RegardError, match="another model"):
        theirs.load({"mean/x": torch.zeros(1)})


def test_what_does_not_train_is_left_alone() -> None:
    model = Bag()
    model.embedding.weight.requires_grad_(False)
    assert "embedding.weight" not in AdamW(model, 0.1).parameters


def test_training_does_not_load_the_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from regard.training.optimizer import AdamW\n"
        "model = torch.nn.Linear(2, 2)\n"
        "optimizer = AdamW(model, 0.1)\n"
        "model(torch.ones(1, 2)).sum().backward()\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "optimizer.step(0.1)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
