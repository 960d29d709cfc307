"""``regard exercise``: exercises with blanks, checks, hints, and grades of a course."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import Json, bar, emit_json, say, subcommands
from regard.lab.exercises import EXERCISES, page, parts_of, starter, title, verdict_line

if TYPE_CHECKING:
    from regard.lab.exercises.runner import Verdict

app = subcommands("Exercises that check themselves: list, start, check, grade.")


def _names(incomplete: str) -> list[str]:
    return [name for name in EXERCISES if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(help="Name of an exercise.", autocompletion=_names)]
Lang = Annotated[str, typer.Option(help="Language of the pages: en, zh.", envvar="REGARD_LANG")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Time limit of one exercise in seconds.")]
Memory = Annotated[int, typer.Option(min=64, help="Memory limit in MB, in addition to torch.")]
Only = Annotated[
    str, typer.Option(help="Check only this exercise.", autocompletion=_names, metavar="NAME")
]


@app.command("list")
def list_all(lang: Lang = "en", json: Json = False) -> None:
    """List the exercises in the order of the course."""
    titles = {name: title(name, lang) for name in EXERCISES}
    if json:
        rows = [{"name": n, "title": titles[n], "document": EXERCISES[n]} for n in titles]
        emit_json({"exercises": rows})
        return
    say(f"{'':>2}  {'exercise':<18}  from  title")
    for i, (name, words) in enumerate(titles.items(), 1):
        say(f"{i:>2}  {name:<18}  {EXERCISES[name]}   {words}")
    say(f"\nBegin: regard exercise start {next(iter(EXERCISES))}")


@app.command("start")
def start(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("exercises"),
    lang: Lang = "en",
) -> None:
    """Write the page and the starter file of an exercise.

    An existing file is kept.

    regard exercise start masked-softmax --lang zh
    """
    from regard.core.atomic_io import make_folder, write_bytes

    code = out / f"{name.replace('-', '_')}.py"
    files = {code.with_suffix(".md"): page(name, lang)[0], code: starter(name)}
    if code.exists():
        raise RegardError(f"{code} exists; continue there, or give another --out")
    make_folder(out)
    for path, content in files.items():
        write_bytes(path, content.encode())
        say(str(path))
    say(f"next: fill in {code}, then: regard exercise check {code}")


@app.command("hint")
def hint(
    name: Name,
    number: Annotated[int, typer.Argument(min=1, help="Number of the hint.")] = 1,
    lang: Lang = "en",
) -> None:
    """Print a hint for an exercise."""
    _, hints = page(name, lang)
    if number > len(hints):
        raise RegardError(f"{name} has {len(hints)} hints; there is no hint {number}")
    say(f"{number}/{len(hints)}: {hints[number - 1]}")


@app.command("check")
def check(
    place: Annotated[Path, typer.Argument(help="File (.py, .ipynb) or folder with your answers.")],
    only: Only = "",
    seconds: Seconds = 10.0,
    memory: Memory = 1024,
    json: Json = False,
) -> None:
    """Check your answers; the first fault is named in one sentence.

    The code runs in another process with limits of time and memory. Exit code 1 if an answer is
    wrong.

    regard exercise check exercises/masked_softmax.py
    """
    from regard.lab.exercises.runner import Limits, Runner
    from regard.lab.exercises.submissions import answers_in, unreadable

    answers, problems = list(answers_in(place, only)), unreadable(place)
    if not answers:
        raise RegardError(
            "; ".join(problems)
            or f"{place} has no answers; a file is named after its exercise, for example heads.py: "
            "regard exercise list"
        )
    for problem in problems:
        say(f"not read: {problem}", quiet=True)
    with Runner(Limits(seconds, memory)) as runner:
        verdicts = [runner.judge(answer) for answer in answers]
    if json:
        emit_json({"exercises": [_row(verdict) for verdict in verdicts]})
    for verdict in verdicts if not json else []:
        _show(verdict)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)


def _show(verdict: "Verdict") -> None:
    say(f"{verdict.exercise}: {verdict.points} of {len(verdict.faults)} functions right")
    for function, fault in verdict.faults.items() if not verdict.problem else ():
        say(f"  {verdict_line(function, fault)}")
    if verdict.problem:
        say(f"  ✗ {verdict.problem}")
    if verdict.printed.strip():
        say("  printed:\n" + "\n".join(f"    {line}" for line in verdict.printed.splitlines()[:20]))
    if not verdict.passed:
        say(f"  hint: regard exercise hint {verdict.exercise}")


def _row(verdict: "Verdict") -> dict[str, object]:
    return {
        "exercise": verdict.exercise, "passed": verdict.passed, "points": verdict.points,
        "of": len(verdict.faults), "message": verdict.message,
    }  # fmt: skip


@app.command("grade")
def grade(
    folder: Annotated[
        Path, typer.Argument(help="Folder with one folder or file (.py, .ipynb) per student.")
    ],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("grades.csv"),
    only: Only = "",
    seconds: Seconds = 10.0,
    memory: Memory = 1024,
) -> None:
    """Grade a folder of submissions into a CSV file.

    The students' code is executed, each answer in a process of its own with limits of time and
    memory. This is no sandbox: code from strangers belongs into a container.

    regard exercise grade submitted --out grades.csv
    """
    from regard.core.atomic_io import write_bytes
    from regard.lab.exercises.runner import Limits, Runner
    from regard.lab.exercises.submissions import ENDINGS, Answer, answers_in, unreadable

    if not folder.is_dir():
        raise RegardError(f"{folder} is no folder; it holds one folder or file for each student")
    places = [one for one in sorted(folder.iterdir()) if one.is_dir() or one.suffix in ENDINGS]
    places = [one for one in places if not one.name.startswith(".")]
    answers: dict[str, dict[str, Answer]] = {}
    unread: dict[str, list[str]] = {}
    for one in places:
        student = one.stem if one.is_file() else one.name
        given = answers.setdefault(student, {})
        unread.setdefault(student, []).extend(unreadable(one))
        for answer in answers_in(one, only):
            if twin := given.get(answer.exercise):
                raise RegardError(
                    f"{twin.path} and {answer.path} are both of {student}, for {answer.exercise}; "
                    "keep one of them"
                )
            given[answer.exercise] = answer
    asked = [name for name in EXERCISES if any(name in given for given in answers.values())]
    if not asked:
        raise RegardError(f"{folder} has no answers to {only or 'any exercise'}")
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["student", "exercise", "passed", "points", "of", "message"])
    passes = dict.fromkeys(asked, 0)
    with Runner(Limits(seconds, memory)) as runner, bar("students") as show:
        for i, (student, given) in enumerate(answers.items()):
            show(i, len(answers), student)
            for name in asked:
                missing = "; ".join(["not handed in", *unread[student]])
                of, row = len(parts_of(name)), (0, 0, _cell(missing))
                if name in given:
                    verdict = runner.judge(given[name])
                    passes[name] += verdict.passed
                    row = int(verdict.passed), verdict.points, _cell(verdict.message)
                rows.writerow([_cell(student), name, *row[:2], of, row[2]])
    write_bytes(out, table.getvalue().encode())
    for name, count in passes.items():
        say(f"{name:<18}  {count} of {len(answers)} passed")
    say(f"grades: {out}")


def _cell(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula.

    >>> _cell("=1+1"), _cell("Ann")
    ("'=1+1", 'Ann')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text
