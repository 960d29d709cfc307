"""What a model that writes must beat: by hand, in a run, saved and read again."""

import json
from pathlib import Path

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.tasks.baseline_settings import NeighbourSettings, NoSettings
from regard.lab.tasks.text_baselines import Copy, MostFrequentText, NearestNeighbour
from tests.lab.small_runs import trained_run

PAIRS = [
    ("a small dog runs", "ein kleiner Hund rennt"),
    ("two cats sleep", "zwei Katzen schlafen"),
    ("a small dog sleeps", "ein kleiner Hund schläft"),
]


def test_the_nearest_neighbour_is_the_largest_cosine() -> None:
    model = NearestNeighbour(NeighbourSettings(ngrams=3))
    with pytest.raises(RegardError, match="nearest-neighbour is not fitted"):
        model.write(["a"])
    model.fit(PAIRS)
    weigh = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3), sublinear_tf=True)
    known = weigh.fit_transform([source for source, _ in PAIRS])
    asked = ["the dog sleeps", "cats", "zzz"]
    alike = (weigh.transform(asked) @ known.T).toarray()
    found = model.write(asked, best=2)
    for row, written in zip(alike[:2], found, strict=False):
        order = sorted(range(3), key=lambda i: -row[i])[:2]
        assert written == [PAIRS[i][1] for i in order]
    assert found[2][0] == PAIRS[0][1]  # nothing is like it
    with pytest.raises(RegardError, match="requires training pairs; there are none"):
        model.fit([(" ", "x")])
    model = NearestNeighbour(NeighbourSettings(examples=2))
    model.fit(PAIRS)
    assert model.pairs == [PAIRS[0], PAIRS[2]]


def test_they_come_back_from_their_folder(tmp_path: Path) -> None:
    model = NearestNeighbour(NeighbourSettings())
    model.fit(PAIRS)
    model.save(tmp_path)
    assert NearestNeighbour.load(tmp_path).write(["a dog"]) == model.write(["a dog"])
    (tmp_path / "pairs.jsonl").write_text('{"source": 3, "target": "x"}\n')
    with pytest.raises(RegardError, match=r"pairs.jsonl: source"):
        NearestNeighbour.load(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("")
    with pytest.raises(RegardError, match="nearest-neighbour is not fitted"):
        NearestNeighbour.load(tmp_path)
    (tmp_path / "baseline.json").write_text('{"baseline": "copi", "settings": {}}')
    with pytest.raises(RegardError, match="contains copi, not copy"):
        Copy.load(tmp_path)
    model = MostFrequentText(NoSettings())
    with pytest.raises(RegardError, match="most-frequent requires training pairs"):
        model.fit([])


@pytest.mark.parametrize("model", ["copy", "most-frequent", "nearest-neighbour"])
def test_a_run_writes_by_a_baseline(tmp_path: Path, model: str) -> None:
    data = tmp_path / "p.tsv"
    days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
    rows = [f"{days[i % 7]}, week {i}\tTag {i % 7}" for i in range(200)]
    data.write_text("\n".join(["source\ttarget", *rows]))
    run = runs.start(tmp_path / "run", "dates", model, [f"data={data}"])
    (told,) = run.train()
    loaded = runs.load(tmp_path / "run")
    judged = loaded.evaluate()
    assert judged.value == run.evaluate().value
    expected = {"copy": 0.0, "most-frequent": 1 / 7, "nearest-neighbour": 0.9}[model]
    assert judged.value == pytest.approx(expected, abs=0.12)
    assert told.validation_loss == pytest.approx(1 - told.validation)
    (answer,) = loaded.predict(["Friday, week 10000"])
    assert answer.log_probability == 0
    assert answer.text == {"copy": "Friday, week 10000"}.get(model, answer.text)
    with pytest.raises(RegardError, match=f"--score needs a network; {model} has no probabilities"):
        loaded.score([("Friday", "Tag 4")])
    assert json.loads(judged.rows().decode().splitlines()[0])["source"]
    told = runs.forecast("dates", model, [f"data={data}"])
    assert (told.steps, told.parameters) == (1, 0)


def test_a_baseline_draws_nothing(tmp_path: Path) -> None:
    from regard.lab.tasks.writing.searching import Search

    run = trained_run(tmp_path / "run", "reverse", "copy", ["examples=100", "judged=10"])
    with pytest.raises(RegardError, match="copy cannot sample; leave --temperature"):
        run.best(["abc"], Search(temperature=1.0))
    assert [[text.text for text in several] for several in run.best(["abc"], 3)] == [["abc"]]
