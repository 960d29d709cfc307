"""The kernel regression lab: the built-in points, a table of one's own, bad input."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.core.settings import build
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.kernel_regression import lab as kernel_regression
from regard.lab.labs.kernel_regression import memory as kernel_memory
from regard.lab.labs.kernel_regression.arms import best_neighbors, fixed_name
from regard.lab.labs.kernel_regression.points import KernelRegressionSettings, load

QUICK = ("steps=60",)


def done(
    folder: Path, *overrides: str, data: str = "", keys: int = 0
) -> tuple[dict, str, list[str]]:
    """The lab's record, its report and what it said."""
    said: list[str] = []
    shown: list[str] = []
    request = LabRequest(
        data=data, out=folder / "out", overrides=[f"keys={keys}", *QUICK, *overrides]
    )
    record = open_lab("kernel-regression").run(
        request, said.append, lambda a, b, what: shown.append(what)
    )
    assert "grid search" in shown
    json.dumps(record, allow_nan=False)
    return record, Path(record["report"]).read_text(encoding="utf-8"), said


def settings(**given: object) -> KernelRegressionSettings:
    return build(KernelRegressionSettings, given)


def table(folder: Path, rows: int = 300, seed: int = 0) -> Path:
    """a matters, b hardly, c = 3 sin a + 0.02 b + noise."""
    draw = np.random.default_rng(seed)
    a, b = draw.normal(0, 2, rows), draw.normal(50, 10, rows)
    c = 3 * np.sin(a) + 0.02 * b + draw.normal(0, 0.3, rows)
    path = folder / "t.csv"
    np.savetxt(path, np.stack([a, b, c], 1), "%.6f", ",", header="a,b,c", comments="")
    return path


@pytest.mark.deep
def test_on_the_built_in_points(tmp_path: Path) -> None:
    record, report, said = done(tmp_path, keys=4000)
    loop, beats, grid, _ = record["claims"]
    assert "4,000 keys fit in O(n) memory" in report
    assert all(claim["holds"] for claim in record["claims"])
    assert loop["value"] < 1e-12
    assert grid["value"] == pytest.approx(1, abs=0.1)
    left = {arm["name"]: arm["mean"] for arm in record["arms"]}
    assert beats["value"] == pytest.approx(left["Gaussian, w = 1"] - left["Gaussian, learned"])
    assert 0.15 < left["Gaussian, learned"] < 0.35 < left["Gaussian, w = 1"] < 0.7 < left["average"]
    assert left["cosine"] == pytest.approx(left["average"])
    assert left["k-nearest"] == pytest.approx(left["KNeighborsRegressor"])
    assert len(left) == len(record["verdicts"]) + 1 == 11
    assert left["dot"] > left["Gaussian, learned"]
    against = {verdict["b"]: verdict for verdict in record["verdicts"]}
    assert against["average"]["difference"] == pytest.approx(
        left["average"] - left["Gaussian, learned"]
    )
    assert against["average"]["says"].startswith("Gaussian, learned beats average by")
    assert f"{100 * left['Gaussian, learned']:.1f} %" in record["answer"]
    assert report.count("<svg") >= 8 + 10
    assert "step 0: w = 1.00" in report
    assert any("50 points to learn from, 500 held out; x → y" in line for line in said)


def test_the_same_seed_is_the_same_lab_and_another_is_not(tmp_path: Path) -> None:
    found = []
    for seed in ("seed=1", "seed=1", "seed=2"):
        record, *_ = done(tmp_path, seed, "points=12")
        found.append([arm["mean"] for arm in record["arms"]])
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_on_a_table_of_ones_own(tmp_path: Path) -> None:
    path = table(tmp_path)
    record, report, _ = done(tmp_path, "x=a,b", "y=c", data=str(path))
    assert all(claim["holds"] for claim in record["claims"])
    assert "a matters most: without it" in record["answer"]
    (columns,) = [x for x in record["tables"] if x["title"] == "Columns"]
    (a, b) = (dict(zip(columns["columns"], row, strict=True)) for row in columns["rows"])
    assert a["w per standard deviation"] > 3 * b["w per standard deviation"]
    assert a["w"] * a["width"] == pytest.approx(1)
    assert a["left % without it"] > b["left % without it"] + 30
    assert "Said and true" in report
    assert "c, true" in report


def test_one_column_of_a_table_is_drawn_as_a_curve(tmp_path: Path) -> None:
    record, report, _ = done(
        tmp_path, "x=a", "y=c", "neighbors=3", "w=2", data=str(table(tmp_path))
    )
    assert "w = 2 leaves" in record["answer"]
    assert "Gaussian, w = 2" in report
    assert "as set" in report
    assert "The fit while w is learned" in report


def test_w_of_a_table_is_in_standard_deviations_unless_told(tmp_path: Path) -> None:
    path = str(table(tmp_path))
    own = load(settings(data=path, w=2))
    assert own.unit == pytest.approx(own.x.std(0) / 2)
    assert load(settings(data=path, w=2, standardize=False)).unit.tolist() == [0.5, 0.5]
    assert load(settings(w=2)).unit.tolist() == [0.5]
    assert load(settings(standardize=True)).unit == pytest.approx(load(settings()).x.std(0))


def test_no_point_is_learned_from_and_held_out(tmp_path: Path) -> None:
    points = load(settings(data=str(table(tmp_path)), held_out=0.3, seed=4))
    assert (len(points.x), len(points.new_x)) == (210, 90)
    both = {tuple(row) for row in points.x} | {tuple(row) for row in points.new_x}
    assert len(both) == 300


def test_missing_numbers_constant_columns_and_equal_rows_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    rows = [f"{i % 7},5,{(i % 7) ** 2}" for i in range(60)]
    path.write_text("a,flat,c\n" + "\n".join([*rows, "3,5,", "4,5,NA"]) + "\n")
    record, report, said = done(tmp_path, data=str(path))
    where = "odd.csv:62: missing number in column 'c' first"
    assert f"note: 2 rows were left out for a missing number ({where})" in said
    assert "note: flat: the same in every row, so without a say" in said
    assert any("have the x of an earlier one" in line for line in said)
    assert "without a say" in report
    assert all(math.isfinite(arm["mean"]) for arm in record["arms"])


def test_columns_that_never_change_leave_the_average(tmp_path: Path) -> None:
    path = tmp_path / "flat.csv"
    path.write_text("a,c\n" + "".join(f"1,{i % 5}\n" for i in range(40)))
    record, *_ = done(tmp_path, data=str(path))
    left = {arm["name"]: arm["mean"] for arm in record["arms"]}
    assert left["Gaussian, learned"] == pytest.approx(left["average"])
    assert not record["claims"][1]["holds"]


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        ("a,c\n1,2\n", [], "one row with all numbers; to learn and to hold out takes 10 or more"),
        ("a,c\n1,2\n3,4\n", [], "2 rows with all numbers"),
        ("a,c\n" + "1,2\n" * 20, [], "'c' is 2 in every row: nothing to learn"),
        ("a,c\n1,2\n3,x\n", [], r"bad\.csv:3: column 'c' must be numeric, not 'x'"),
        ("a,c\n1,2\n3,inf\n", [], r"bad\.csv:3: column 'c' must be numeric, not infinity"),
        ("a,c\n" + "1,2\n,3\n" * 20, [], r"bad\.csv:3: missing number in column 'a'; 20 of 40"),
        ("", [], r"bad\.csv: the file is empty"),
        ("a,c\n1,2\n", ["x=a,z"], r"bad\.csv: unknown column 'z'; columns: 'a', 'c'"),
        ("a,c\n1,2\n", ["x=a,c", "y=c"], "y=c is also in x=a,c"),
        ("a,c\n1,2\n", ["w=0"], "w='0': must be greater than 0"),
        ("a,c\n1,2\n", ["w=-1"], "w='-1': must be greater than 0"),
        ("a,c\n1,2\n", ["w=wide"], "w='wide': must be a number"),
        ("a,c\n1,2\n", ["width=2"], "no setting is called 'width'"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, text: str, overrides: list[str], says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(RegardError, match=says) as error:
        done(tmp_path, *overrides, data=str(path))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_columns_of_built_in_points_are_refused() -> None:
    with pytest.raises(RegardError, match=r"give one by --data FILE\.csv"):
        load(settings(x="a"))
    with pytest.raises(RegardError, match="no such file"):
        load(settings(data="nowhere.csv"))


def test_the_best_neighbours_are_those_of_a_plain_loop() -> None:
    points = load(settings(points=30))
    errors = []
    for k in range(1, 30):
        wrong = 0.0
        for i, x in enumerate(points.x[:, 0]):
            far = [(abs(x - other), j) for j, other in enumerate(points.x[:, 0]) if j != i]
            wrong += (np.mean([points.y[j] for _, j in sorted(far)[:k]]) - points.y[i]) ** 2
        errors.append(wrong)
    assert best_neighbors(points, 0) == 1 + int(np.argmin(errors))


def test_many_keys_in_a_process_of_its_own() -> None:
    cost = kernel_memory.measure(60_000)
    assert cost.keys == 60_000
    assert 0 < cost.seconds < 60
    assert 0 < cost.extra_mb < 200  # the table would take 240
    part = kernel_regression.many_keys(4000)
    _, rows = part.tables["many-keys"]
    assert [row[0] for row in rows] == ["1,000", "4,000"]
    assert part.values["many"].keys == 4000


def test_names_say_the_w_that_is_given() -> None:
    assert fixed_name(settings(w=0.25)) == "Gaussian, w = 0.25"
