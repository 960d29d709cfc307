"""JoeyNMT in a separate environment, called over a pipe, a step at a time."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.lab.tasks.writing.task import Sequences
from regard.nn.models.settings import TransformerSettings

SCRIPT = Path(__file__).parent / "joey_process.py"  # run by its python, which has no regard
SENTENCES = 4_000  # of the train split that are sent, drawn at random
SEED = 0


class Joey:
    """JoeyNMT's model, loss, batches by tokens and beam search, at the given sizes.

    Raises: a Python that does not answer, with its last output.
    """

    def __init__(
        self, python: str, sizes: TransformerSettings, task: Sequences, forced: int
    ) -> None:
        self.python, self.sizes, self.task, self.forced = python, sizes, task, forced

    @staticmethod
    def lacks(python: str) -> str:
        """Return the reason for its omission; "" if its Python is named."""
        return "" if python else "left out: joey=PATH names the python of its environment"

    def __enter__(self) -> Self:
        try:
            self.process = subprocess.Popen(  # noqa: S603
                [self.python, str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
            )
        except OSError as error:
            raise RegardError(f"joey={self.python} does not start: {error}") from None
        encoded = self.task.split("train")
        chosen = np.random.default_rng(SEED).permutation(len(encoded))[:SENTENCES]
        sizes = self.sizes
        self.ask(
            {
                "words": self.task.end,
                "width": sizes.width,
                "layers": sizes.layers,
                "decoder_layers": sizes.decoder_layers or sizes.layers,
                "heads": sizes.heads,
                "feedforward": sizes.feedforward,
                "dropout": sizes.dropout,
                "pairs": [[encoded.source[i].tolist(), encoded.target[i].tolist()] for i in chosen],
            }
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send one line and return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            raise RegardError(
                f"JoeyNMT of {self.python} ended: its own message stands above; "
                "joey= names a python that can import joeynmt"
            ) from None
        if not isinstance(answer, dict):
            raise RegardError(f"JoeyNMT of {self.python} answered {str(answer)[:80]!r}")
        return answer

    def training(self) -> Iterator[int]:
        """Yield the real tokens of each step."""
        while True:
            yield int(self.ask({"step": True})["tokens"])

    def write(self, batches: Sequence[Sequence[NDArray[np.integer]]]) -> None:
        """Return a beam for each batch; all texts have one length."""
        for batch in batches:
            self.ask({"write": [ids.tolist() for ids in batch], "forced": self.forced})
