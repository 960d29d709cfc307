"""The Transformer's and T5's patterns: which words a word's state may depend on."""

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.attention import Mechanism, MultiHeadAttention
from regard.core.errors import RegardError
from regard.core.settings import build
from regard.core.trusted import trust
from regard.lab.tasks.models import MODELS as CLASSIFIERS
from regard.nn.models.settings import T5Settings, TransformerSettings
from regard.nn.models.t5 import T5
from regard.nn.models.transformer import Transformer
from tests.attention.parts import shifted

WORDS, READ = 11, 7
SIZES = {"width": 8, "heads": 2, "layers": 1, "feedforward": 12, "length": 12, "dropout": 0.0}
MODELS = {
    "transformer": lambda given: Transformer(build(TransformerSettings, given), WORDS, WORDS),
    "t5": lambda given: T5(build(T5Settings, given), WORDS),
}


def make(kind: str, **given: object) -> Transformer | T5:
    """A model of one layer, its weights far from those it begins with."""
    torch.manual_seed(1)
    return shifted(MODELS[kind](SIZES | given).double().eval(), 0.5)


def moved(states: torch.Tensor, others: torch.Tensor) -> list[int]:
    """The places whose states differ."""
    return ((states - others).abs().amax(-1)[0] > 1e-9).nonzero().flatten().tolist()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("pattern", "read", "written"),
    [
        ("none", range(READ), range(3, 7)),
        ("window-2", range(1, 6), range(3, 6)),
        ("causal", range(3, READ), range(3, 7)),
        ("dilated-2-2", [1, 3, 5], [3, 5]),
        ("window-1+global-1", [0, 2, 3, 4], [3, 4]),
    ],
)
def test_a_pattern_says_who_sees_the_fourth_word(kind, pattern, read, written):
    model, lengths = make(kind, pattern=pattern), torch.tensor([READ])
    source = torch.arange(2, 2 + READ)[None]
    other = source.clone()
    other[0, 3] = 1
    assert moved(model.encode(source, lengths), model.encode(other, lengths)) == list(read)
    target = torch.tensor([[0, 3, 4, 5, 6, 7, 8]])
    changed = target.clone()
    changed[0, 3] = 9
    states = (model(source, lengths, x) for x in (target, changed))
    assert moved(*states) == list(written)


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_compressed_is_the_encoder_alone(kind):
    model = make(kind, compress="linformer-3", position="rotary")
    assert all(block.attention.work.attention.compress.rows == 3 for block in model.encoder)
    assert all(block.attention.work.attention.compress.length == 12 for block in model.encoder)
    for block in model.decoder:
        assert block.attention.work.attention.compress is None
        assert block.memory_attention.work.attention.compress is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"compress": "linformer", "pattern": "window-4"}, "so pattern=window-4 cannot mask some"),
        ({"compress": "linformer", "position": "alibi"}, "no distance for position=alibi"),
        (
            {"compress": "linformer", "position": "rotary", "score": "synthesizer"},
            "score=synthesizer has no word positions to use",
        ),
    ],
)
def test_what_cannot_be_is_refused(settings, says):
    for cls in (TransformerSettings, T5Settings):
        with pytest.raises(RegardError, match=says):
            build(cls, {"position": "rotary", **settings})
    with pytest.raises(RegardError, match="no pattern is called 'windw-4'; did you mean window-64"):
        make("transformer", pattern="windw-4")


OWN = """
from regard.attention import MultiHeadAttention

class Own(MultiHeadAttention):
    name = "own"
"""


@pytest.mark.parametrize("kind", ["transformer", "t5", "gpt", "bert", "+cls"])
def test_every_model_is_made_of_the_mechanism_that_is_asked_for(kind: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    trust(tmp_path / "own.py")

    def made(**given: object) -> list[Mechanism]:
        if kind in MODELS:
            model: nn.Module = make(kind, **given)
        else:
            sizes = {"width": 8, "heads": 2, "layers": 1, "length": 12}
            model = CLASSIFIERS[kind].build(
                CLASSIFIERS[kind].configure(sizes | given), vocabulary=WORDS, labels=3
            )
        return [x for x in model.modules() if isinstance(x, Mechanism)]

    usual, own = made(), made(attention=f"{tmp_path}/own.py:Own")
    assert {type(x) for x in usual} == {MultiHeadAttention}
    assert {x.name for x in own} == {"own"}
    assert len(own) == len(usual) == (3 if kind in MODELS else 1)
    with pytest.raises(RegardError, match="did you mean multi-head"):
        made(attention="multihead")
