"""An option that is a setting: ``--epochs 3`` is written ``epochs=3``, and said so."""

from typing import Any

from typer.core import TyperCommand

from regard.errors import RegardError
from regard.settings import Settings
from regard.usual import meant


class TakesSettings(TyperCommand):
    """A command whose arguments are settings too, for which options are often taken."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words. Errors: an option that there is not, but a setting of its name."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # the class lies in typer's private copy of click
            option = str(getattr(error, "option_name", ""))
            names = meant(option, settings()) if option.startswith("--") else []
            if not names:
                raise
            raise RegardError(
                f"no option is called {option}; a setting is written without dashes: "
                f"{' or '.join(f'{name}=VALUE' for name in names)}"
            ) from None


def settings() -> list[str]:
    """Return the names of all settings that there are."""
    from regard.tasks import TASKS
    from regard.training.settings import TrainingSettings

    kinds: list[type[Settings]] = [TrainingSettings, *(task.settings for task in TASKS.values())]
    kinds += [entry.settings for task in TASKS.values() for entry in task.models.values()]
    return sorted({key for kind in kinds for key in kind.model_fields})
