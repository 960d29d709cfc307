"""The arms of a comparison: models with settings and names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from regard.errors import RegardError, look_up
from regard.models import ModelEntry
from regard.settings import key_of
from regard.tasks import TASKS
from regard.trusted import trust_named

LONGEST = 200  # characters of a folder's name; file systems take 255 bytes
#: What goes on a value that is a list: of ``widths=3,4,5`` or ``class_weights=bad:3,good:1``.
LISTED = re.compile(r"(?:[^:=,]+:)?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Arm:
    """One model in a comparison, with its settings that differ from the defaults."""

    name: str
    model: str
    overrides: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The arm's name as a folder's, the same on every system; distinct arms stay distinct.

        Other characters than letters, digits, ``+``, ``-`` and ``_`` become ``~`` and their number;
        of a name too long for a folder the end becomes a hash of it.

        >>> Arm("transformer:score=additive,heads=2", "transformer").folder
        'transformer~3ascore~3dadditive~2cheads~3d2'
        >>> Arm("+residual", "+residual").folder
        '+residual'
        """
        folder = re.sub(r"[^A-Za-z0-9+_-]", lambda odd: f"~{ord(odd[0]):x}", self.name)
        if len(folder) <= LONGEST:
            return folder
        return f"{folder[: LONGEST - 20]}~~{sha256(folder.encode()).hexdigest()[:16]}"

    @property
    def deterministic(self) -> bool:
        """Return whether all seeds give the same predictions, so that one run is enough."""
        entries = (entry.models.get(self.model) for entry in TASKS.values())
        return any(entry is not None and entry.deterministic for entry in entries)


def parse_arm(text: str, models: Mapping[str, ModelEntry] = TASKS["classification"].models) -> Arm:
    """``model`` or ``model:key=value,key=value``; the text is the arm's name.

    >>> parse_arm("transformer:score=additive,heads=2").overrides
    ('score=additive', 'heads=2')
    >>> parse_arm("tranformer")
    Traceback (most recent call last):
    regard.errors.RegardError: no model is called 'tranformer'; did you mean transformer? ...
    """
    name = text.strip()
    model, colon, rest = name.partition(":")
    if model.strip().endswith(".py"):  # FILE.py:NAME, and perhaps settings behind another colon
        part, colon, rest = rest.partition(":")
        model = f"{model}:{part}"
    model = model.strip()
    trust_named([model])
    look_up(models, model, "model")
    overrides = tuple(_pairs(rest))
    if colon and not overrides:
        raise RegardError(f"arm {name!r}: settings must follow the colon, as in {model}:heads=2")
    for pair in overrides:
        if "=" not in pair:
            raise RegardError(f"arm {name!r}: settings are written key=value, not {pair!r}")
    return Arm(f"{model}:{','.join(overrides)}" if overrides else model, model, overrides)


def _pairs(text: str) -> list[str]:
    """Split settings at commas, but not within a value such as ``widths=3,4,5``."""
    found: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if found and LISTED.fullmatch(part):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def spelled(arm: Arm, steps: int = 0, batch_tokens: int = 0) -> str:
    """Return an arm as the command line takes it, with this many steps for its minutes, if any.

    And with the batch that the minutes chose, if they did.

    >>> spelled(parse_arm("transformer:heads=2,minutes=1"), 120)
    'transformer:heads=2,steps=120'
    >>> spelled(parse_arm("gpt"), 120, 256)
    'gpt:steps=120,batch_tokens=256'
    """
    kept = [p for p in arm.overrides if not steps or key_of(p) != "minutes"]
    given = {"steps": steps, "batch_tokens": batch_tokens if steps else 0}
    settings = ",".join([*kept, *(f"{key}={value}" for key, value in given.items() if value)])
    return f"{arm.model}:{settings}" if settings else arm.model


def parse_arms(
    texts: Sequence[str], models: Mapping[str, ModelEntry] = TASKS["classification"].models
) -> list[Arm]:
    """The arms of a comparison, from names joined by commas or semicolons, in the order given.

    A comma ends an arm unless what follows it is ``key=value``: that still belongs to the arm
    before it, as does a number or ``LABEL:NUMBER`` that goes on a list. A semicolon always ends an
    arm.

    >>> [arm.name for arm in parse_arms(["mean,transformer:heads=2,score=dot,cnn:widths=2,3"])]
    ['mean', 'transformer:heads=2,score=dot', 'cnn:widths=2,3']
    """
    names: list[str] = []
    for text in texts:
        for group in text.split(";"):
            fresh = True
            for part in filter(None, map(str.strip, group.split(","))):
                setting = "=" in part and ":" not in part.partition("=")[0]
                if not fresh and (setting or (LISTED.fullmatch(part) and "=" in names[-1])):
                    names[-1] += ("," if ":" in names[-1] else ":") + part
                else:
                    names.append(part)
                fresh = False
    arms = [parse_arm(name, models) for name in names]
    check_arms(arms, models)
    return arms


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
