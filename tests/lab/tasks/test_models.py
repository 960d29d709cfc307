import subprocess
import sys

import pytest

from regard.core.errors import RegardError
from regard.core.settings import split
from regard.lab.tasks.models import MODELS

LADDER = """mean attention-pool query-from-mean self-attention +residual +positions
+residual+positions +cls transformer gpt bert frozen t5 rnn cnn tfidf nb-svm fasttext static
sentence"""


def test_the_ladder_is_complete_and_in_order() -> None:
    assert " ".join(MODELS) == " ".join(LADDER.split())
    baselines = [name for name, entry in MODELS.items() if entry.baseline]
    assert baselines == ["tfidf", "nb-svm", "fasttext", "static", "sentence"]


@pytest.mark.parametrize("name", MODELS)
def test_every_row_is_described_and_its_defaults_are_settings(name: str) -> None:
    entry = MODELS[name]
    assert entry.name == name
    assert 20 < len(entry.describe()) < 100
    settings = entry.configure()
    assert {key: getattr(settings, key) for key in entry.defaults} == dict(entry.defaults)


@pytest.mark.parametrize(
    ("name", "overrides", "says"),
    [
        ("mean", {}, "label = Linear(mean of the words' vectors)"),
        ("mean", {"position": "sinusoidal"}, "sine positions; mean; Linear"),
        ("attention-pool", {"pool_score": "additive"}, "pᵢ ∝ exp(additive(q, tᵢ))"),
        ("attention-pool", {"normalize": "sparsemax"}, "p = sparsemax(q·tᵢ)"),
        ("self-attention", {"layers": 1}, "1 layer of x' = g(f(x))"),
        ("self-attention", {"layers": 6}, "6 layers of x' = g(f(x))"),
        ("+cls", {"layers": 2}, "2 layers of x' = g(x + f(LayerNorm x))"),
        ("+cls", {}, "sine positions; state of CLS"),
        ("transformer", {"heads": 2}, "2 heads; rotary positions; attention pool"),
        ("transformer", {"score": "additive", "pattern": "causal"}, "additive scores; rotary"),
        ("cnn", {"widths": "2"}, "filters over 2 words"),
        ("tfidf", {"ngrams": 3}, "n-grams of 1 to 3 words"),
    ],
)
def test_a_description_is_that_of_the_actual_settings(
    name: str, overrides: dict[str, object], says: str
) -> None:
    entry = MODELS[name]
    assert says in entry.describe(entry.configure(overrides))


def test_all_rungs_have_one_embedding_scale() -> None:
    rungs = [entry for entry in MODELS.values() if "init_std" in entry.settings.model_fields]
    rungs = [entry for entry in rungs if not entry.deterministic and entry.name != "t5"]
    assert {entry.configure().model_dump()["init_std"] for entry in rungs} == {0.1}


def test_overrides_come_after_defaults_and_from_strings() -> None:
    settings = MODELS["+cls"].configure({"pool": "mean", "layers": "2"})
    assert (settings.pool, settings.layers, settings.block) == ("mean", 2, "residual")
    (share,) = split(["heads=2", "word-dropout=0.25"], MODELS["transformer"].settings)
    assert MODELS["transformer"].configure(share).word_dropout == 0.25


def test_unknown_settings_are_named() -> None:
    with pytest.raises(RegardError, match="did you mean heads"):
        MODELS["transformer"].configure({"head": 2})
    with pytest.raises(RegardError, match="widths='3;4'"):
        MODELS["cnn"].configure({"widths": "3;4"})


def test_names_are_read_without_torch() -> None:
    code = (
        "import sys, regard.nn.models, regard.lab.tasks; "
        "[entry.configure() for entry in regard.lab.tasks.models.MODELS.values()]; "
        "heavy = {'torch', 'sklearn', 'scipy', 'numpy'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_shapes_without_numbers_are_those_of_the_network_and_import_no_compiler() -> None:
    code = """
import sys
from regard.nn.layers.device import without_numbers
from regard.lab.tasks import TASKS

def shapes(network):
    return {name: x.shape for name, x in network.state_dict().items()}

for position in ("rotary", "kerple", "fire", "learned"):
    for entry in TASKS["classification"].models.values():
        if entry.baseline or "position" not in entry.settings.model_fields:
            continue
        settings = entry.configure({"position": position, "layers": 1})
        with without_numbers():
            network = entry.build(settings, vocabulary=8, labels=2)
        assert {x.device.type for x in network.parameters()} == {"meta"}
        found = shapes(network)
        assert "torch._dynamo" not in sys.modules, (entry, position)
        assert found == shapes(entry.build(settings, vocabulary=8, labels=2))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
