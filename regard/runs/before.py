"""Pretraining on one's own unlabelled texts, before a task that has few labels."""

from collections.abc import Sequence
from pathlib import Path

from regard.data.texts import NAMES
from regard.errors import RegardError
from regard.runs.config import CUTTING, Config, shared
from regard.runs.opening import open_or_start
from regard.runs.run import Run
from regard.settings import Settings, key_of, unknown_key
from regard.tasks import TASKS
from regard.training.settings import TrainingSettings

#: How a model is pretrained, and what for that is set otherwise than by default.
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bert": ("masked-modeling", ("next_sentence=false",)),
    "gpt": ("language-modeling", ()),
    "t5": ("span-corruption", ()),
}
ALIKE = (
    "seed",
    "threads",
    "precision",
    "device",
    "optimizer",
)  # settings of a training that hold for both


def pretraining_for(
    folder: Path | str,
    task: str,
    model: str,
    texts: str,
    overrides: Sequence[str] = (),
    budget: Sequence[str] = (),
) -> Run:
    """The run that pretrains a task's model on `texts`, in a folder of its own.

    Its network and the way that texts are cut into tokens are those of the task with these
    `overrides`; its budget and what else is to be known of its training are `budget`, as
    ``key=value``. Texts that the task is judged by are left out of `texts`: those of its test file,
    or, where a test is split off its data, all of these. Train it, then the task with
    ``init=FOLDER``.

    Errors: a model that is not pretrained (a bert, gpt or t5 is).
    """
    way, given = way_of(task, model, texts, overrides, budget)
    return open_or_start(Path(folder), way, model, given)


def way_of(
    task: str, model: str, texts: str, overrides: Sequence[str] = (), budget: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The task that pretrains a model, and its settings, as `pretraining_for` has them."""
    if model not in WAYS or not TASKS[task].labelled:
        raise RegardError(
            f"{model} on {task} is not pretrained on texts; --pretrain-on goes with --model "
            f"{', '.join(WAYS)} and a task that puts labels on texts"
        )
    if any(key_of(pair) == "weights" for pair in overrides):
        raise RegardError("weights= are pretrained already: leave --pretrain-on out, or weights=")
    wanted, (way, own) = Config.make(task, model, overrides), WAYS[model]
    cut = {key: value for key, value in wanted.data.model_dump().items() if key in CUTTING}
    alike = {key: getattr(wanted.training, key) for key in ALIKE}
    place = {"data": texts, "data_dir": getattr(wanted.data, "data_dir", "")}
    judging = judged_by(wanted.data, texts)
    theirs = TASKS[way].models[model].settings
    network = {k: v for k, v in shared(wanted.network, theirs).items() if k not in cut}
    pairs = {**place, **judging, **cut, **network, **alike}
    known = {*TASKS[way].settings.model_fields, *TrainingSettings.model_fields}
    for key in map(key_of, budget):
        if key not in known:
            raise RegardError(unknown_key(key, sorted(known)))
    given = [f"{k}={v}" for k, v in pairs.items() if v != ""]
    return way, [*given, *own, *budget]


def judged_by(data: Settings, texts: str) -> dict[str, str]:
    """The settings that leave the test of a labelled task out of the `texts` that are read before.

    Errors: `texts` are the file that the test is split off from.
    """
    held = data.model_dump()
    same = Path(texts).expanduser().resolve() == Path(held["data"]).expanduser().resolve()
    if held["test"] or not same:
        return {"without": held["test"] or held["data"], "without_text": held["text"]}
    if texts in NAMES:  # they leave their own test out
        return {}
    raise RegardError(
        f"--pretrain-on {texts} is the task's own data, and the test is split off from it: give "
        "the test as a file by test=FILE, or other texts"
    )
