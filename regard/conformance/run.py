"""Check all laws on a score, a mask, a normaliser, a layer or a network."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import nn

from regard.attention import (
    MECHANISMS,
    NORMALIZERS,
    POSITIONS,
    SCORES,
    Mask,
    Mechanism,
    Normalizer,
    Score,
    causal,
    make_score,
    named_mechanism,
    others,
)
from regard.attention.masks.patterns import PATTERNS, Pattern
from regard.attention.mechanisms.stages import STAGES
from regard.attention.scores.wrapper import Wrapper
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.conformance.adapters import Layer, of_class
from regard.conformance.adoption import layer_of
from regard.conformance.law import Law, Verdict
from regard.conformance.layers import LAYER_LAWS
from regard.conformance.masks import MASK_LAWS
from regard.conformance.networks import NETWORK_LAWS, NetworkSubject
from regard.conformance.normalizers import NORMALIZER_LAWS
from regard.conformance.peers import LAYERS, peer
from regard.conformance.scores import SCORE_LAWS
from regard.conformance.subjects import MaskSubject, NormalizerSubject, ScoreSubject
from regard.core.errors import RegardError, look_up
from regard.core.names import is_part
from regard.core.plugins import a, load_object, one_line

Subject = ScoreSubject | MaskSubject | NormalizerSubject | Layer | NetworkSubject
#: Laws by kind of subject. If the first law of a kind fails, the others are not checked.
LAWS: dict[str, Mapping[str, Law[Any]]] = {
    "score": SCORE_LAWS,
    "mask": MASK_LAWS,
    "normalizer": NORMALIZER_LAWS,
    "layer": LAYER_LAWS,
    "network": NETWORK_LAWS,
}
KINDS = {
    ScoreSubject: "score", MaskSubject: "mask", NormalizerSubject: "normalizer", Layer: "layer",
    NetworkSubject: "network",
}  # fmt: skip
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
MASKS = {"causal": causal, "others": others}  # masks without arguments


def conform(thing: object, *, name: str = "", seed: int = 0, long: bool = True) -> list[Verdict]:
    """Return the verdict of every law on a score, a mask, a normaliser or a layer.

    A class is instantiated for each law; an instance is copied. A module of another package is
    called through its adapter, or as ``module(x, mask=mask)`` if there is none. An exception in the
    subject breaks the law. If the first law fails, the others are not checked. Without ``long`` the
    laws of texts of up to 300 words are skipped, which take most of the time.

    Raises: an object of another type.

    >>> from regard.attention import SCORES
    >>> {verdict.outcome for verdict in conform(SCORES["cosine"])} - {"does not apply"}
    {'holds'}
    """
    return list(verdicts(subject_of(thing, name), seed, long=long))


def verdicts(subject: Subject, seed: int = 0, *, long: bool = True) -> Iterator[Verdict]:
    """Yield the verdicts of all laws for the subject's kind."""
    laws, broken = LAWS[kind_of(subject)], ""
    for name, law in laws.items():
        if law.long and not long:
            continue
        if broken:
            yield Verdict(name, "does not apply", f"not checked, because {broken!r} fails")
            continue
        verdict = law.judge(name, subject, seed)
        yield verdict
        if name == next(iter(laws)) and verdict.outcome == "fails":
            broken = name


def kind_of(subject: Subject) -> str:
    """Return the kind of a subject, a key of ``LAWS``."""
    return next(kind for base, kind in KINDS.items() if isinstance(subject, base))


def subject_of(thing: object, name: str = "") -> Subject:
    """Return the subject for an object. Raises: an object without laws."""
    if isinstance(thing, tuple(KINDS)):
        return thing  # type: ignore[return-value]
    if isinstance(thing, type):
        return subject_of_class(thing, name or thing.__name__)
    if isinstance(thing, Score):
        return ScoreSubject.of(thing, name)
    if isinstance(thing, Normalizer):
        return NormalizerSubject.of(thing, name)
    if isinstance(thing, Mask):
        return MaskSubject(name or "mask", thing)
    if isinstance(thing, nn.Module):
        return layer_of(thing, name)
    if inspect.isfunction(thing):
        return subject_of(instance_of(thing, name or thing.__name__), name or thing.__name__)
    if isinstance(thing, Pattern):
        raise RegardError(
            f"a pattern is checked in a network: regard check classification:transformer "
            f"pattern={name or thing.examples[0]}"
        )
    raise RegardError(
        f"there are no laws for {a(type(thing).__name__)}; pass a Score, a Mask, a Normalizer or "
        "an nn.Module"
    )


def subject_of_class(kind: type, name: str) -> Subject:
    """Return the subject for a class, which is instantiated for each law if possible."""
    if issubclass(kind, Wrapper):
        return ScoreSubject.of(
            lambda query_width, key_width, **options: kind(
                SCORES["scaled-dot"](query_width, key_width, **options)
            ),
            name,
        )
    if issubclass(kind, Score):
        return ScoreSubject.of(kind, name)
    if issubclass(kind, Normalizer):
        return NormalizerSubject.of(kind, name)
    if issubclass(kind, Mechanism):
        return of_mechanism(kind, name)
    if issubclass(kind, nn.Module):
        return layer_of(kind, name)
    if issubclass(kind, Mask):
        return subject_of(instance_of(kind, name), name)
    raise RegardError(
        f"there are no laws for {name}; pass a subclass of Score, Mask, Normalizer or nn.Module"
    )


def of_mechanism(kind: Callable[..., Mechanism], name: str) -> Subject:
    """Return the subject of a mechanism's class. Raises: it cannot be built as models build it."""
    try:
        return of_class(kind, name)
    except Exception as error:  # whatever a user's code raises
        raise RegardError(
            f"{name}(width, heads, dropout=…) cannot be built and called as models do: "
            f"{one_line(error)}; write __init__(self, width, heads, **settings)"
        ) from error


def instance_of(make: Any, name: str) -> object:
    """Return the result of a function or class called without arguments."""
    try:
        return make()
    except Exception as error:  # whatever a user's code raises
        raise RegardError(
            f"{name} cannot be called without arguments ({one_line(error)}); name an instance "
            f"instead: my_{name.rpartition(':')[2].lower()} = {name.rpartition(':')[2]}(…)"
        ) from error


def find(spec: str, corrections: Mapping[str, str] | None = None) -> Subject:
    """Return a subject by name: ``FILE.py:Name``, a part of regard, or a layer of another package.

    The latter is written ``package.module:Name``, or by its name in `LAYERS`. ``corrections`` of
    `adopt`, as text, are for a module. A position is wrapped around scaled-dot. Raises: an unknown
    name.

    >>> find("sparsemax").name
    'sparsemax'
    """
    if is_part(spec) or (spec not in LAYERS and DOTTED.fullmatch(spec)):
        thing = load_object(spec) if is_part(spec) else imported(spec)
        return layer_of(thing, spec, corrections) if corrections else subject_of(thing, spec)
    if corrections:
        raise RegardError(f"{next(iter(corrections))}=: {spec} takes no corrections")
    if POSITIONS.is_row(spec) and spec not in POSITIONS:  # with options
        return of_score("scaled-dot", spec)
    if MECHANISMS.is_row(spec.partition("+")[0]) and "+" in spec:  # with output stages
        return of_mechanism(named_mechanism(spec), spec)
    if "+" in spec or SCORE_WRAPPERS.is_row(spec):
        return of_score(spec)
    if NORMALIZERS.is_row(spec) and spec not in NORMALIZERS:
        kind, options = NORMALIZERS.named(spec)
        return NormalizerSubject.of(kind(**options), spec)
    if MECHANISMS.is_row(spec) and spec not in MECHANISMS:
        return of_mechanism(named_mechanism(spec), spec)
    if STAGES.is_row(spec):
        return of_mechanism(named_mechanism(f"multi-head+{spec}"), spec)
    if spec not in MASKS and (pattern := PATTERNS.get(PATTERNS.split(spec)[0])):
        return subject_of(pattern, spec)
    return look_up(named(), spec, "score, mask, normalizer or layer")()


def imported(spec: str) -> object:
    """Return an object of an installed package, ``package.module:Name``."""
    home, _, name = spec.partition(":")
    module = peer(home)
    if not hasattr(module, name):
        raise RegardError(f"{home} has no {name}")
    return getattr(module, name)


def named() -> dict[str, Callable[[], Subject]]:
    """Return functions that build all subjects with a name."""
    wrapped = [name for name, kind in POSITIONS.items() if kind and issubclass(kind, Score)]
    return {
        **{name: partial(of_score, name) for name in (*SCORES, *SCORE_WRAPPERS)},
        **{name: partial(of_score, "scaled-dot", name) for name in wrapped},
        **{name: partial(NormalizerSubject.of, kind, name) for name, kind in NORMALIZERS.items()},
        **{name: partial(subject_of, make, name) for name, make in MASKS.items()},
        **{name: partial(of_mechanism, named_mechanism(name), name) for name in MECHANISMS},
        **LAYERS,
    }


def of_score(name: str, position: str = "none") -> ScoreSubject:
    """Return the subject of a score by name, wrapped in a position by name."""

    def make(query_width: int, key_width: int, **options: Any) -> Score:
        return make_score(name, position, query_width, key_width, **options)

    return ScoreSubject.of(make, name if position == "none" else f"{position} around {name}")
