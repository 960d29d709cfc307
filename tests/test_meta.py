"""A module built without numbers, on the meta device, computes the same once it is loaded.

The laws go over every row of the tables. Empty memory is NaN here, so that a fixed number that no
file holds is seen; so is one that `Module.to` rounds.
"""

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from regard.attention import MECHANISMS, POSITIONS, SCORES, MultiHeadAttention
from regard.attention.masks.patterns import PATTERNS
from regard.attention.normalizers import NORMALIZERS
from regard.attention.positions import input_positions
from regard.attention.score import Score
from regard.attention.scores.synthesizer import RandomSynthesizer
from regard.lab.tasks.models import DECODERS, ENCODERS, MODELS, WRITERS, ModelEntry
from tests.attention.parts import fits

WIDTH, HEADS, LENGTH, WORDS = 12, 3, 9, 17
LENGTHS = torch.tensor([7, 4])
Made = Callable[[], nn.Module]


def parts() -> Iterator[tuple[str, Made]]:
    """Return a layer for every score, position, mechanism and normaliser, and input positions."""
    for score in SCORES:
        yield score, lambda s=score: MultiHeadAttention(WIDTH, HEADS, score=s, length=LENGTH)
    fixed = {"length": LENGTH, "heads": HEADS, "fixed": True}
    score = lambda: RandomSynthesizer(**fixed)  # noqa: E731
    yield "a fixed table", lambda: MultiHeadAttention(WIDTH, HEADS, score=score())
    for name, kind in POSITIONS.items():
        if kind is not None and not issubclass(kind, Score):
            yield name, lambda p=name: input_positions(p, WIDTH, length=LENGTH)
            continue
        for score in ("scaled-dot", "additive"):
            if fits(score, name):
                yield (
                    f"{score} {name}",
                    lambda s=score, p=name: MultiHeadAttention(WIDTH, HEADS, score=s, position=p),
                )
    for name in MECHANISMS:
        for position in ("none", "rotary"):
            yield name, lambda n=name, p=position: MECHANISMS[n](WIDTH, HEADS, position=p)
    for name in NORMALIZERS:
        yield name, lambda n=name: MultiHeadAttention(WIDTH, HEADS, normalize=n)
    yield "linformer", lambda: MultiHeadAttention(WIDTH, HEADS, compress="linformer", length=LENGTH)


def models() -> Iterator[tuple[str, Made]]:
    """Return every network, and BERT with every pattern."""
    entries: list[ModelEntry] = [*MODELS.values(), *WRITERS.values(), *DECODERS.values()]
    for entry in [*entries, *ENCODERS.values()]:
        if not entry.deterministic:
            yield entry.name, lambda e=entry: built(e)
    for pattern in PATTERNS.values():
        name = pattern.examples[-1]
        yield name, lambda p=name: built(ENCODERS["bert"], pattern=p, position="alibi")
    yield "bigbird", lambda: built(ENCODERS["bert"], pattern="bigbird-2", score="gaussian")


def built(entry: ModelEntry, **settings: object) -> nn.Module:
    small = {"width": WIDTH, "heads": HEADS, "layers": 2, "feedforward": 8, "hidden": 8, **settings}
    known = {key: x for key, x in small.items() if key in entry.settings.model_fields}
    return entry.build(entry.configure(known), vocabulary=WORDS, labels=2)


def answer(module: nn.Module) -> Tensor:
    """Return what a layer or a model computes in evaluation mode."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, WORDS, (2, 7), generator=generator)
    x = torch.randn(2, 7, WIDTH, generator=generator)
    texts = [(tokens, LENGTHS), (tokens, LENGTHS, tokens[:, :3])]
    wanted = inspect.signature(module.forward).parameters
    given = (x,) if "tokens" not in wanted and "source" not in wanted else texts["target" in wanted]
    with torch.no_grad():
        return module.eval()(*given)


def late(make: Made, real: nn.Module) -> nn.Module:
    """Build without numbers, give it memory, and load the numbers of another."""
    with torch.device("meta"):
        module = make()
    module = module.to_empty(device="cpu")
    module.load_state_dict(real.state_dict())
    return module


def assigned(make: Made, real: nn.Module) -> nn.Module:
    with torch.device("meta"):
        module = make()
    module.load_state_dict(copy.deepcopy(real.state_dict()), assign=True)
    return module


def halved(module: nn.Module, real: nn.Module) -> nn.Module:
    """Go through half precision and load the numbers anew."""
    module.bfloat16().float().load_state_dict(real.state_dict())
    return module


WAYS = {
    "to_empty": late,
    "assign": assigned,
    "half": lambda make, real: halved(make(), real),
    "copies": lambda make, real: pickle.loads(pickle.dumps(copy.deepcopy(real))),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_memory_is_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("table", [parts, models])
def test_the_same_output_after_loading(table: Callable[[], Iterator[tuple[str, Made]]]) -> None:
    wrong = []
    for name, make in table():
        torch.manual_seed(3)
        real = make()
        expected = answer(real)
        for way, made in WAYS.items():
            try:
                gap = float((answer(made(make, real)) - expected).abs().max())
            except Exception as error:
                wrong.append(f"{name}, {way}: {error!r:.150}")
            else:
                if not gap < 1e-5:
                    wrong.append(f"{name}, {way}: {gap}")
    assert not wrong, "\n".join(wrong)
