"""Pretraining on unlabelled texts of the user's, before a task with few labels."""

from collections.abc import Sequence

from regard.core.errors import RegardError
from regard.core.settings import key_of, unknown_key
from regard.lab.runs.config import CUTTING, Config, shared
from regard.lab.tasks import TASKS
from regard.training.settings import TrainingSettings

#: How each model is pretrained: the task, and settings that differ from its defaults.
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
)  # training settings of both runs


def way_of(
    task: str, model: str, texts: str, overrides: Sequence[str] = (), budget: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """Return the task that pretrains a task's model on `texts`, and its settings.

    Network and tokenizer are those of the task with these `overrides`; `budget` has settings of
    pretraining as ``key=value``. Texts the task is tested on are left out of `texts`: those
    of its test file, or all of its data if the test split is taken from them. Train such a run,
    then the task with ``init=FOLDER``.

    Raises: a model other than bert, gpt and t5.
    """
    if model not in WAYS:
        raise RegardError(
            f"{model} cannot be pretrained on texts; --pretrain-on needs --model {', '.join(WAYS)}"
        )
    if any(key_of(pair) == "weights" for pair in overrides):
        raise RegardError("weights= are already pretrained; leave --pretrain-on or weights= out")
    wanted, (way, own) = Config.make(task, model, overrides), WAYS[model]
    cut = {key: value for key, value in wanted.data.model_dump().items() if key in CUTTING}
    kept = {key: getattr(wanted.training, key) for key in ALIKE}
    place = {"data": texts, "data_dir": getattr(wanted.data, "data_dir", "")}
    judging = TASKS[task].prepare(wanted.data).excluded_from(texts)
    settings = TASKS[way].models[model].settings
    network = {k: v for k, v in shared(wanted.network, settings).items() if k not in cut}
    pairs = {**place, **judging, **cut, **network, **kept}
    known = {*TASKS[way].settings.model_fields, *TrainingSettings.model_fields}
    for key in map(key_of, budget):
        if key not in known:
            raise RegardError(unknown_key(key, sorted(known)))
    assignments = [f"{k}={v}" for k, v in pairs.items() if v != ""]
    return way, [*assignments, *own, *budget]
