"""Names and settings: every mistake is one line that helps."""

import pytest

from regard.core.errors import RegardError, look_up
from regard.core.settings import Settings, build, split


class Model(Settings):
    width: int = 8
    dropout: float = 0.0


class Trainer(Settings):
    steps: int = 0
    learning_rate: float = 1e-3


def test_look_up_offers_the_nearest() -> None:
    assert look_up({"dot": 1}, "dot", "score") == 1
    with pytest.raises(RegardError, match=r"no score is called 'dott'; did you mean dot\?"):
        look_up({"dot": 1, "additive": 2}, "dott", "score")


def test_each_setting_goes_to_its_owner() -> None:
    assert split(["width=16", "steps = 5"], Model, Trainer) == [{"width": "16"}, {"steps": "5"}]
    assert build(Model, {"width": "16"}) == Model(width=16)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["width"], "settings are written key=value, not 'width'"),
        (["widht=3"], "no setting is called 'widht'; did you mean width?"),
        (["width=3", "width=4"], "width is set twice"),
        (["lr=0.1"], "no setting is called 'lr'; did you mean learning_rate? There are: "),
        (["d-model=8"], "no setting is called 'd_model'; did you mean width? There are: "),
        (["num_layers=2"], "no setting is called 'num_layers'; there are: dropout, "),
    ],
)
def test_mistaken_settings(pairs: list[str], says: str) -> None:
    with pytest.raises(RegardError) as error:
        split(pairs, Model, Trainer)
    assert says in str(error.value)


def test_a_value_of_the_wrong_kind_names_its_key() -> None:
    with pytest.raises(RegardError, match="width='wide': must be a whole number"):
        build(Model, {"width": "wide"})
    with pytest.raises(RegardError, match="no setting is called 'depth'"):
        build(Model, {"depth": 3})
