"""What a search draws: of each arm, the same for the same seed, and nothing that is given."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, create_trial

from regard.core.errors import RegardError
from regard.core.ranges import Choice, LogUniform, Uniform
from regard.lab.studies.arms import Arm, parse_arms
from regard.lab.studies.search import Search, Space

SPACE: Space = {"learning_rate": LogUniform(1e-4, 1e-2), "ngrams": Choice(("1", "2", "3"))}

EVERYTHING = "dropout=0 word_dropout=0 init_std=1 learning_rate=1 weight_decay=1".split()


def spaces(arms: str, *space: str, given: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    return Search(3, space=space).spaces("classification", parse_arms([arms]), given)


def test_each_arm_has_its_own_space_and_what_is_given_is_not_searched() -> None:
    found = spaces("mean,cnn:dropout=0.1,tfidf:ngrams=1", given=("init_std=0.2", "minimum=2"))
    assert list(found["mean"]) == ["dropout", "learning_rate", "weight_decay", "word_dropout"]
    assert list(found["cnn:dropout=0.1"]) == ["learning_rate", "weight_decay", "word_dropout"]
    assert list(found["tfidf:ngrams=1"]) == ["inverse_penalty"]


def test_pretrained_weights_are_fine_tuned_at_rates_of_their_own() -> None:
    found = spaces("mean;bert:weights=some;frozen:weights=some")
    assert found["bert:weights=some"] == {"learning_rate": LogUniform(1e-5, 1e-4)}
    assert found["frozen:weights=some"] == {}


def test_a_range_takes_the_usual_ones_place_or_joins_them() -> None:
    found = spaces("mean,tfidf", "learning-rate=1e-3..1e-2", "width=8,16", "length=30..40")
    assert found["mean"]["learning_rate"] == LogUniform(1e-3, 1e-2)
    assert found["mean"]["width"] == Choice(("8", "16"))
    assert found["mean"]["length"] == Uniform(30, 40, whole=True)
    assert found["tfidf"].keys() == {"inverse_penalty", "minimum", "ngrams"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"space": ("widht=8,16",)}, "no setting is called 'widht'; did you mean width"),
        ({"space": ("steps=5,9",)}, "steps is not searched: it is the same for every trial"),
        ({"space": ("seed=1..9",)}, "seed is not searched"),
        ({"space": ("validation=0.1,0.2",)}, "validation is not searched"),
        ({"space": ("data=a,b",)}, "data is not searched"),
        ({"space": ("width",)}, "a range is written key=low..high or key=a,b,c, not 'width'"),
        ({"space": ("width=",)}, "a range is written"),
        ({"space": ("width=8,16", "width=2,3")}, "two ranges are given"),
        ({"space": ("width=8,16",), "overrides": ("width=8",)}, "width is given and searched"),
        ({"space": ("filters=3,4",)}, "no setting is called 'filters'"),
        ({"overrides": EVERYTHING}, "there is nothing to search"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(given: dict[str, Any], says: str) -> None:
    search = Search(3, space=given.get("space", ()))
    arms = parse_arms(["mean,attention-pool"])
    with pytest.raises(RegardError) as caught:
        search.spaces("classification", arms, given.get("overrides", ()))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"trials": 1}, "tune=1: a search needs at least two trials"),
        ({"trials": 3, "sampler": "cmaes"}, "unknown sampler 'cmaes'; choose"),
        ({"trials": 3, "seed": -1}, "the seed of a search is 0 or more"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        Search(**given)


def test_tokens_are_not_searched_where_tokens_are_judged() -> None:
    arms = parse_arms("gpt,gpt:layers=2", "language-modeling")
    with pytest.raises(RegardError, match="vocabulary is not searched"):
        Search(2, space=("vocabulary=10,20",)).spaces("language-modeling", arms, ())


DEFAULT = {"learning_rate": "0.001", "ngrams": "2"}


def settings(trial: FrozenTrial, space: Space = SPACE) -> dict[str, str]:
    return {key: space[key].written(value) for key, value in trial.params.items()}


def test_random_draws_are_a_function_of_seed_arm_and_number() -> None:
    def draws(arm: str, numbers: Iterable[int], **given: Any) -> list[dict[str, str]]:
        search = Search(9, **given)
        return [settings(search.suggest(arm, k, SPACE, DEFAULT)) for k in numbers]

    drawn = draws("cnn", range(9))
    assert drawn[0] == DEFAULT
    assert drawn == draws("cnn", range(9))
    assert drawn[4:5] not in (draws("rnn", [4]), draws("cnn", [4], seed=1))
    assert all(where.has(each[key]) for each in drawn[1:] for key, where in SPACE.items())


def test_random_draws_are_spread_as_the_ranges_say() -> None:
    space = {**SPACE, "layers": Uniform(1, 4, whole=True), "dropout": Uniform(0.0, 0.5)}
    drawn = [settings(Search(2).suggest("cnn", k, space, {}), space) for k in range(1, 300)]
    rates = np.array([math.log10(float(each["learning_rate"])) for each in drawn])
    assert rates.mean() == pytest.approx(-3, abs=0.15)
    assert np.mean([float(each["dropout"]) for each in drawn]) == pytest.approx(0.25, abs=0.04)
    for key, values in (("ngrams", "123"), ("layers", "1234")):
        shares = [np.mean([each[key] == value for each in drawn]) for value in values]
        assert shares == pytest.approx([1 / len(values)] * len(values), abs=0.08)


def test_tpe_learns_from_what_it_has_seen_and_is_the_same_again() -> None:
    space = {"learning_rate": LogUniform(1e-4, 1e-2)}
    distribution = FloatDistribution(1e-4, 1e-2, log=True)
    search = Search(99, "tpe")

    def seen(rate: float, score: float) -> FrozenTrial:
        params, distributions = {"learning_rate": rate}, {"learning_rate": distribution}
        return create_trial(params=params, distributions=distributions, value=score)

    def draw(number: int, trials: Sequence[FrozenTrial]) -> float:
        drawn = search.suggest("cnn", number, space, {}, trials)
        return float(settings(drawn, space)["learning_rate"])

    rates = np.geomspace(1.1e-4, 9.9e-3, 24).tolist()
    trials = [seen(rate, -abs(math.log10(rate) + 2.3)) for rate in rates]
    drawn = [draw(k, trials) for k in range(30, 42)]
    assert drawn == [draw(k, trials) for k in range(30, 42)]
    near = np.median([abs(math.log10(each) + 2.3) for each in drawn])
    assert near < 0.15  # 0.65 at random
    failed = [seen(rate, float("-inf")) for rate in rates[:3]]
    assert draw(30, [*failed, *trials[3:]])
    outside = search.suggest("cnn", 0, space, {"learning_rate": "0.5"})
    assert outside.params == {}  # a default that the range leaves out
    assert draw(30, [outside, *trials]) == drawn[0]


def test_batches_of_tpe_do_not_depend_on_how_many_trials_there_are() -> None:
    first = list(Search(9, "tpe").batches())
    assert list(Search(20, "tpe").batches())[: len(first)] == first
    assert [n for batch in Search(20, "tpe").batches() for n in batch] == list(range(20))


def test_a_grid_tries_every_choice_once_and_the_default_first() -> None:
    rates = ("learning_rate=0.0003,0.001,0.003",)
    search = Search(3, "grid", space=rates)
    space = search.spaces("mqar", [Arm("a", "gpt")], [])["a"]
    assert list(space) == ["learning_rate"], "no default ranges"
    default = {"learning_rate": "0.001"}
    tried = [search.suggest("a", k, space, default).params["learning_rate"] for k in range(3)]
    assert tried == ["0.001", "0.0003", "0.003"]
    outside = Search(4, "grid", space=rates)
    default = {"learning_rate": "0.01"}
    assert [outside.suggest("a", k, space, default).params for k in range(4)] == [
        {}, *({"learning_rate": rate} for rate in ("0.0003", "0.001", "0.003"))
    ]  # fmt: skip


def test_a_grid_has_a_trial_for_default_settings_outside_of_it() -> None:
    space = Search(2, "grid", space=("learning_rate=0.001,0.01",)).spaces(
        "mqar", [Arm("a", "gpt")], []
    )["a"]
    for trials, default in ((2, "0.01"), (3, "0.1")):
        Search(trials, "grid").check_grid("a", space, {"learning_rate": default})
    for trials, default, right in ((3, "0.01", 2), (2, "0.1", 3)):
        with pytest.raises(RegardError, match=f"the grid has {right} trials.*give --tune {right}"):
            Search(trials, "grid").check_grid("a", space, {"learning_rate": default})


@pytest.mark.parametrize(
    ("trials", "space", "says"),
    [
        (3, "learning_rate=1e-4..1e-2", "a grid needs values of learning_rate"),
        (5, "learning_rate=0.001,0.01,0.1", "the grid has 3 combinations, not 5"),
    ],
)
def test_a_grid_that_is_none_is_refused(trials: int, space: str, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        Search(trials, "grid", space=(space,)).spaces("mqar", [Arm("a", "gpt")], [])
    with pytest.raises(RegardError, match="a grid needs values: give --tune-space"):
        Search(trials, "grid").spaces("mqar", [Arm("a", "gpt")], [])
