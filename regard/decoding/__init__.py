"""Decoding: greedy search, beam search, sampling, and scoring of given texts."""

from regard.decoding.beam import beam
from regard.decoding.forced import forced
from regard.decoding.greedy import greedy
from regard.decoding.sampling import sample
from regard.decoding.sliding import Sliding
from regard.decoding.stepwise import Limits, Writer, Written
from regard.decoding.workers import side_by_side

__all__ = [
    "Limits",
    "Sliding",
    "Writer",
    "Written",
    "beam",
    "forced",
    "greedy",
    "sample",
    "side_by_side",
]
