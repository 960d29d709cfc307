"""Networks and estimators of others: how they are recognised, called, seeded and refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from torch import Tensor, nn

from regard.core import trusted
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs.config import Config
from regard.lab.runs.room import shape_of
from regard.lab.runs.run import Run
from regard.lab.tasks import TASKS
from regard.lab.tasks.baseline_settings import NoSettings
from regard.lab.tasks.called import Called, Estimator
from regard.lab.tasks.elsewhere import Models, entry_of, file_of, remembered
from tests.lab.small_runs import finished

TEXTS = ["good film", "bad film", "good", "bad", "a good one", "a bad one"]
ANSWERS = np.array([1, 0, 1, 0, 1, 0])
NETS = '''
from torch import nn

class Mean(nn.Module):
    """Mean of vectors, linear."""
    def __init__(self, vocab_size, num_classes, dim=8, bias=True):
        super().__init__()
        self.vectors = nn.Embedding(vocab_size, dim)
        self.out = nn.Linear(dim, num_classes, bias=bias)
    def forward(self, ids):
        return self.out(self.vectors(ids).mean(1))

def tagger(v, k):
    return nn.Sequential(nn.Embedding(v, 8), nn.Linear(8, k))

def speaker(vocab):
    return nn.Sequential(nn.Embedding(vocab, 8), nn.Linear(8, vocab))

def short(vocab):
    return nn.Sequential(nn.Embedding(vocab, 8), nn.Linear(8, vocab - 1))

class Peeks(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.inner = speaker(vocab)
    def forward(self, ids):
        return self.inner(ids.flip(1)).cumsum(1).flip(1)

class Packed(nn.Module):
    def __init__(self, vocab, labels):
        super().__init__()
        self.vectors, self.read = nn.Embedding(vocab, 4), nn.GRU(4, 4, batch_first=True)
        self.out = nn.LazyLinear(labels)
    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.vectors(ids), lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.read(packed)[1][0])

def wrong(vocab, labels):
    return nn.Sequential(nn.Embedding(vocab, 8), nn.Linear(8, labels + 1))
'''


class Told(nn.Module):
    """Returns what it was given."""

    def __init__(self, form: Any = lambda x: x) -> None:
        super().__init__()
        self.form = form

    def forward(
        self, ids: Tensor, lengths: Tensor, attention_mask: Tensor, padding_mask: Any = 0
    ) -> Any:
        assert torch.equal(attention_mask, ~padding_mask)
        return self.form(ids * attention_mask + lengths[:, None])


@pytest.fixture
def nets(tmp_path: Path) -> str:
    path = tmp_path / "nets.py"
    path.write_text(NETS)
    trusted.trust(path)
    return f"{path}:"


def trained(folder: Path, model: str, *settings: str, task: str = "classification") -> Run:
    tiny = ["examples=160", "steps=4", "threads=1", "batch_size=8"]
    return finished(runs.open_or_start(folder, task, model, [*settings, *tiny]))


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        lambda x: (None, x),
        lambda x: {"logits": x},
        lambda x: type("Output", (), {"logits": x})(),
    ],
    ids=["tensor", "tuple", "dictionary", "object"],
)
def test_masks_and_lengths_go_by_their_names_and_logits_come_out(form: Any) -> None:
    ids, lengths = torch.tensor([[3, 4, 5], [6, 7, 7]]), torch.tensor([3, 1])
    assert Called(Told(form))(ids, lengths).tolist() == [[6, 7, 8], [7, 1, 1]]


def test_networks_of_hugging_face_are_networks() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"initializer_range": 0.5}

    def build(vocab_size: int, num_labels: int) -> Any:
        config = transformers.BertConfig(vocab_size=vocab_size, num_labels=num_labels, **sizes)
        return transformers.BertForSequenceClassification(config)

    entry = entry_of("hf", build)
    network = entry.build(entry.configure(), vocabulary=50, labels=3).eval()
    ids, lengths = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), torch.tensor([4, 2])
    logits = network(ids, lengths)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(logits[1:], network(ids[1:, :2], lengths[1:]))  # padding is masked
    assert (logits[1:] - network(ids[1:, :4], torch.tensor([4]))).abs().max() > 1e-4


def test_a_forward_that_nobody_can_call() -> None:
    class Asks(nn.Module):
        def forward(self, ids: Tensor, styles: Tensor) -> Tensor:
            return ids

    with pytest.raises(RegardError, match=r"Asks\.forward needs styles besides ids; name them as"):
        Called(Asks())
    with pytest.raises(RegardError, match=r"the model is an int, not an nn\.Module"):
        Called(3)


def test_a_class_of_a_file_trains_with_its_own_settings(nets: str, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", f"{nets}Mean", "dim=6", "bias=0")
    assert run.config.network.model_dump() == {"dim": 6, "bias": False}
    words = run.task.sizes["vocabulary"]
    assert run.size(["a film"])[0] == 6 * words + 6 * 2
    assert run.config.entry.describe().startswith("a user's network, ")
    again = runs.load(tmp_path / "run")
    assert again.predict("a good film").label in run.task.labels
    with pytest.raises(RegardError, match="no setting is called 'dime'; did you mean dim"):
        Config.make("classification", f"{nets}Mean", ["dime=3"])


def test_a_network_that_reads_numbers_is_built_with_numbers(nets: str, tmp_path: Path) -> None:
    trained(tmp_path / "run", f"{nets}Packed")
    again = runs.load(tmp_path / "run")
    assert again.predict("a good film").label in again.task.labels
    here = remembered(lambda vocab, labels: Told(lambda x: x / int(x.max())), "reads", {})
    network = Config.make("classification", here).entry.build
    assert shape_of(Config.make("classification", here), network) is None


def test_a_tagger_and_a_network_of_the_wrong_size(nets: str, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", f"{nets}tagger", task="tagging")
    assert 0 <= run.evaluate().other_metrics["accuracy"] <= 1
    with pytest.raises(RegardError, match=r"has the shape \(1, 4, 3\), but the task needs \(1, 2"):
        trained(tmp_path / "wrong", f"{nets}wrong")


def test_a_language_model_returns_logits_of_words(nets: str, tmp_path: Path) -> None:
    task, tiny = "language-modeling", ["data=reviews", "length=24", "batch_size=4", "steps=2"]
    run = finished(
        runs.open_or_start(tmp_path / "run", task, f"{nets}speaker", [*tiny, "threads=1"])
    )
    words = len(run.task.tokenizer)
    assert run.network.inner[1].out_features == run.task.sizes["vocabulary"] >= words
    assert 0.5 * math.log(words) < run.evaluate().summary["loss"] < 1.5 * math.log(words)
    with pytest.raises(RegardError, match="is compared by its losses and writes no texts"):
        run.predict("a film")
    for name, says in (("short", "build it for vocabulary="), ("Peeks", "the network looks ahead")):
        bad = runs.open_or_start(tmp_path / name, task, f"{nets}{name}", tiny)
        with pytest.raises(RegardError, match=says):
            [*bad.train()]


def test_what_is_no_model_says_what_is_one() -> None:
    for thing, says in (
        (nn.Linear(2, 2), "is built already, not once a seed; name a ModelEntry, a class"),
        (lambda one, two, three: None, "needs one, two, three, which has no default"),
        (lambda: 3, r"returns an int, not an estimator; name"),
        (lambda: 1 / 0, r"does not run: ZeroDivisionError"),
        (3, "an int, cannot be called; name"),
    ):
        with pytest.raises(RegardError, match=says):
            entry_of("mine", thing)


def test_only_what_stands_at_the_top_of_a_file_has_a_name_there() -> None:
    assert file_of(Called) == ""  # of a package, whose imports need the package
    assert file_of(trained) == ""
    assert file_of(Told().forward) == ""


def test_objects_of_this_process_differ_by_their_content() -> None:
    one, two, three = (make_pipeline(CountVectorizer(), MultinomialNB(alpha=x)) for x in (1, 1, 2))
    names = [remembered(thing, "mine", {}) for thing in (one, two, three)]
    assert names[0] == names[1] != names[2]
    three.set_params(multinomialnb__alpha=3)  # after it was named
    entry = Models({})[names[2]]
    estimator = entry.build(entry.configure(), vocabulary=0, labels=2)
    assert estimator.model.get_params()["multinomialnb__alpha"] == 2
    assert Models({})[names[2]].deterministic
    with pytest.raises(RegardError, match="an object of Python in the process that made it"):
        Models({})["python:other@12345678"].build(NoSettings(), vocabulary=3, labels=2)


def fresh(estimator: Any, labels: int) -> Estimator:
    return Estimator(estimator, None, 0, labels, None)


def test_an_estimator_answers_with_probabilities_or_labels() -> None:
    counts = make_pipeline(CountVectorizer(), MultinomialNB())
    probabilities = fresh(counts, 3).fit(TEXTS, ANSWERS).probabilities(["good", "bad"])
    wanted = counts.fit(TEXTS, ANSWERS).predict_proba(["good", "bad"])
    np.testing.assert_allclose(probabilities, np.pad(wanted, ((0, 0), (0, 1))))
    labels = fresh(make_pipeline(CountVectorizer(), LinearSVC()), 2).fit(TEXTS, ANSWERS)
    assert labels.probabilities(["good", "bad"]).tolist() == [[0, 1], [1, 0]]
    assert labels.probabilities([]).shape == (0, 2)
    numbers = fresh(make_pipeline(CountVectorizer(), LinearRegression()), 1)
    np.testing.assert_allclose(numbers.fit(TEXTS, ANSWERS).scores(TEXTS)[:, 0], ANSWERS, atol=1e-6)
    several = np.stack([ANSWERS, 1 - ANSWERS, ANSWERS], 1)
    many = fresh(make_pipeline(CountVectorizer(), OneVsRestClassifier(MultinomialNB())), 3)
    assert (many.fit(TEXTS, several).scores(TEXTS) > 0).tolist() == (several > 0).tolist()
    with pytest.raises(RegardError, match="give class_weight to the estimator"):
        labels.fit(TEXTS, ANSWERS, np.ones(2))


@pytest.mark.parametrize("task", ["tagging", "reverse"])
def test_an_estimator_for_other_tasks_is_refused(task: str, tmp_path: Path) -> None:
    name = remembered(make_pipeline(CountVectorizer(), MultinomialNB()), "nb", {})
    with pytest.raises(RegardError, match="an estimator labels texts or predicts numbers"):
        trained(tmp_path / task, name, task=task)


def test_an_unset_random_state_gets_the_seed_of_the_run(tmp_path: Path) -> None:
    random = remembered(make_pipeline(CountVectorizer(), SGDClassifier(loss="log_loss")), "sgd", {})
    fixed = remembered(
        make_pipeline(CountVectorizer(), SGDClassifier(loss="log_loss", random_state=3)), "sgd", {}
    )
    entries = TASKS["classification"].models
    assert not entries[random].deterministic
    assert entries[fixed].deterministic
    three, other, named = (
        trained(tmp_path / name, model, f"seed={seed}").evaluate().answers.tolist()
        for name, model, seed in (("a", random, 3), ("b", random, 4), ("c", fixed, 5))
    )
    assert three == named != other
    assert not (tmp_path / "a" / "model").exists()


def test_a_run_of_an_estimator_in_a_file_opens_in_a_later_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from sklearn.dummy import DummyClassifier\ndef mine():\n    return DummyClassifier()\n"
    )
    trained(tmp_path / "run", f"{path}:mine")
    monkeypatch.setenv(trusted.VARIABLE, "")
    assert runs.load(tmp_path / "run").evaluate().is_constant
    path.write_text(path.read_text() + "# edited\n")
    with pytest.raises(RegardError, match="a Python file that you have not trained with"):
        runs.load(tmp_path / "run")


class Lazy(nn.Module):
    """A bag of words whose last layer is made by the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 4), nn.LazyLinear(2)

    def forward(self, ids: Tensor) -> Tensor:
        output: Tensor = self.head(self.embed(ids).mean(1))
        return output


def test_lazy_layers_are_made_before_the_optimizer() -> None:
    assert sum(p.numel() for p in Called(Lazy()).parameters()) == 9 * 4 + 4 * 2 + 2
