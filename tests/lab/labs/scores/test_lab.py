"""The scores lab: its arms, what it claims, and one small run from end to end."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.attention import NORMALIZERS, SCORES, Attention, make_score
from regard.core.errors import RegardError
from regard.core.settings import key_of
from regard.lab.data.symbols import Recall
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.comparison import BEHIND, UNCLEAR, Plan, Result
from regard.lab.labs.lab import Findings
from regard.lab.labs.scores import figures, findings
from regard.lab.labs.scores.arms import EVERY, FEW, ONCE, REFERENCE, name_of, pair_of
from regard.lab.labs.scores.lab import LAB, READING, RECALLING, SORTED
from regard.lab.reports.markup import Html
from regard.lab.runs import Config
from regard.lab.runs.build import build_network

PAIRS = next(one for one in LAB.members if one.name == "recall-pairs")


def result(means: dict[str, float], ladder: list[dict[str, Any]] | None = None) -> Result:
    """Arms with an interval of ±2 points; a difference of more than 10 points has evidence."""
    plan = RECALLING.lab.plan(LabRequest())
    base = means.get(REFERENCE, 0.0)
    arms = [
        {"name": name, "mean": mean, "low": mean - 0.02, "high": mean + 0.02, "seconds": 1.0}
        for name, mean in means.items()
    ]
    verdicts = [
        {"a": name, "b": REFERENCE, "difference": mean - base,
         "p": 0.01 if abs(mean - base) > 0.1 else 0.5}
        for name, mean in means.items() if name != REFERENCE
    ]  # fmt: skip
    record = {"metric": "accuracy", "arms": arms, "verdicts": [*verdicts, *(ladder or [])]}
    return Result(plan, Path(), record, [])


def planned(member: Any, *pairs: str) -> Plan:
    plan: Plan = member.lab.plan(LabRequest(overrides=pairs))
    return plan


def test_every_row_of_both_tables_once() -> None:
    assert name_of(*ONCE[0]) == REFERENCE
    assert {score for score, _ in ONCE} == set(SCORES)
    assert {name for _, name in ONCE} == set(NORMALIZERS)
    assert len(ONCE) == len(set(ONCE)) == len(SCORES) + len(NORMALIZERS) - 1
    assert ("boxcar", "sum") in ONCE
    assert ("boxcar", "softmax") not in ONCE
    for member in (RECALLING, SORTED, READING):
        names = [arm.name for arm in member.lab_of("quick").plan(LabRequest()).arms]
        assert names == [name_of(*pair) for pair in ONCE], member.name
    assert [pair_of(name_of(*pair)) for pair in EVERY] == EVERY


def test_all_pairs_and_those_of_the_short_version() -> None:
    assert len(EVERY) == len(set(EVERY)) == len(SCORES) * len(NORMALIZERS)
    assert len(planned(PAIRS).arms) == len(EVERY)
    few = [arm.name for arm in PAIRS.lab_of("quick").plan(LabRequest()).arms]
    assert sorted(few) == sorted(name_of(*pair) for pair in FEW)
    assert few[0] == REFERENCE
    assert planned(PAIRS).ladder == [findings.TOGETHER]
    assert {*findings.TOGETHER} <= {name_of(*pair) for pair in FEW}


def test_the_user_selects_rows() -> None:
    some = planned(RECALLING, "scores=dot", "normalizers=sink,softmax")
    assert [arm.name for arm in some.arms] == [REFERENCE, "dot", "× sink"]
    assert some.arms[1].overrides == ("score=dot", "normalize=softmax")
    assert "scores=dot" not in some.overrides
    pairs = planned(PAIRS, "scores=dot", "normalizers=sink,top-k")
    assert [arm.name for arm in pairs.arms] == [REFERENCE, "dot × sink", "dot × top-k"]
    assert pairs.arms[-1].overrides == ("score=dot", "normalize=top-k-4")
    assert pairs.ladder == []


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("scores=dto", "no score is called 'dto'; did you mean dot"),
        ("scores=dot,", "scores=dot,: give names with commas between, each once"),
        ("scores=dot,dot", "each once"),
        ("normalizers=sofmax", "no normalizer is called 'sofmax'; did you mean softmax"),
        ("normalizers=sum,,sink", "normalizers=sum,,sink: give names"),
        ("only=recal", "only=recal: 'recal' is not one of recall, sorting, reviews"),
        ("rates=0.1", "rates"),
    ],
)
def test_bad_settings_are_one_line_before_any_training(
    pair: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(RegardError, match=says) as error:
        LAB.run(LabRequest(out=tmp_path, overrides=[pair]), lambda says: None, lambda *given: None)
    assert "\n" not in str(error.value)
    assert not [*tmp_path.rglob("config.toml")]


def test_a_score_of_ones_own_that_cannot_be_made_stops_the_lab_before_it_trains(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text("x = 1")
    request = LabRequest(out=tmp_path, overrides=[f"scores={tmp_path / 'mine.py'}:Mine"])
    with pytest.raises(RegardError, match="Mine"):
        open_lab("scores").run(request, lambda says: None, lambda *given: None)
    assert not [*tmp_path.rglob("config.toml")]


@pytest.mark.parametrize("member", [RECALLING, SORTED, READING], ids=lambda member: member.name)
def test_every_arm_has_its_score_and_its_normaliser(member: Any) -> None:
    """The settings reach the network, and nothing but the attention differs between arms."""
    plan = member.lab.plan(LabRequest())
    outside = set()
    for arm in plan.arms:
        score, name = pair_of(arm.name)
        config = Config.make(plan.task, arm.model, [*plan.overrides, *arm.overrides])
        network = build_network(config, vocabulary=8, labels=2)
        kinds = {type(part) for part in network.modules()}
        assert type(make_score(score, "none", 8, 8, heads=1, length=8)) in kinds, arm.name
        assert NORMALIZERS[name] in kinds or name == "softmax", arm.name
        own = {"score", "normalize"}
        assert {key_of(pair) for pair in arm.overrides} == own
        shared = {
            (key, tuple(value.shape))
            for key, value in network.state_dict().items()
            if ".score." not in key and ".normalize" not in key
        }
        outside.add(frozenset(shared))
    assert len(outside) <= 2, "attention with or without a projection of keys"


def test_synthesizers_read_no_key_and_boxcar_gives_no_gradient() -> None:
    """The claims of the lab name these scores."""
    keys, others, values = torch.randn(3, 1, 1, 6, 8)
    queries = torch.randn(1, 1, 6, 8, requires_grad=True)
    for name in (name for name in SCORES if name.startswith(findings.SYNTHESIZERS)):
        attention = Attention(make_score(name, "none", 8, 8, heads=1, length=6), heads=1)
        one, other = (attention(queries, some, values).weights for some in (keys, others))
        torch.testing.assert_close(one, other)
    values.requires_grad_()
    for name, has_gradient in (("boxcar", False), ("epanechnikov", True)):
        score = make_score(name, "none", 8, 8, heads=1, length=6)
        output = Attention(score, "sum", heads=1)(queries, queries.detach() + 0.1, values).output
        (gradient,) = torch.autograd.grad(output.sum(), queries, allow_unused=True)
        assert has_gradient == (gradient is not None and bool(gradient.any())), name


def test_rows_and_the_overview_say_what_has_evidence() -> None:
    one = findings.rows("recall", result({REFERENCE: 0.9, "dot": 0.5, "× sink": 0.91}))
    assert one == [
        ["recall", REFERENCE, "90.0", "", ""],
        ["recall", "dot", "50.0", "−40.0", BEHIND],
        ["recall", "× sink", "91.0", "+1.0", UNCLEAR],
    ]
    two = findings.rows("sorting", result({REFERENCE: 0.1, "dot": 0.5}))
    pairs = findings.rows("recall-pairs", result({REFERENCE: 0.1, "dot × sum": 0.5}))
    columns, table = findings.overview([*one, *two, *pairs])
    assert columns == ["arm", "recall", "sorting"]
    assert table == [
        [REFERENCE, "90.0", "10.0"],
        ["dot", "50.0 (−40.0*)", "50.0 (+40.0*)"],
        ["× sink", "91.0 (+1.0)", "–"],
    ]
    assert findings.overview(pairs)[0] == ["arm", "recall-pairs"], "with only= these"
    assert answer([*one, *two]) == [
        f"recall: {REFERENCE} 90.0 %; behind with evidence: dot 50.0 %; no evidence of a "
        "difference for all others (1).",
        f"sorting: {REFERENCE} 10.0 %; ahead with evidence: dot 50.0 %.",
    ]
    same = findings.rows("recall", result({REFERENCE: 0.9, "dot": 0.9}))
    assert answer(same)[0].endswith("a difference for any of the others (1).")


def answer(rows: list[Any]) -> list[str]:
    """The sentences of the page about rows."""
    return [*findings.summary(rows).described(LAB.page).answer]


def test_many_arms_are_named_by_what_they_share() -> None:
    names = ("softmax", "sink", "sigmoid")
    low = {name_of(score, name): 0.1 for score in ("dot", "boxcar", "additive") for name in names}
    low |= {"× sink": 0.1, "× sigmoid": 0.9}
    (says,) = answer(findings.rows("all-pairs", result({REFERENCE: 0.9, **low})))
    assert "behind with evidence (10): dot, boxcar, additive with every normaliser; " in says
    assert "sink with every score" in says
    low["boxcar"], low["boxcar × sigmoid"] = 0.9, 0.086
    (says,) = answer(findings.rows("all-pairs", result({REFERENCE: 0.9, **low})))
    assert "(9): dot, additive with every normaliser; sink with every score; boxcar × s" in says
    low |= {"boxcar × sigmoid": 0.2, "x": 0.1}
    (says,) = answer(findings.rows("all-pairs", result({REFERENCE: 0.9, **low})))
    assert "2 others from boxcar × sigmoid 20.0 % to x 10.0 %" in says


def words(found: Findings, page: str = "member.md") -> dict[str, str]:
    """The sentence of each claim on a page."""
    drawn = {name: Html("<svg/>") for name in ("costs", "learning", "grid")}
    shown = {"pairs.md": ("grid",)}.get(page, ("costs", "learning"))
    whole = Findings.joined([found, Findings({}, {}, {name: drawn[name] for name in shown})])
    described = whole.described(Path(findings.__file__).with_name(page))
    return dict(zip(found.claims, (one["says"] for one in described.claims), strict=True))


def holds(found: Findings) -> list[bool]:
    """Whether each claim holds."""
    return [held for _, held in found.claims.values()]


def test_claims_speak_of_the_numbers() -> None:
    means = {
        REFERENCE: 0.9, "synthesizer": 0.08, "boxcar × sum": 0.1, "epanechnikov × sum": 0.5,
        "× sparsemax": 0.3, "gaussian": 0.9,
    }  # fmt: skip
    recall = findings.recall_claims(result(means))
    assert recall.claims == {
        "match": (0.08, True), "gradient": (0.1, True), "normalisers": (1, True)
    }  # fmt: skip
    says = words(recall)
    assert "the best guess by the place of a question on 2" in says["match"], "8 pairs: 22 %"
    assert "epanechnikov × sum, with as short a reach, 50.0 %" in says["gradient"]
    assert says["normalisers"].endswith("1 of 1, × sparsemax (behind)")
    sorting = findings.sorting_claims(result(means))
    assert holds(sorting) == [False, True, True]
    assert sorting.claims["all-keys"][0] == 1
    assert words(sorting)["all-keys"].endswith("(90.0 %) with evidence: × sparsemax (30.0 %)")
    reviews = findings.reviews_claims(result(means))
    assert reviews.claims["order"] == (0.9, True)
    assert "passes 73.0 % of the reviews" in words(reviews)["order"]
    changed = means | {"synthesizer": 0.5, "boxcar × sum": 0.85, "× sparsemax": 0.9}
    assert holds(findings.recall_claims(result(changed))) == [False] * 3
    changed = means | {REFERENCE: 0.74, "synthesizer": 0.7, "× sparsemax": 0.7}
    assert holds(findings.sorting_claims(result(changed))) == [True, False, False]
    assert not holds(findings.reviews_claims(result(changed)))[0], "its interval includes 73 %"


def test_a_guess_by_place_knows_where_a_key_stands_and_nothing_more() -> None:
    assert findings.guess_by_place(Recall(6, 1), 4) == 1, "the only pair"
    assert 0.25 < findings.guess_by_place(Recall(32, 4), 160) < 0.32, "many places: chance"
    assert findings.guess_by_place(Recall(64, 8), 32) == pytest.approx(0.218, abs=0.01)


def test_a_score_and_a_normaliser_act_together_if_there_is_evidence() -> None:
    means, (bounded, wide) = (
        {REFERENCE: 0.9, "× sparsemax": 0.4, "cosine × sparsemax": 0.8},
        (findings.TOGETHER),
    )
    ladder = {"a": bounded, "b": wide, "difference": 0.4, "low": 0.3, "high": 0.5, "p": 0.01}
    one = findings.pairs_claims(result(means, [ladder]))
    assert one.claims == {"together": (0.4, True)}
    says = words(one, "pairs.md")["together"]
    assert "40.0 % with scaled-dot and 80.0 % with cosine" in says
    assert says.endswith("(40.0 points, 30.0 to 50.0)")
    assert holds(findings.pairs_claims(result(means, [{**ladder, "p": 0.2}]))) == [False]
    assert holds(findings.pairs_claims(result(means, [{**ladder, "difference": -0.4}]))) == [False]
    assert findings.pairs_claims(result(means)).claims == {}


def test_nothing_is_claimed_of_arms_that_were_not_run() -> None:
    same = result({REFERENCE: 0.5, "dot": 0.5})
    assert findings.recall_claims(same).claims == findings.sorting_claims(same).claims == {}
    assert findings.reviews_claims(result({})).claims == {}


def test_a_grid_has_a_cell_for_each_pair_that_was_run() -> None:
    means = {REFERENCE: 0.9, "× sum": 0.4, "dot": 0.2}
    page = str(figures.grid(result(means)))
    assert "2 by 2 cells from 20 to 90" in page
    costs = str(figures.costs(result(means)))
    assert "dot: 1, 20.0" in costs
    assert "× sum" not in costs, "normalisers are not in the chart of costs"


@pytest.mark.usefixtures("one_process")
def test_the_lab_from_end_to_end(tmp_path: Path) -> None:
    settings = ["scores=dot", "normalizers=sum", "steps=2", "width=8", "feedforward=8",
                "threads=1", "only=recall,recall-pairs", "examples=60", "held_out=20"]  # fmt: skip
    record = LAB.run(
        LabRequest(seeds=2, out=tmp_path, overrides=settings), lambda says: None,
        lambda *given: None,
    )  # fmt: skip
    assert [row[0] for row in record["tables"][0]["rows"]] == [REFERENCE, "dot", "× sum"]
    parts = record["parts"]
    assert {v["b"] for part in parts.values() for v in part["verdicts"]} == {REFERENCE}
    assert [arm["name"] for arm in parts["recall-pairs"]["arms"]] == [REFERENCE, "dot × sum"]
    page = Path(record["report"]).read_text(encoding="utf-8")
    assert page.count("<svg") == 3 + 2  # intervals, costs and curves; intervals and grid
    assert "a network without attention" in page
