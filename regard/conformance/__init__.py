"""Laws of attention, as checks of regard's parts, your own, and those of other packages.

>>> from regard.attention import causal
>>> [verdict.law for verdict in conform(causal()) if verdict.outcome == "fails"]
[]
"""

from regard.conformance.adapters import Layer
from regard.conformance.adopted import Adopted
from regard.conformance.adoption import adopt
from regard.conformance.law import Law, Outcome, Verdict
from regard.conformance.networks import NetworkSubject
from regard.conformance.peers import LAYERS
from regard.conformance.run import LAWS, Subject, conform, find, kind_of, subject_of, verdicts
from regard.conformance.subjects import MaskSubject, NormalizerSubject, ScoreSubject

__all__ = [
    "LAWS",
    "LAYERS",
    "Adopted",
    "Law",
    "Layer",
    "MaskSubject",
    "NetworkSubject",
    "NormalizerSubject",
    "Outcome",
    "ScoreSubject",
    "Subject",
    "Verdict",
    "adopt",
    "conform",
    "find",
    "kind_of",
    "subject_of",
    "verdicts",
]
