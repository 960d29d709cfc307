"""Options from the fields of frozen dataclasses, and a hint for settings written as options."""

import inspect
from dataclasses import MISSING, Field
from typing import Annotated, Any, get_origin

import typer
from typer.core import TyperCommand

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.core.usual import meant

Onnx = Annotated[
    bool,
    typer.Option(
        "--onnx",
        help="Compute networks that label texts by onnxruntime (extra export); the graph is "
        "written into the run's folder once.",
    ),
]
Int8 = Annotated[
    bool,
    typer.Option(
        "--int8",
        help="As --onnx, with products rounded to 8-bit integers: faster for large networks; "
        "answers change a little.",
    ),
]


def option_from(field: "Field[Any]") -> inspect.Parameter:
    """Return the parameter of a command for a field; one without a default may be left out."""
    option = {"name": field.name, "type": field.type, **field.metadata}
    name, flags = option.pop("name"), option.pop("flags", ())
    kind: Any = option.pop("type")
    if kind is bool and not flags:
        flags = (f"--{name.replace('_', '-')}",)
    default = None if field.default is MISSING else field.default
    if get_origin(kind) is tuple:
        kind, default = list[str], []
    kind = kind if default is not None else kind | None
    annotation = Annotated[kind, typer.Option(*flags, **option)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


class TakesSettings(TyperCommand):
    """A command with KEY=VALUE arguments, which users often write as options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises: an unknown option that has the name of a setting."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # its class is in typer's private copy of click
            option = str(getattr(error, "option_name", ""))
            names = meant(option, settings()) if option.startswith("--") else []
            if not names:
                raise
            raise RegardError(
                f"unknown option {option}; write a setting without dashes: "
                f"{' or '.join(f'{name}=VALUE' for name in names)}"
            ) from None


def settings() -> list[str]:
    """Return the names of all settings of all tasks, models and the training."""
    from regard.lab.tasks import TASKS
    from regard.training.settings import TrainingSettings

    kinds: list[type[Settings]] = [TrainingSettings, *(task.settings for task in TASKS.values())]
    kinds += [entry.settings for task in TASKS.values() for entry in task.models.values()]
    return sorted({key for kind in kinds for key in kind.model_fields})
