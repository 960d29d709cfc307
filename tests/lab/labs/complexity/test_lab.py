"""The complexity lab: what it counts is what the formulas say, and one small run of it."""

import json
import math
from pathlib import Path

import pytest

from regard.analysis.growth import exponent
from regard.core.settings import build
from regard.lab.labs import LABS, LabRequest, complexity, open_lab
from regard.lab.labs.complexity.fits import briefly, cross, fit
from regard.lab.labs.complexity.layers import LAYERS
from regard.lab.labs.complexity.measures import (
    BOTH,
    FORWARD,
    PATHS,
    ComplexitySettings,
    Counted,
    Measured,
    Waiting,
    count,
    wait_for,
)
from regard.lab.reports.prose import read_page

SMALL = (
    "lengths=16,32,64", "widths=16,32", "kernels=2,3", "d=16", "rank=4", "window=4", "memory=0",
    "budget=0.1s",
)  # fmt: skip


def settings(**values: object) -> ComplexitySettings:
    return build(ComplexitySettings, {"d": 16, "widths": (16, 48), "memory": False, **values})


@pytest.fixture(scope="module")
def waiting() -> Waiting:
    return wait_for(settings(kernel=5, window=60))


def test_counts_by_hand() -> None:
    """k n d², 2 n d², 2 n² d, 4 r n d, and 4 n d² + 2 n² d with projections."""
    of = settings(lengths=(20, 40), kernels=(2, 7), kernel=3, rank=6, window=5, batch=2, heads=2)
    n, d, middle = (20, 40), 16, 40
    found = count(of)
    assert found.over_n["cnn"] == [3 * m * d**2 for m in n]
    assert found.over_n["rnn"] == [2 * m * d**2 for m in n]
    assert found.over_n["self-attention"] == found.over_n["window"] == [2 * m**2 * d for m in n]
    assert found.over_n["linformer"] == [4 * 6 * m * d for m in n]
    assert found.over_d["rnn"] == [2 * middle * w**2 for w in (16, 48)]
    assert found.over_d["linformer"] == [4 * 6 * middle * w for w in (16, 48)]
    assert found.over_k == [k * middle * d**2 for k in (2, 7)]
    assert found.whole[0] == [4 * m * d**2 + 2 * m**2 * d for m in n]
    assert found.whole[1] == [4 * middle * w**2 + 2 * middle**2 * w for w in (16, 48)]
    assert found.layers["cnn"] == found.over_n["cnn"]
    # With two heads of width 8 torch's kernel fills up to 16 columns a head.
    assert found.layers["self-attention"] == [4 * m * d**2 + 2 * 2 * m**2 * 16 for m in n]


@pytest.mark.deep
def test_the_windows_order_is_that_of_long_sequences() -> None:
    counted = count(settings(lengths=(512, 2048, 4096), window=64, kernels=(2, 3)))
    measured = measured_as(counted, lengths=(512, 2048, 4096), window=64)
    fitted = fit(measured, "window")
    assert fitted.lengths == [2048, 4096]
    assert fitted.counted[0] == exponent([2048, 4096], counted.over_n["window"][1:])
    assert fitted.off < 0.05
    assert fitted.says == f"n^{fitted.counted[0]:.2f} d^1.00"
    short = fit(measured_as(counted, lengths=(256, 512, 1024), window=64), "window")
    assert math.isnan(short.counted[0])
    wide = fit(measured_as(counted, lengths=(2048, 4096, 8192), window=256), "window")
    assert wide.lengths == [4096, 8192], "sixteen windows and more"
    assert short.says == "d^1.00"
    assert fit(measured, "self-attention").says == "n^2.00 d^1.00"
    assert fit(measured, "cnn").table_says == "n^1 d^2 k^1"


def measured_as(counted: Counted, **values: object) -> Measured:
    """Times that are 1 ms times n for the RNN and n² / 500 ms for self-attention, in six rounds
    of which each is slower than the one before."""
    of = settings(kernels=(2, 3), **values)
    samples = {
        (how, name, n, of.d): [
            (n if name == "rnn" else n**2 / 500) * 1e-3 * (1 + turn) for turn in range(6)
        ]
        for how in of.passes
        for name in LAYERS
        for n in of.lengths
    }
    memory = {"cnn": [0.0] * (len(of.lengths) - 1) + [0.4]}
    return Measured(of, counted, Waiting({}, {}), memory, samples)


def test_a_crossing_is_found_between_lengths_though_the_machine_slows_down() -> None:
    counted = count(settings(lengths=(16, 32), kernels=(2, 3)))
    layers = {name: [1.0, 2.0, 4.0] for name in LAYERS} | {"self-attention": [0.5, 2.0, 8.0]}
    measured = measured_as(
        Counted(counted.over_n, counted.over_d, counted.over_k, counted.whole, layers),
        lengths=(100, 200, 1000),
    )
    found = cross(measured, "rnn", "self-attention")
    for how in (FORWARD, BOTH):
        assert found.times[how] == pytest.approx((500, 500, 500)), "ratios of a round are steady"
    assert found.operations == pytest.approx(200)


def test_growth_of_what_is_measured() -> None:
    counted = count(settings(lengths=(16, 32), kernels=(2, 3)))
    measured = measured_as(counted, lengths=(2, 4, 8, 16))
    assert measured.grows([x.median for x in measured.times(BOTH, "rnn")]) == pytest.approx(1)
    assert measured.memory_grows("cnn") == pytest.approx(exponent([4, 8, 16], [0.1, 0.1, 0.4]))


@pytest.mark.parametrize(
    ("crossing", "english", "chinese"),
    [
        ((1234, 1100, 1390), "from n ≈ 1,200 on (1,100 to 1,400)",
         "从 n ≈ 1,200 起（1,100 到 1,400）"),
        ((700, 0, math.inf), "from n ≈ 700 on (below 128 to above 4,096)",
         "从 n ≈ 700 起（低于 128 到 高于 4,096）"),
        ((0, 0, 0), "from n = 128 on, the shortest measured", "从测量的最短长度 n = 128 起"),
        ((0, 0, 300), "from n = 128 on, the shortest measured, or from 300 on",
         "从测量的最短长度 n = 128 起，或从 300 起"),
        ((0, 0, math.inf), "from n = 128 on, the shortest measured, or at none",
         "从测量的最短长度 n = 128 起，或没有这样的 n"),
        ((math.inf, math.inf, math.inf), "at no n up to 4,096", "在 4,096 以内没有这样的 n"),
        ((math.inf, 900, math.inf), "at no n up to 4,096, or from 900 on",
         "在 4,096 以内没有这样的 n，或从 900 起"),
        ((math.inf, 0, math.inf), "at no n up to 4,096, or from 130 on",
         "在 4,096 以内没有这样的 n，或从 130 起"),
    ],
)  # fmt: skip
def test_crossings_in_words(
    crossing: tuple[float, float, float], english: str, chinese: str, tmp_path: Path
) -> None:
    values = {"times": crossing, "lengths": (128, 4096), "infinite": math.inf}
    for name, says in (("lab.md", english), ("lab.zh.md", chinese)):
        text = Path(complexity.__file__).with_name(name).read_text(encoding="utf-8")
        macros = text[: text.index("{% endmacro %}")] + "{% endmacro %}\n"
        page = tmp_path / name
        page.write_text(macros + "{{ onwards(*times) }}\n", encoding="utf-8")
        assert read_page(page, values, {}, {}).answer == [says]


def test_crossings_in_a_table() -> None:
    ends = (128, 4096)
    assert briefly(0, ends, (0, 0)) == "≤ 128"
    assert briefly(math.inf, ends, (900, math.inf)) == "> 4,096 [900, > 4,096]"


def test_what_must_wait(waiting: Waiting) -> None:
    grown = {name: chain[-1] - chain[0] for name, chain in waiting.chains.items()}
    assert grown.pop("rnn") == 3 * (64 - 8), "a product, a sum, a tanh"
    assert set(grown.values()) == {0}


def test_paths_by_hand(waiting: Waiting) -> None:
    assert waiting.paths == {
        "cnn": [math.ceil((n - 1) / 2) for n in PATHS],
        "dilated cnn": [3, 4, 4, 4],  # 5³ = 125, 5⁴ = 625
        "rnn": list(PATHS),
        "self-attention": [1] * 4,
        "linformer": [1] * 4,
        "window": [math.ceil((n - 1) / 60) for n in PATHS],
    }


def test_a_small_lab_from_end_to_end(tmp_path: Path) -> None:
    said: list[str] = []
    shown: list[float] = []
    order = LabRequest(out=tmp_path / "lab", overrides=SMALL)
    result = open_lab("complexity").run(order, said.append, lambda done, *_: shown.append(done))
    assert LABS["complexity"].question == result["question"]
    claims = {claim["says"].split(":")[0]: claim for claim in result["claims"]}
    assert all(claim["holds"] for claim in claims.values())
    assert "n^2.00 d^1.00; O(n²·d) says n^2 d^1" in " ".join(c["says"] for c in result["claims"])
    layer = next(says for says in claims if says.startswith("self-attention with its four"))
    assert claims[layer]["value"] == pytest.approx(4, abs=1e-6)
    assert shown == sorted(shown)
    assert shown[-1] == 100
    page = Path(result["report"]).read_text(encoding="utf-8")
    for part in (
        "From which length does what pay here?", "Time beside self-attention", "Operations over",
        "Time over length", "Between the two ends", "For the window", "1 head",
    ):  # fmt: skip
        assert part in page, part
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    times = next(t for t in result["tables"] if t["title"] == f"Milliseconds, {BOTH}")
    assert [row[0] for row in times["rows"]] == ["n = 16", "n = 32", "n = 64", "exponent"]
    assert "is faster than self-attention: linformer" in result["answer"]
    assert said[-1].startswith("next:")


@pytest.mark.deep
def test_a_small_lab_with_memory_and_no_gradients(tmp_path: Path) -> None:
    order = LabRequest(
        out=tmp_path, overrides=[*SMALL[:-2], "memory=1", "backward=0", "budget=0.1s"]
    )
    result = open_lab("complexity").run(order, lambda _: None, lambda *_: None)
    titles = [table["title"] for table in result["tables"]]
    assert "Megabytes at the peak beside inputs and weights, forward" in titles
    assert f"Milliseconds, {FORWARD}" in titles
    assert f"Milliseconds, {BOTH}" not in titles
