import re

import pytest

from regard.attention.masks.patterns import PATTERNS
from regard.attention.mechanisms import MECHANISMS
from regard.attention.normalizers import NORMALIZERS
from regard.attention.positions import POSITIONS
from regard.attention.scores import SCORES
from regard.core.errors import RegardError
from regard.core.settings import Settings, build, words
from regard.core.usual import USUAL
from regard.lab.data.tokenizers import TOKENIZERS
from regard.lab.runs.config import Config
from regard.lab.runs.convergence import LEAST
from regard.lab.tasks import TASKS
from regard.lab.tasks.models import ModelEntry
from regard.nn.layers.feedforward import ACTIVATIONS
from regard.training.schedules import SCHEDULES
from regard.training.settings import MOST_EPOCHS, TrainingSettings

TASK_MODELS = [task.models for task in TASKS.values()]

ALL = {
    TrainingSettings,
    *(task.settings for task in TASKS.values()),
    *(model.settings for models in TASK_MODELS for model in models.values()),
}
TABLES = {
    "score": SCORES,
    "position": POSITIONS,
    "normalize": NORMALIZERS,
    "attention": MECHANISMS,
    "tokenizer": TOKENIZERS,
    "activation": ACTIVATIONS,
    "schedule": SCHEDULES,
}


@pytest.mark.parametrize("kind", sorted(ALL, key=lambda kind: kind.__name__))
def test_every_setting_says_what_it_means(kind: type[Settings]) -> None:
    meanings = kind.meanings()
    assert meanings.keys() == kind.model_fields.keys()
    assert [key for key, means in meanings.items() if len(means) < 5 or "None" in means] == []


@pytest.mark.parametrize("kind", sorted(ALL, key=lambda kind: kind.__name__))
def test_every_range_of_a_search_is_of_settings_that_there_are(kind: type[Settings]) -> None:
    for key, where in kind.search.items():
        for end in where.ends():
            assert where.has(str(getattr(build(kind, {key: end}), key)))


@pytest.mark.parametrize("entry", [e for models in TASK_MODELS for e in models.values()])
def test_every_model_is_searched_and_its_defaults_are_in_its_ranges(entry: ModelEntry) -> None:
    settings = entry.configure()
    assert entry.settings.search or not entry.settings.model_fields
    for key, where in entry.settings.search.items():
        assert where.has(str(getattr(settings, key))), key


def test_usual_names_mean_settings_that_there_are() -> None:
    known = {key for kind in ALL for key in kind.model_fields}
    known |= {*TASKS, *(name for models in TASK_MODELS for name in models), *PATTERNS}
    known |= {word for kind in ALL for key in kind.model_fields for word in words(kind, key)}
    known |= {name for table in TABLES.values() for name in table}
    assert {name for names in USUAL.values() for name in names} <= known


@pytest.mark.parametrize(
    ("task", "model", "pair", "meant"),
    [
        ("classification", "lstm", "", "rnn"),
        ("classification", "gru", "", "rnn"),
        ("classification", "Logistic-Regression", "", "tfidf"),
        ("classification", "logreg", "", "tfidf"),
        ("classification", "tf-idf", "", "tfidf"),
        ("classification", "svm", "", "nb-svm"),
        ("classification", "roberta", "", "bert"),
        ("dates", "lstm", "", "gru"),
        ("dates", "seq2seq", "", "gru or bahdanau"),
        ("sentiment", "transformer", "", "classification"),
        ("nmt", "transformer", "", "translation"),
        ("classification", "transformer", "lr=1", "learning_rate"),
        ("classification", "transformer", "batch=8", "batch_size"),
        ("classification", "transformer", "hidden-size=8", "width"),
        ("classification", "rnn", "hidden_size=8", "width or hidden"),
        ("classification", "transformer", "d_model=8", "width"),
        ("classification", "transformer", "dim=8", "width"),
        ("classification", "transformer", "n_layers=2", "layers"),
        ("classification", "transformer", "num_layers=2", "layers"),
        ("classification", "transformer", "num_heads=2", "heads"),
        ("classification", "transformer", "learningRate=2", "learning_rate"),
        ("classification", "transformer", "lerning_rate=2", "learning_rate"),
        ("classification", "transformer", "device=gpu", "cuda"),
        ("classification", "transformer", "device=cuda:0", "cuda"),
        ("classification", "transformer", "precision=fp16", "bf16"),
        ("classification", "transformer", "metric=f1", "macro-f1"),
        ("translation", "transformer", "metric=sacrebleu", "bleu"),
        ("classification", "transformer", "schedule=flat", "constant"),
    ],
)
def test_what_is_meant_is_offered(task: str, model: str, pair: str, meant: str) -> None:
    with pytest.raises(RegardError) as error:
        Config.make(task, model, [pair] if pair else [])
    assert f"did you mean {meant}" in str(error.value)


def test_a_word_far_from_every_choice_offers_none() -> None:
    with pytest.raises(RegardError, match=r"device='moon': must be 'cpu' or 'cuda'$"):
        build(TrainingSettings, {"device": "moon"})
    with pytest.raises(
        RegardError,
        match="no setting is called 'qqq'; there are: accumulate, activation, activation_c",
    ):
        Config.make("classification", "transformer", ["qqq=1"])


@pytest.mark.parametrize("kind", sorted(ALL, key=lambda kind: kind.__name__))
def test_the_names_that_a_meaning_lists_are_in_their_tables(kind: type[Settings]) -> None:
    for key in TABLES.keys() & kind.model_fields.keys():
        listed = kind.meanings()[key].partition(": ")[2].partition(", or")[0]
        names = re.split(r", | or ", listed)
        known = {*TABLES[key], *(f"gated-{name}" for name in ACTIVATIONS), "…"}
        assert [name for name in names if name not in known] == []
        assert len(names) >= min(2, len(TABLES[key]))


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_learned_until_validation_stops_improving(task: str) -> None:
    """Unless a rate that falls to the end of its budget is asked for: that goes to its end."""
    usual = Config.make(task, TASKS[task].model).training
    assert (usual.schedule, usual.budget) == ("constant", ("epochs", MOST_EPOCHS))
    assert usual.patience >= LEAST
    given = ["schedule=cosine", "steps=90", "batch_tokens=512"]
    falling = Config.make(task, TASKS[task].model, given).training
    assert (falling.patience, falling.average, falling.batch_size) == (0, 0.0, 0)
    assert falling.warmup == TrainingSettings().warmup


def test_what_is_given_as_nothing_replaces_nothing() -> None:
    assert Config.make("classification", "cnn", ["batch_tokens=0"]).training.batch_size == 64
    assert Config.make("classification", "cnn", ["batch_tokens=512"]).training.batch_size == 0
