import subprocess
import sys

import pytest
import torch

from regard.core.errors import RegardError
from regard.nn.layers.embedding import WordEmbedding
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings
from regard.training.optimizer import AdamW, Muon, orthogonal

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
        ({"position": "disentangled"}, set()),
        ({"position": "pope"}, set()),
        ({"position": "learned", "score": "synthesizer-factorised-random"}, set()),
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


def gpt(**changes: str) -> GPT:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        wanted = {"position": "learned", **changes}
        return GPT(GPTSettings(width=8, heads=2, layers=2, feedforward=16, length=6, **wanted), 11)


def test_muon_steps_as_torch_does() -> None:
    ours, theirs = gpt(), gpt()
    optimizer = Muon(ours, 0.3)
    named = dict(theirs.named_parameters())
    hidden = [named[name] for name in optimizer.turned]
    kinds = {name.split(".", 2)[2] for name in optimizer.turned}
    assert kinds == {"attention.work.project.weight", "attention.work.output.weight",
                     "feedforward.work.widen.weight", "feedforward.work.narrow.weight"}  # fmt: skip
    muon = torch.optim.Muon(hidden, lr=0.02, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    rest = [named[name] for name in named if name not in optimizer.turned]
    adam = torch.optim.AdamW(rest, lr=0.02, weight_decay=0.0, fused=True)
    for step in range(4):
        gradients(ours, step)
        gradients(theirs, step)
        with torch.autocast("cpu", torch.bfloat16):
            optimizer.step(0.02)
        muon.step()
        adam.step()
    first = dict(gpt().named_parameters())
    for name, parameter in ours.named_parameters():
        if name in optimizer.turned:  # torch rounds to bfloat16 a little earlier
            far = (parameter - first[name]).norm()
            assert (parameter - named[name]).norm() < 0.03 * far, name
        else:
            assert torch.equal(parameter, named[name]), name


@pytest.mark.parametrize("shape", [(3, 5, 9), (3, 9, 5), (1, 4, 4)])
def test_orthogonal_leaves_the_directions_and_levels_the_lengths(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, lengths, right = torch.linalg.svd(matrices, full_matrices=False)
    s = lengths / lengths.norm(dim=-1, keepdim=True)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    assert (s[lengths > 0.3] > 0.6).all()
    torch.testing.assert_close(
        orthogonal(matrices), left * s[..., None, :] @ right, atol=1e-6, rtol=0
    )


def test_muon_keeps_one_number_a_weight_and_takes_it_back() -> None:
    first, second = gpt(), gpt()
    ours, theirs = Muon(first, 0.1), Muon(second, 0.1)
    turned = ours.turned[0]
    assert f"mean/{turned}" in ours.state()
    assert f"square/{turned}" not in ours.state()
    gradients(first, 0)
    ours.step(0.1)
    theirs.load(ours.state())
    assert all(torch.equal(theirs.state()[name], value) for name, value in ours.state().items())
    with pytest.raises(RegardError, match="another model"):
        AdamW(first, 0.1).load(ours.state())


def test_muon_leaves_alone_what_took_no_part() -> None:
    model = gpt()
    optimizer = Muon(model, 0.1)
    gradients(model, 0)
    idle = optimizer.turned[1]
    dict(model.named_parameters())[idle].grad = None
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer.step(0.1)
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == before.keys() - {idle}


def test_muon_needs_layers() -> None:
    with pytest.raises(RegardError, match="optimizer=adamw"):
        Muon(Bag(), 0.1)
