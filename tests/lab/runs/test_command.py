"""A command as a model: what it is given, what it may write, what it costs, who may run it."""

import csv
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.core import trusted
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.examples import Example, Input
from regard.lab.data.files import read_examples
from regard.lab.data.predictions import read_predictions
from regard.lab.reports.run import write_run_report
from regard.lab.runs import command
from regard.lab.runs.command import LOG, write_examples
from regard.lab.runs.run import Run
from tests.lab.small_runs import finished

ALL = "{train} {validation} {test} {out} {seed} {minutes}"
#: A program of words: it answers with the label of the training texts that share the most of them.
PROGRAM = """
import csv, json, sys
train, validation, test, out, seed, minutes = sys.argv[1:]
rows = [list(csv.DictReader(open(x, newline="", encoding="utf-8"))) for x in sys.argv[1:4]]
labels = sorted({row["label"] for row in rows[0]})
count = {}
for row in rows[0]:
    for word in row["text"].split():
        count.setdefault(word, dict.fromkeys(labels, 1))[row["label"]] += 1
def predict(text):
    score = dict.fromkeys(labels, 1.0)
    for word in text.split():
        seen = count.get(word, dict.fromkeys(labels, 1))
        score = {x: score[x] * seen[x] / sum(seen.values()) for x in labels}
    return {x: score[x] / sum(score.values()) for x in labels}
chances = [predict(row["text"]) for row in rows[2]]
predicted = [max(x, key=x.get) for x in chances]
BODY
"""
CSV = """
with open(out, "w", newline="") as file:
    csv.writer(file).writerows([["predicted"], *([x] for x in predicted)])
"""


def program(folder: Path, body: str = CSV, places: str = ALL) -> str:
    """Write the program and return it as a model that this process may run."""
    path = folder / "my program.py"
    path.write_text(PROGRAM.replace("BODY", body))
    name = f"command:{sys.executable} -S '{path}' {places}"
    trusted.trust_command(name)
    return name


def trained(folder: Path, model: str, *settings: str, task: str = "classification") -> Run:
    return finished(runs.open_or_start(folder, task, model, [*settings, "examples=160"]))


def test_it_reads_the_splits_without_the_labels_of_the_test_and_its_words_are_scored(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept.json"
    body = f"{CSV}\njson.dump([rows, seed, minutes, sys.argv], open({str(kept)!r}, 'w'))"
    run = trained(tmp_path / "run", program(tmp_path, body), "seed=7")
    (train, validation, test), seed, minutes, words = json.loads(kept.read_text())
    task = run.task
    assert [(row["text"], row["label"]) for row in train] == [
        (x.text, x.label) for x in task.examples("train")
    ]
    assert [row["text"] for row in validation] == [x.text for x in task.examples("validation")]
    assert [*test[0]] == ["text"]
    assert [row["text"] for row in test] == [x.text for x in task.examples("test")]
    assert (seed, minutes, len(words)) == ("7", "60", 7)
    evaluation = run.evaluate()
    assert evaluation.value == evaluation.correct.mean() > 0.55
    assert {*evaluation.other_metrics} == {"macro-F1", "balanced accuracy"}
    (row,) = run.metrics()
    assert 0 < row["seconds"] < 30
    assert 5 < row["peak_mb"] < 60  # of a Python without packages, not of this process
    assert run.size([]) == (None, None)
    with pytest.raises(RegardError, match=r"keeps the test predictions of command:.* and no model"):
        run.predict("a good film")


def test_probabilities_in_json_lines_give_a_log_loss(tmp_path: Path) -> None:
    body = f"""
json.dump(chances, open({str(tmp_path / "kept.json")!r}, "w"))
with open(out, "w") as file:
    for row, chance in zip(rows[2], chances):
        print(json.dumps({{"text": row["text"], "probabilities": chance}}), file=file)
"""
    run = trained(tmp_path / "run", program(tmp_path, body), "metric=log-loss")
    wanted = run.evaluate()
    assert wanted.metric == "log loss"
    kept = json.loads((tmp_path / "kept.json").read_text())
    nats = [-math.log(x[y.label]) for x, y in zip(kept, wanted.examples, strict=True)]
    assert wanted.value == pytest.approx(sum(nats) / len(nats))
    labels = trained(tmp_path / "labels", program(tmp_path)).evaluate()
    assert labels.value == wanted.other_metrics["accuracy"]


def test_rows_with_texts_may_stand_in_any_order(tmp_path: Path) -> None:
    in_order = trained(tmp_path / "a", program(tmp_path)).evaluate()
    body = """
pairs = [(row["text"], x) for row, x in zip(rows[2], predicted)][::-1]
with open(out, "w", newline="") as file:
    csv.writer(file).writerows([["text", "label"], *pairs])
"""
    assert len({x.text for x in in_order.examples}) == in_order.n
    turned = trained(tmp_path / "b", program(tmp_path, body)).evaluate()
    assert turned.correct.tolist() == in_order.correct.tolist()


def test_two_texts_are_matched_by_the_first(tmp_path: Path) -> None:
    rows = [f"{i} is {'big' if i % 2 else 'small'},{i} it is,{'xy'[i % 2]}" for i in range(90)]
    (tmp_path / "pairs.csv").write_text("\n".join(["one,two,label", *rows]))
    body = """
pairs = [(row["text"], "xy"["big" in row["text"]]) for row in rows[2] if row["second"]][::-1]
with open(out, "w", newline="") as file:
    csv.writer(file).writerows([["text", "predicted"], *pairs])
"""
    settings = (f"data={tmp_path / 'pairs.csv'}", "text=one,two")
    assert trained(tmp_path / "run", program(tmp_path, body), *settings).evaluate().value == 1.0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('so long'); sys.exit(3)", r"ended with exit code 3: so long; its output: .*run/co"),
        ("raise ValueError('no luck')", r"exit code 1: ValueError: no luck; its output"),
        ("import os; os.kill(os.getpid(), 9)", r"was killed by signal 9; its output"),
        ("", r"wrote no file \{out\}; write a row with 'predicted' for each of the 1,000 rows"),
        (CSV.replace("predicted)", "predicted[:5])"), r"\{out\} has 5 predictions, but \{test\} h"),
        (CSV.replace("([x]", "(['god']"), r"out.csv:2: no label is called 'god'; there are: neg"),
        (CSV.replace('["predicted"]', '["answer"]'), r"out.csv:2: missing the prediction"),
        ("open(out, 'w')", r"out.csv: the file is empty"),
        ("json.dump({'predicted': 'negative', 'probabilities': {'negative': 0.4, 'positive': 0.6}},"
         " open(out, 'w')); open(out, 'a').write('\\n' * 1)", r"has 1 predictions, but"),
    ],
)  # fmt: skip
def test_a_wrong_program_says_what_to_do_and_leaves_its_output(
    body: str, says: str, tmp_path: Path
) -> None:
    model = program(tmp_path, body)
    with pytest.raises(RegardError, match=says):
        trained(tmp_path / "run", model)
    assert (tmp_path / "run" / LOG).read_text().startswith(f"$ {sys.executable} -S")
    assert not runs.load(tmp_path / "run").complete
    program(tmp_path)  # mended under the same name
    assert trained(tmp_path / "run", model).complete


def test_a_prediction_that_is_not_the_likeliest_is_refused(tmp_path: Path) -> None:
    body = """
with open(out, "w") as file:
    for x in chances:
        print(json.dumps({"predicted": min(x, key=x.get), "probabilities": x}), file=file)
"""
    with pytest.raises(RegardError, match=r"predicted '.*' is not the most probable label"):
        trained(tmp_path / "run", program(tmp_path, body))


def test_labels_alone_have_no_log_loss(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="log loss needs 'probabilities', in JSON lines"):
        trained(tmp_path / "run", program(tmp_path), "metric=log-loss")


def test_a_command_ends_after_twice_its_minutes(tmp_path: Path) -> None:
    model = program(tmp_path, "import time; print(minutes, flush=True); time.sleep(60)")
    with pytest.raises(RegardError, match=r"was ended after 0\.02 minutes, 2 times its"):
        trained(tmp_path / "run", model, "minutes=0.01")
    assert (tmp_path / "run" / LOG).read_text().splitlines()[1] == "0.01"


def test_a_command_ends_with_its_worker(tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    beat = f"import time\nwhile True: open({str(beats)!r}, 'a').write('.'); time.sleep(0.02)"
    between = [sys.executable, "-I", "-S", str(Path(command.__file__).with_name("measured.py"))]
    words = [*between, str(tmp_path / "cost"), "60", sys.executable, "-S", "-c", beat]
    worker = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({words}, start_new_session=1)"]
    )
    until = time.monotonic() + 30
    while not beats.exists() and time.monotonic() < until:
        time.sleep(0.05)
    worker.kill()
    worker.wait()
    time.sleep(1)
    count = beats.stat().st_size
    time.sleep(0.5)
    assert beats.stat().st_size == count > 0


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    trusted.trust_command("command:pyhton {test} {out}")
    with pytest.raises(RegardError, match="pyhton cannot be run here; give the path of a"):
        trained(tmp_path / "run", "command:pyhton {test} {out}")


def test_the_run_of_a_stranger_opens_and_executes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    model = program(tmp_path, f"{CSV}\nopen({str(ran)!r}, 'a').write('x')")
    trained(tmp_path / "run", model)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/config.toml").write_bytes((tmp_path / "run/config.toml").read_bytes())
    assert ran.read_text() == "x"
    monkeypatch.setenv(trusted.VARIABLE, "")
    opened = runs.load(tmp_path / "run")
    assert opened.evaluate().n > 0
    assert opened.convergence == "converged"
    page = write_run_report(opened).read_text()
    assert "It was fitted, not trained in steps." in page
    assert f"--model &#39;{model.split()[0]}" in page  # to train it again, one must give it
    with pytest.raises(RegardError, match=r"names the program .* which you have not given"):
        [*runs.load(tmp_path / "begun").train()]
    assert ran.read_text() == "x"


def test_two_texts_and_columns_are_written_as_regard_reads_them(tmp_path: Path) -> None:
    rows = [
        Example(Input("a, b", 'say "c"', {"price": 3}), "x", "1"),
        Example(Input("two\nlines", "d", {"price": ""}), "y", "2"),
    ]
    write_examples(tmp_path / "rows.csv", rows, labelled=True)
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert next(csv.reader(file)) == ["price", "text", "second", "label"]
    from regard.lab.data.data_source import Columns

    read = read_examples(tmp_path / "rows.csv", Columns("text,second", features="price"))
    assert [(str(x.text), x.label) for x in read] == [(str(x.text), x.label) for x in rows]


def test_numbers_tags_and_sets_of_labels(tmp_path: Path) -> None:
    mean = (
        "z = [float(r['label']) for r in rows[0]]; predicted = [sum(z) / len(z) for _ in rows[2]]"
    )
    run = trained(tmp_path / "a", program(tmp_path, mean + CSV), task="regression")
    assert abs(run.evaluate().value) < 0.02  # R² of the mean
    outside = "predicted = [' '.join('O' for _ in r['text'].split(' ')) for r in rows[2]]"
    run = trained(tmp_path / "b", program(tmp_path, outside + CSV), task="tagging")
    tags = [tag for x in run.task.examples("test") for tag in x.label.split(" ")]
    assert run.evaluate().other_metrics["accuracy"] == tags.count("O") / len(tags)
    same = "predicted = [rows[0][0]['label'] for _ in rows[2]]"
    run = trained(tmp_path / "c", program(tmp_path, same + CSV), task="multilabel")
    assert run.evaluate().is_constant
    with pytest.raises(RegardError, match=r"out.csv:2: 'O O' is not a number"):
        trained(
            tmp_path / "d", program(tmp_path, "predicted = ['O O' for _ in rows[2]]" + CSV),
            task="regression",
        )  # fmt: skip
    with pytest.raises(RegardError, match=r"1 predicted and \d+ true tags for \d+ words; give one"):
        trained(
            tmp_path / "e", program(tmp_path, "predicted = ['O' for _ in rows[2]]" + CSV),
            task="tagging",
        )  # fmt: skip


def test_a_prediction_or_a_label_is_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("label,predicted\na,b\n")
    assert [(row.label, row.predicted) for row in read_predictions(path, blind=True)] == [("", "b")]
    path.write_text('{"label": "a"}\n')
    assert [row.predicted for row in read_predictions(path, blind=True)] == ["a"]
