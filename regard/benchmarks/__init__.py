"""Benchmarks: regard beside its peers on this machine, interleaved in one run."""

from typing import NamedTuple


class Benchmark(NamedTuple):
    """A row of the table: a question, and the module whose ``cases`` answers it."""

    says: str
    module: str


BENCHMARKS: dict[str, Benchmark] = {
    "attention": Benchmark(
        "attend and MultiHeadAttention beside torch's own", "regard.benchmarks.attention"
    ),
    "text-training": Benchmark(
        "training a text classifier beside torch.nn.TransformerEncoder as tutorials do it",
        "regard.benchmarks.text_training",
    ),
}
