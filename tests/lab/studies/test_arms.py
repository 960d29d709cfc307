import pytest

from regard.core.errors import RegardError
from regard.lab.studies.arms import Arm, check_arms, parse_arm, parse_arms
from regard.lab.tasks.models import MODELS


def test_every_model_is_an_arm_with_a_folder_of_its_own() -> None:
    arms = parse_arms([",".join(MODELS)])
    assert [arm.model for arm in arms] == list(MODELS)
    assert len({arm.folder for arm in arms}) == len(MODELS)
    assert [arm.name for arm in arms if arm.deterministic] == [
        "frozen",
        "tfidf",
        "nb-svm",
        "fasttext",
        "static",
        "sentence",
    ]


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["mean,cnn"], ["mean", "cnn"]),
        (["mean", "cnn"], ["mean", "cnn"]),
        (["mean; cnn ,rnn"], ["mean", "cnn", "rnn"]),
        (["rnn:width=8,layers=2,cnn"], ["rnn:width=8,layers=2", "cnn"]),
        (["rnn:width=8,rnn:width=9"], ["rnn:width=8", "rnn:width=9"]),
        (["rnn:width=8;rnn"], ["rnn:width=8", "rnn"]),
        (["rnn : width=8 , cnn"], ["rnn:width=8", "cnn"]),
        (["cnn,rnn:width=8,vectors=my.py:A"], ["cnn", "rnn:width=8,vectors=my.py:A"]),
        (["cnn:widths=3,4,filters=9,rnn"], ["cnn:widths=3,4,filters=9", "rnn"]),
        (["tfidf:class_weights=bad:3,so:1.5,rnn"], ["tfidf:class_weights=bad:3,so:1.5", "rnn"]),
        (["tfidf:class_weights=a:.5,b:1e-1,rnn"], ["tfidf:class_weights=a:.5,b:1e-1", "rnn"]),
    ],
)
def test_arms_are_split_where_people_mean_it(texts: list[str], names: list[str]) -> None:
    assert [arm.name for arm in parse_arms(texts)] == names


def test_settings_of_an_arm() -> None:
    assert parse_arm("cnn:widths=3,4,filters=9").overrides == ("widths=3,4", "filters=9")
    assert parse_arm("transformer:score=additive,heads=2") == Arm(
        "transformer:score=additive,heads=2", "transformer", ("score=additive", "heads=2")
    )


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["mean,maen"], "did you mean mean"),
        (["mean"], "at least two arms, not 1"),
        ([""], "at least two arms, not 0"),
        (["mean,4"], "no model is called '4'"),
        (["mean,cnn,mean"], "two arms are named 'mean'"),
        (["rnn:,cnn"], "settings must follow the colon"),
        (["rnn:wide,cnn"], "key=value, not 'wide'"),
    ],
)
def test_arms_that_are_none(texts: list[str], says: str) -> None:
    with pytest.raises(RegardError) as caught:
        parse_arms(texts)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("task", "given", "example"),
    [
        ("classification", [], "--arms mean,attention-pool; the models of this task are: mean, "),
        (
            "reverse",
            ["transformer"],
            "--arms transformer,gru; the models of this task are: ",
        ),
        ("reverse", ["gru:width=8"], "--arms gru:width=8,gru; "),
        ("language-modeling", ["gpt"], "--arms gpt,gpt:layers=2; the models of this task are: gpt"),
    ],
)
def test_too_few_arms_are_answered_by_models_of_the_task(
    task: str, given: list[str], example: str
) -> None:
    with pytest.raises(RegardError) as caught:
        parse_arms(given, task)
    assert f"at least two arms, not {len(given)}; give {example}" in str(caught.value)


def test_folders_are_safe_and_distinct() -> None:
    names = ["a/b", "a:b", "a\\b", "a b", "a.b", "..", "a=b", "a~b", "a,b", "é", "aé"]
    folders = [Arm(name, "mean").folder for name in names]
    assert len(set(folders)) == len(names)
    assert all(set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789~+-_") for folder in folders)


def test_long_names_are_cut_and_stay_distinct() -> None:
    settings = ",".join(f"setting_{i}=value" for i in range(14))
    one, other = (Arm(f"transformer:{settings},x={i}", "transformer").folder for i in (1, 2))
    assert len(one) == len(other) == 198
    assert one != other
    assert one.startswith("transformer~3asetting_0~3dvalue")


def test_names_that_only_differ_in_case_are_one_folder_on_some_systems() -> None:
    with pytest.raises(RegardError, match="two arms"):
        check_arms([Arm("rnn:vectors=A", "rnn"), Arm("rnn:vectors=a", "rnn")])
