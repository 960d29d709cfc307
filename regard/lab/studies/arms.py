"""The arms of a comparison: models with settings and names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError, look_up
from regard.core.names import COMMAND, leading_name
from regard.core.settings import key_of, pairs
from regard.core.trusted import trust_command, trust_named
from regard.lab.tasks import TASKS
from regard.lab.tasks.elsewhere import entry_of, file_of, remembered
from regard.lab.tasks.models import ModelEntry

LONGEST = 200  # characters of a folder's name; file systems take 255 bytes
#: An item after the first in a list value: ``widths=3,4,5`` or ``class_weights=bad:3,good:1``.
LISTED = re.compile(r"(?:[^:=,]+:)?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Arm:
    """One model in a comparison, with its settings that differ from the defaults."""

    name: str
    model: str
    overrides: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Return the arm's folder name, valid on every system and unique for each arm.

        Characters other than letters, digits, ``+``, ``-`` and ``_`` become ``~`` and their code
        point. The end of a name that is too long is replaced by a hash of the name.

        >>> Arm("transformer:score=additive,heads=2", "transformer").folder
        'transformer~3ascore~3dadditive~2cheads~3d2'
        >>> Arm("+residual", "+residual").folder
        '+residual'
        """
        folder = re.sub(r"[^A-Za-z0-9+_-]", lambda match: f"~{ord(match[0]):x}", self.name)
        if len(folder) <= LONGEST:
            return folder
        return f"{folder[: LONGEST - 20]}~~{sha256(folder.encode()).hexdigest()[:16]}"

    @property
    def deterministic(self) -> bool:
        """Return whether all seeds give the same predictions, so that one run suffices."""
        entries = (entry.models.get(self.model) for entry in TASKS.values())
        return any(entry is not None and entry.deterministic for entry in entries)


def parse_arm(text: str, models: Mapping[str, ModelEntry] = TASKS["classification"].models) -> Arm:
    """Parse ``model`` or ``model:key=value,key=value``; the text is the arm's name.

    Raises: an unknown model; settings that are not written key=value.

    >>> parse_arm("transformer:score=additive,heads=2").overrides
    ('score=additive', 'heads=2')
    >>> parse_arm("tranformer")
    Traceback (most recent call last):
    regard.core.errors.RegardError: no model is called 'tranformer'; did you mean transformer? ...
    """
    name = text.strip()
    model, colon, rest = leading_name(name)
    trust_named([model])
    trust_command(model)
    look_up(models, model, "model")
    overrides = tuple(_pairs(rest))
    if colon and not overrides:
        raise RegardError(f"arm {name!r}: settings must follow the colon, as in {model}:heads=2")
    for pair in overrides:
        if "=" not in pair:
            raise RegardError(f"arm {name!r}: settings are written key=value, not {pair!r}")
    return Arm(f"{model}:{','.join(overrides)}" if overrides else model, model, overrides)


def arm_of(model: Any, name: str, settings: Mapping[str, Any]) -> Arm:
    """Return the arm of a user's object or text: see `regard.Arm`."""
    overrides = pairs(settings)
    place = str(model if isinstance(model, str | Path) else getattr(model, "name_or_path", ""))
    if Path(place).name != place and (Path(place) / "config.json").is_file():
        model, overrides = "bert", [f"weights={place}", *overrides]
    elif not isinstance(model, str):
        label = name or getattr(model, "__name__", type(model).__name__).strip("<>")
        thing, model = model, file_of(model)
        if not model:  # its settings are a part of it
            name = name or ":".join([label, *([",".join(overrides)] if overrides else [])])
            model, overrides = remembered(thing, label, settings), []
        entry_of(model, thing)  # its errors
    trust_named([model])
    trust_command(model)
    text = f"{model}:{','.join(overrides)}" if overrides else model
    return Arm(name or text, model, tuple(overrides))


def _pairs(text: str) -> list[str]:
    """Split settings at commas, but not within a value such as ``widths=3,4,5``."""
    pairs: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if pairs and LISTED.fullmatch(part):
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
    return pairs


def spelled(arm: Arm, steps: int = 0, batch_tokens: int = 0) -> str:
    """Return an arm as written on the command line, with its minutes replaced by steps.

    ``steps=0`` keeps the minutes. ``batch_tokens`` is the batch size chosen under the minutes.

    >>> spelled(parse_arm("transformer:heads=2,minutes=1"), 120)
    'transformer:heads=2,steps=120'
    >>> spelled(parse_arm("gpt"), 120, 256)
    'gpt:steps=120,batch_tokens=256'
    """
    overrides = [p for p in arm.overrides if not steps or key_of(p) != "minutes"]
    budget = {"steps": steps, "batch_tokens": batch_tokens if steps else 0}
    settings = ",".join([*overrides, *(f"{key}={value}" for key, value in budget.items() if value)])
    return f"{arm.model}:{settings}" if settings else arm.model


def models_of(task: str) -> Mapping[str, ModelEntry]:
    """Return the models of a task. Raises: an unknown task."""
    return look_up(TASKS, task, "task").models


def parse_arms(arms: str | Sequence[str | Arm], task: str = "classification") -> tuple[Arm, ...]:
    """Parse the arms of a comparison from texts with commas or semicolons, keeping their order.

    A semicolon ends an arm. A comma ends it too, unless ``key=value`` follows, or a number or
    ``LABEL:NUMBER`` that continues a list; these belong to the arm before the comma. A
    ``command:`` reaches to the next semicolon: its commas, colons and ``=`` belong to it.

    Raises: an unknown task; as `parse_arm` and `check_arms`.

    >>> [arm.name for arm in parse_arms("mean,transformer:heads=2,score=dot,cnn:widths=2,3")]
    ['mean', 'transformer:heads=2,score=dot', 'cnn:widths=2,3']
    >>> [arm.name for arm in parse_arms("mean,command:a --n=1,2 {test} {out};cnn")]
    ['mean', 'command:a --n=1,2 {test} {out}', 'cnn']
    """
    models, parsed = models_of(task), list[Arm]()
    for item in [arms] if isinstance(arms, str) else arms:
        names = [item] if isinstance(item, Arm) else _names(item)
        parsed += [parse_arm(one, models) if isinstance(one, str) else one for one in names]
    check_arms(parsed, models)
    return tuple(parsed)


def _names(text: str) -> list[str]:
    """Split a text into arms, each with its settings."""
    names: list[str] = []
    for group in text.split(";"):
        fresh = True
        others, *command = re.split(rf"(?:^|,)\s*(?={COMMAND})", group, maxsplit=1)
        for part in filter(None, map(str.strip, others.split(","))):
            setting = "=" in part and ":" not in part.partition("=")[0]
            if not fresh and (setting or (LISTED.fullmatch(part) and "=" in names[-1])):
                names[-1] += ("," if ":" in names[-1] else ":") + part
            else:
                names.append(part)
            fresh = False
        names += command
    return names


def check_arms(
    arms: Sequence[Arm], models: Mapping[str, ModelEntry] = TASKS["classification"].models
) -> None:
    """Raise an error for fewer than two arms, or equal names."""
    if len(arms) < 2:
        names = [arm.name for arm in arms]
        others = [name for name in (*models, f"{next(iter(models))}:layers=2") if name not in names]
        raise RegardError(
            f"a comparison needs at least two arms, not {len(arms)}; give --arms "
            f"{','.join([*names, *others][:2])}; the models of this task are: {', '.join(models)}"
        )
    seen: set[str] = set()
    for arm in arms:
        if arm.name.casefold() in seen:
            raise RegardError(f"two arms are named {arm.name!r}; give them different settings")
        seen.add(arm.name.casefold())
