"""Benchmarks of regard and its peers on this machine, interleaved in one run."""

from typing import Literal, NamedTuple


class Benchmark(NamedTuple):
    """A row of the table: a question, and the module whose ``cases`` measures it.

    Its results are times of regard and a peer, cells that were computed exactly, or differences.
    """

    says: str
    module: str
    kind: Literal["speed", "cells", "parity"] = "speed"


BENCHMARKS: dict[str, Benchmark] = {
    "attention": Benchmark(
        "every part as a multiple of SDPA; rows=peers: KeOps, entmax, FlexAttention, dense",
        "benchmarks.attention",
    ),
    "cells": Benchmark(
        "every score × mask × position × normaliser × dropout: exact, and in O(n) memory?",
        "benchmarks.cells",
        "cells",
    ),
    "parity": Benchmark(
        "equality of scores and plain loops, layers and torch's, caches and full passes",
        "benchmarks.parity",
        "parity",
    ),
    "language-model-training": Benchmark(
        "language models against minGPT's way, nanoGPT, and Hugging Face's GPT-2, BERT, T5",
        "benchmarks.language_model_training",
    ),
    "translation": Benchmark(
        "training and beam search against torch, Marian, JoeyNMT and CTranslate2, same weights",
        "benchmarks.translation",
    ),
    "text-training": Benchmark(
        "training a text classifier against torch.nn.TransformerEncoder as in tutorials",
        "benchmarks.text_training",
    ),
}
