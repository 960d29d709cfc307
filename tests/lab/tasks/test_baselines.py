import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from regard.core.errors import RegardError
from regard.lab.tasks.baseline_settings import (
    FastTextSettings,
    NaiveBayesSVMSettings,
    TfidfSettings,
)
from regard.lab.tasks.baselines import WORD, Baseline, NaiveBayesSVM, Tfidf
from regard.lab.tasks.models import MODELS

BASELINES = ("tfidf", "nb-svm")
WORDS = [["dull", "slow", "grey", "weak"], ["bright", "quick", "warm"], ["odd", "blue"], ["loud"]]
FILLER = ["the", "film", "and", "its", "music", "were", "there", "on", "a", "day"]


def texts_of(labels: int, count: int, seed: int) -> tuple[list[str], np.ndarray]:
    chance = np.random.default_rng(seed)
    numbers = chance.integers(labels, size=count)
    texts = [
        " ".join([*chance.choice(FILLER, 6), chance.choice(WORDS[number]), "<br />End"])
        for number in numbers
    ]
    return texts, numbers


def make(name: str, labels: int, **settings: object) -> Baseline:
    entry = MODELS[name]
    built = entry.build(entry.configure(settings), vocabulary=0, labels=labels)
    assert isinstance(built, Baseline)
    return built


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("labels", [2, 3])
def test_the_weights_of_words_make_up_the_score(name: str, labels: int) -> None:
    model = make(name, labels, ngrams=2).fit(*texts_of(labels, 97, seed=0))
    text = "The FILM, the dull film<br />and a zebra"
    counts = model._counter(vocabulary=model.terms).transform([text])
    scores = np.asarray(model.features(counts) @ model.arrays["weights"].T + model.arrays["bias"])
    if labels == 2:
        scores = np.hstack([-scores, scores])
    for label in range(labels):
        found = model.weigh(text, label)
        assert found.words == ["the", "film", ",", "the", "dull", "film", "and", "a", "zebra"]
        assert found.score == pytest.approx(scores[0, label], abs=1e-5)
        assert found.weights.sum() + found.bias == pytest.approx(found.score, abs=1e-5)
        assert found.weights[8] == 0, "a word that was never counted"
    alone = model.weigh("film film", 1)
    pair = alone.terms.get("film film", 0.0)
    assert alone.weights == pytest.approx(np.full(2, (alone.terms["film"] + pair) / 2))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("labels", [2, 3])
def test_learns_and_says_probabilities(name: str, labels: int) -> None:
    model = make(name, labels, inverse_penalty=30).fit(*texts_of(labels, 97, seed=0))
    texts, numbers = texts_of(labels, 31, seed=1)
    probabilities = model.probabilities(texts)
    assert probabilities.shape == (31, labels)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert (probabilities.argmax(1) == numbers).all()
    assert model.probabilities([]).shape == (0, labels)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("labels", [2, 3])
def test_round_trip_without_pickle(name: str, labels: int, tmp_path: Path) -> None:
    model = make(name, labels).fit(*texts_of(labels, 61, seed=2))
    model.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".txt", ".safetensors"}
    texts = [*texts_of(labels, 9, seed=3)[0], "", "nothing known 猫"]
    again = type(model).load(tmp_path)
    assert again.settings == model.settings
    # What was fitted and what was read may lie in memory in another order, and round differently.
    np.testing.assert_allclose(again.probabilities(texts), model.probabilities(texts), rtol=1e-9)
    assert again.terms == model.terms


def test_tfidf_is_scikit_learns_pipeline() -> None:
    texts, numbers = texts_of(2, 53, seed=4)
    ours = Tfidf(TfidfSettings(inverse_penalty=3.0), 2).fit(texts, numbers)
    vectors = TfidfVectorizer(
        ngram_range=(1, 2),
        min_df=2,
        sublinear_tf=True,
        token_pattern=WORD,
        preprocessor=lambda text: text.replace("<br />", " ").lower(),
    )
    theirs = LogisticRegression(C=3.0, max_iter=1000).fit(vectors.fit_transform(texts), numbers)
    held_out = texts_of(2, 17, seed=5)[0]
    np.testing.assert_allclose(
        ours.probabilities(held_out),
        theirs.predict_proba(vectors.transform(held_out)),
        atol=1e-4,
    )


def test_log_count_ratio_by_hand() -> None:
    # Texts with each term, plus one: good 3 and 1, bad 1 and 2, so ‖p‖ = 4 and ‖q‖ = 3.
    model = NaiveBayesSVM(NaiveBayesSVMSettings(ngrams=1, minimum=1), 2)
    model.fit(["good good", "good", "bad"], np.array([1, 1, 0]))
    assert model.terms == ["bad", "good"]
    present = model.features(model._counter(vocabulary=model.terms).transform(["good good", "bad"]))
    assert present.toarray().tolist() == [[0, 1], [1, 0]]
    ratio = model._log_count_ratio(
        model.features(model._counter(vocabulary=model.terms).transform(["good", "good", "bad"])),
        np.array([True, True, False]),
    )
    np.testing.assert_allclose(ratio, np.log([(1 / 4) / (2 / 3), (3 / 4) / (1 / 3)]), rtol=1e-6)


def test_interpolated_weights_by_hand() -> None:
    texts, numbers = texts_of(2, 97, seed=11)
    svm = NaiveBayesSVM(NaiveBayesSVMSettings(interpolation=1.0), 2).fit(texts, numbers)
    counts = svm._counter(vocabulary=svm.terms).transform(texts)
    ratio = svm._log_count_ratio(svm.features(counts), numbers == 1)
    own = np.divide(svm.arrays["weights"][0], ratio, out=np.zeros_like(ratio), where=ratio != 0)
    model = NaiveBayesSVM(NaiveBayesSVMSettings(interpolation=0.25), 2).fit(texts, numbers)
    expected = ratio * (0.75 * np.abs(own).mean() + 0.25 * own)
    scale = model.arrays["bias"][0] / (0.25 * svm.arrays["bias"][0])
    assert scale > 1  # the interpolation shrinks margins
    np.testing.assert_allclose(model.arrays["weights"][0], scale * expected, atol=1e-3)


def test_terms_are_cut_as_words_are() -> None:
    cut = re.compile(WORD).findall
    assert cut("i don't know , it's 3.5 stars ...") == (
        ["i", "do", "n't", "know", ",", "it", "'s", "3.5", "stars", "..."]
    )
    assert cut("好看的film!") == ["好", "看", "的", "film", "!"]
    assert cut("a\ud800b") == ["a", "b"]  # what no file of terms can hold


def test_pairs_of_words_are_seen() -> None:
    texts = ["not good", "good not"] * 8
    numbers = np.array([0, 1] * 8)
    for name in BASELINES:
        model = make(name, 2, inverse_penalty=10).fit(texts, numbers)
        assert model.probabilities(texts).argmax(1).tolist() == numbers.tolist()


def test_an_unknown_text_is_answered_by_the_bias() -> None:
    model = make("tfidf", 2).fit(*texts_of(2, 41, seed=6))
    bias = model.arrays["bias"][0]
    np.testing.assert_allclose(model.probabilities(["zzz"])[0, 1], 1 / (1 + np.exp(-bias)))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("missing", [[1], [0], [3], [0, 2], [1, 3]])
def test_a_label_without_a_text_is_never_said(name: str, missing: list[int]) -> None:
    texts, numbers = texts_of(4, 120, seed=8)
    chosen = ~np.isin(numbers, missing)
    learned = [text for text, keep in zip(texts, chosen, strict=True) if keep]
    model = make(name, 4, inverse_penalty=30).fit(learned, numbers[chosen])
    said = model.probabilities(learned)
    assert (said.argmax(1) == numbers[chosen]).mean() > 0.95
    for answers in (said, model.probabilities(["the film", "", "zzz"])):
        assert answers[:, missing].max() < 1e-6
        np.testing.assert_allclose(answers.sum(1), 1, rtol=1e-6)


def test_a_label_without_a_text_is_not_said_where_no_label_fits() -> None:
    chance = np.random.default_rng(9)
    numbers = chance.integers(1, 20, size=400)
    texts = [f"word{number} " + " ".join(chance.choice(FILLER, 40)) for number in numbers]
    model = make("nb-svm", 20).fit(texts, numbers)
    assert (model.probabilities([" ".join(FILLER)] * 3).argmax(1) > 0).all()


@pytest.mark.parametrize("name", BASELINES)
def test_what_it_cannot_learn_from_is_said(name: str) -> None:
    with pytest.raises(RegardError, match="at least two labels, not 1; add texts"):
        make(name, 2).fit(["a", "b"], np.array([0, 0]))
    with pytest.raises(RegardError, match="add texts or set minimum=1"):
        make(name, 2, minimum=2).fit(["one", "two", "three"], np.array([0, 1, 1]))
    with pytest.raises(RegardError, match="is not fitted"):
        make(name, 2).probabilities(["one"])


def test_a_damaged_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"baseline\.json cannot be read"):
        Tfidf.load(tmp_path)
    make("tfidf", 2).fit(*texts_of(2, 41, seed=7)).save(tmp_path)
    with pytest.raises(RegardError, match="contains tfidf, not nb-svm"):
        NaiveBayesSVM.load(tmp_path)
    (tmp_path / "terms.txt").write_text("one\n")
    with pytest.raises(RegardError, match="do not match"):
        Tfidf.load(tmp_path)
    description = json.loads((tmp_path / "baseline.json").read_text())
    (tmp_path / "baseline.json").write_text(json.dumps({**description, "baseline": "tfdif"}))
    with pytest.raises(RegardError, match="contains tfdif, not tfidf"):
        Tfidf.load(tmp_path)
    (tmp_path / "baseline.json").write_text("[]")
    with pytest.raises(RegardError, match="is not a JSON object"):
        Tfidf.load(tmp_path)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("labels", [2, 3])
def test_a_weight_of_two_is_every_text_twice(name: str, labels: int) -> None:
    texts, numbers = texts_of(labels, 60, seed=2)
    # The same terms, and for NB-SVM the same counts, so that only the loss differs.
    weights = np.ones(labels)
    weights[1] = 2.0
    model = make(name, labels, ngrams=1, minimum=1, inverse_penalty=1.0)
    counts = model._counter(min_df=1).fit(texts).transform(texts)
    none = np.zeros((len(texts), 0))  # no further columns
    if name == "tfidf":
        model.learn(counts, none, numbers, weights[numbers])
        twice = LogisticRegression(C=1.0, max_iter=1000, class_weight={1: 2.0})
        twice.fit(model.features(counts), numbers)
        assert model.arrays["weights"] == pytest.approx(twice.coef_, abs=1e-4)
        return
    even = make(name, labels, ngrams=1, minimum=1, inverse_penalty=1.0)
    even.learn(counts, none, numbers, None)
    model.learn(counts, none, numbers, weights[numbers])
    mine = numbers == 1
    column = 0 if labels == 2 else 1
    before, after = (
        (m.features(counts) @ m.arrays["weights"].T + m.arrays["bias"])[:, column]
        for m in (even, model)
    )
    loss = [float((np.maximum(0, 1 - x[mine]) ** 2).sum()) for x in (before, after)]
    assert loss[1] < loss[0], "texts that weigh more are fitted better"


def test_fasttext_says_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.lab.tasks.baselines.find_spec", lambda name: None)
    with pytest.raises(RegardError, match="not installed: pip install fasttext-wheel"):
        MODELS["fasttext"].build(FastTextSettings(), vocabulary=0, labels=2)


def test_fasttext_learns_is_loaded_and_refuses_damaged_files(tmp_path: Path) -> None:
    pytest.importorskip("fasttext")
    entry = MODELS["fasttext"]
    texts, numbers = texts_of(3, 97, seed=0)
    texts[0] += " __label__7"  # no label of its own
    model, same = (
        entry.build(entry.configure({"width": 8}), vocabulary=0, labels=4).fit(texts, numbers)
        for _ in range(2)
    )
    news, truth = texts_of(3, 31, seed=1)
    chances = model.probabilities([*news, ""])
    assert (chances[:-1].argmax(1) == truth).mean() > 0.9
    assert chances.sum(1) == pytest.approx(np.ones(32))
    assert not chances[:-1, 3].any(), "a label without a text"
    assert np.array_equal(chances, same.probabilities([*news, ""]))
    with pytest.raises(RegardError, match="leave class_weights out"):
        model.fit(texts, numbers, np.ones(4))
    model.save(tmp_path)
    assert entry.load is not None
    assert np.array_equal(entry.load(tmp_path).probabilities([*news, ""]), chances)
    content = (tmp_path / "model.bin").read_bytes()
    for damaged in (b"", b"x" * 200, content[: len(content) // 2], content[:8] + content[16:]):
        (tmp_path / "model.bin").write_bytes(damaged)
        with pytest.raises(RegardError, match=r"model\.bin is damaged, or not a model of fastText"):
            entry.load(tmp_path)
    (tmp_path / "model.bin").unlink()
    with pytest.raises(RegardError, match=r"model\.bin"):
        entry.load(tmp_path)
