"""Checks that compared runs share data, code and test examples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.plugins import changed
from regard.lab.runs import Config
from regard.lab.studies.job import RunScore
from regard.lab.tasks import TASKS
from regard.lab.tasks.settings import CUTTING, WRITING

#: Settings that do not decide which texts are read and how they are split.
NOT_READING = {*CUTTING, *WRITING, "class_weights"}


def check_compatible(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise an error if a completed run used other data (`facts`, if they were read), pretrained
    weights or user code than there are now, so that it cannot be compared with new runs.
    """
    from regard.lab.runs.folder import Folder

    was = Folder(folder).environment()
    differences = changed(Config.read(folder).named, was.get("parts", {}))
    if begun := was.get("weights"):
        from regard.lab.runs.encoder import Encoder

        differences += ["the weights"] if Encoder(begun["source"]).sha256 != begun["sha256"] else []
    known = was.get("data", {}).get("fingerprint")
    differences += ["the data"] if facts and known != facts.get("fingerprint") else []
    if differences:
        raise RegardError(
            f"{differences[0]} changed since {folder} was trained; give another --out, so that all "
            "arms are trained on the same"
        )


def check_same_test(configs: Mapping[str, Config]) -> None:
    """Raise an error if arms have different test examples.

    Tokenization and training data may differ between arms.
    """
    first: tuple[str, dict[str, Any]] | None = None
    for name, config in configs.items():
        data = config.data.model_dump(exclude={*TASKS[config.task].own_choice})
        first = first or (name, data)
        for key, value in data.items():
            if value != first[1][key]:
                raise RegardError(
                    f"arms need the same test examples: {key} is {first[1][key]!r} in "
                    f"{first[0]} and {value!r} in {name}"
                )


def check_paired(done: Mapping[str, Mapping[int, RunScore]]) -> None:
    """Raise an error if runs have different test examples or metrics."""
    counted = {run.signature: name for name, runs in done.items() for run in runs.values()}
    if len(counted) > 1:
        one, other, *_ = counted
        raise RegardError(
            f"{counted[one]} and {counted[other]} have different metrics: {one or 'none'} "
            f"and {other or 'none'}; give another --out, to train and evaluate all again"
        )
    tested = {run.asked: name for name, runs in done.items() for run in runs.values()}
    if len(tested) > 1:
        one, other, *_ = tested.values()
        raise RegardError(
            f"{one} and {other} predicted different test examples; arms may differ in the model "
            "and its training, not in the data"
        )
