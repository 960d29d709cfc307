"""Python functions for the commands: `regard.train`, `regard.compare` and `regard.suggest`."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.settings import pairs
from regard.lab.cli import compare as command
from regard.lab.cli.console import bar, err, say
from regard.lab.cli.train import follow
from regard.lab.cli.train_request import TrainRequest, pretrained_beside
from regard.lab.data.frames import Frame, is_frame

if TYPE_CHECKING:
    from regard.lab.runs import Run
    from regard.lab.studies import arms as declared
    from regard.lab.studies.result import Comparison
    from regard.lab.studies.suggest import Suggestion

Place = str | os.PathLike[str]
Data = Any  # a `Place`, or a DataFrame


def train(
    task: str,
    *,
    model: str = "",
    data: Data = "",
    budget: str = "",
    init: Place = "",
    config: Place = "",
    pretrain_on: Place = "",
    pretrain_budget: str = "",
    out: Place | None = None,
    end: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> "Run":
    """Train a model on a task like ``regard train`` and return its completed run.

    ``data`` is a name, a file, or a DataFrame of pandas, polars or pyarrow, whose rows are kept in
    the cache folder. ``settings`` are those listed by ``regard train TASK --settings``; the other
    arguments are the options of the command: ``budget`` is "10m", "500 steps", "3 epochs" or
    "2M tokens", ``init`` a run to start from. ``out`` defaults to ``runs/TASK-MODEL``, or if that
    is occupied to a folder named by the settings, which is printed. The same call resumes an
    interrupted training, with ``end`` completes it as it is, and returns a completed run unchanged;
    other settings need another ``out``. ``progress`` shows a bar, by default on a
    terminal.

    Raises: unknown task, model or setting (raised before torch is loaded); a folder with another
    run; unreadable data.

    >>> train("classification", model="trasformer")
    Traceback (most recent call last):
    regard.core.errors.RegardError: no model is called 'trasformer'; did you mean transformer? ...
    """
    from regard.lab import runs

    plan = TrainRequest(
        task,
        tuple(pairs(on_disk({"data": data, **settings}))),
        model=model,
        budget=budget,
        init=Path(init) if init else None,
        config=Path(config) if config else None,
        pretrain_on=os.fspath(pretrain_on),
        pretrain_budget=pretrain_budget,
        out=Path(out) if out else None,
    ).plan()
    place = plan.folder()
    if plan.pretraining:
        begun = runs.go_on(pretrained_beside(place), plan.pretraining)
        ends = end and not begun.complete
        what = f"{plan.model} on the texts of {plan.request.pretrain_on}"
        follow(begun, what, end=ends, shown=shows(progress))
        end = end and not ends  # --end has completed the pretraining; train the task fully
    run = runs.go_on(place, plan.config_in(place))
    done = " (already complete)" if run.complete else ""
    follow(run, f"{plan.model} on {task}", end=end, shown=shows(progress))
    if out is None:
        say(f"run: {place}{done}", quiet=True)
    return run


def Arm(model: Any, name: str = "", **settings: Any) -> "declared.Arm":  # noqa: N802
    """Return an arm of `compare` for a model from elsewhere, with settings of its own.

    ``model`` is a class or function ``build(vocabulary, labels, **settings)`` that returns an
    nn.Module, trained like regard's own (`regard.lab.tasks.called.Called`); an estimator of
    scikit-learn's kind, or a function that returns one; a folder of a Hugging Face encoder, or a
    model loaded from one, which is fine-tuned; or a text as on the command line.

    What is defined at the top of a file runs in the workers, as ``FILE.py:Name``; any other object
    runs in this process, after the other arms. Raises: an object of another kind.

    >>> Arm(lambda vocabulary, labels: None, "mine").name, Arm("cnn", widths=[2, 3]).name
    ('mine', 'cnn:widths=2,3')
    """
    from regard.lab.studies.arms import arm_of

    return arm_of(model, name, settings)


def compare(
    task: str,
    arms: "str | Sequence[str | declared.Arm]",
    *,
    data: Data = "",
    seeds: int | str = 3,
    delta: float | None = None,
    budget: str = "",
    reference: str = "",
    ladder: bool = False,
    tune: int | None = None,
    tune_space: Sequence[str] = (),
    sampler: str = "random",
    tune_seed: int = 0,
    out: Place | None = None,
    workers: int | None = None,
    launch: str = "",
    progress: bool | None = None,
    **settings: Any,
) -> "Comparison":
    """Train every arm with every seed like ``regard compare`` and return the comparison.

    ``arms`` is "mean,transformer:heads=2" or a list of such and of `Arm`; ``settings`` apply to
    every arm whose model has them; the other arguments are the options of the command. ``out``
    defaults to ``runs/compare-TASK-DATA``, which is printed; it holds the runs, ``comparison.json``
    and ``report.html``. The same call resumes an interrupted comparison. In a script, call it below
    ``if __name__ == "__main__":``, since every worker imports the script.

    Raises: unknown names and settings; a folder with other runs; all arms fail.

    >>> compare("classification", "mean,lstm")
    Traceback (most recent call last):
    regard.core.errors.RegardError: no model is called 'lstm'; did you mean rnn? ...
    """
    from regard.lab.studies.arms import parse_arms
    from regard.lab.studies.budget import parse_seeds
    from regard.lab.studies.compare import compare as run
    from regard.lab.studies.here import Here
    from regard.lab.studies.launchers import parse_launcher
    from regard.lab.studies.study import Study

    least, most = parse_seeds(seeds)
    study = Study(
        task,
        parse_arms(arms, task),
        seeds=most,
        least=least,
        delta=delta,
        budget=budget,
        reference=reference,
        overrides=tuple(pairs(on_disk({"data": data, **settings}))),
        ladder=ladder,
        search=command.search_of(tune, sampler, tune_seed, tune_space),
    )
    launcher = parse_launcher(launch or "local", workers)
    launcher = launcher if launch == "none" else Here(launcher)
    study = replace(study, out=Path(out or command.usual_folder(study)))
    if out is None:
        say(f"runs: {study.out}", quiet=True)
    with bar("runs", shown=shows(progress)) as show:
        comparison = run(study, launcher, command.Watch(show) if shows(progress) else None)
    return command.with_report(comparison)


def suggest(
    data: Data,
    *,
    weights: str | Sequence[str] = (),
    arms: str | Sequence[str] = (),
    task: str = "",
    text: str = "",
    label: str = "",
    group: str = "",
    features: str = "",
    seed: int = 0,
    progress: bool | None = None,
) -> "Suggestion":
    """Name the method that suits labelled texts, like ``regard suggest``.

    ``weights`` are sentence encoders and static word vectors, ``arms`` further arms as for
    `compare`; the other arguments are the options of the command.

    Raises: unreadable data, fewer than 40 rows, one label; unknown arms or weights.

    >>> suggest("reviews", arms="lstm")
    Traceback (most recent call last):
    regard.core.errors.RegardError: no model is called 'lstm'; did you mean rnn? ...
    """
    from regard.lab.data.data_source import Columns, DataSource
    from regard.lab.studies.suggest import suggest as find

    columns = Columns(text, label, group, features=features)
    source = DataSource(os.fspath(on_disk({"data": data})["data"]), columns=columns)
    each = [[one] if isinstance(one, str) else list(one) for one in (weights, arms)]
    with bar("suggest", shown=shows(progress)) as show:
        return find(source, task=task, weights=each[0], arms=each[1], seed=seed, show=show)


def on_disk(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with a file in place of each DataFrame, also as test= or validation=."""
    return {key: Frame(x).file() if is_frame(x) else x for key, x in settings.items()}


def shows(progress: bool | None) -> bool:
    """Return whether to show progress; None means only on a terminal."""
    return err.is_terminal if progress is None else progress
