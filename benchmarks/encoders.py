"""Predictions of a run's encoder beside ONNX Runtime and sentence-transformers, interleaved.

    python -m benchmarks.encoders RUN TEXTS.txt --texts 512 --rounds 7
    python -m benchmarks.encoders RUN TEXTS.txt --serve 20      # also requests a second

RUN is a run of ``bert``, ``frozen`` or ``sentence``. Each round times every arm once, in turn:
``predict`` as the command computes it (tokens, unknown words, answers), the same through
onnxruntime in float32 and int8, sentence-transformers on the exported folder, and onnxruntime with
its usual loop, batches of 32 texts in their order. The table has the processor time per text, which
a busy machine changes little, its ratio to each peer as the median over rounds, and the largest
difference of a probability. ``--serve``: answers a second of ``regard serve``, by 8 clients that
wait for each.
"""

import argparse
import asyncio
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from benchmarks.serving import Client, _served, started
from regard.lab.cli.predict import _how, chunks
from regard.lab.runs import Run, load
from regard.lab.runs.export import export
from regard.lab.runs.onnx_folder import through_onnx
from regard.training.batches import pad

Probabilities = NDArray[np.floating]
Arms = Mapping[str, Callable[[], Probabilities]]


def command(run: Run, texts: Sequence[str]) -> Callable[[], Probabilities]:
    """Return the work of ``regard predict`` on texts; vectors are not read from the cache."""
    answer = _how(run, {}, False, 0)

    def work() -> Probabilities:
        rows = [list(values["probabilities"].values())
                for chunk in chunks(texts) for _, values in answer(chunk, "texts", 0)]  # fmt: skip
        return np.array(rows)

    return work


def arms_of(folder: Path, texts: Sequence[str], scratch: Path) -> Arms:
    """Return the arms by name."""
    from sentence_transformers import SentenceTransformer

    run, fast = load(folder), through_onnx(load(folder))
    arms: dict[str, Callable[[], Probabilities]] = {
        "regard predict": command(run, texts),
        "regard predict --onnx": command(fast, texts),
        "regard predict --int8": command(through_onnx(load(folder), int8=True), texts),
    }
    export(run, "sentence-transformers", scratch / "folder")
    theirs = SentenceTransformer(str(scratch / "folder"), device="cpu")
    arms["sentence-transformers"] = lambda: softmax(theirs.encode(list(texts)), axis=1)
    if run.config.entry.baseline:  # a vector is computed once; here each round computes it
        embedded = importlib.import_module("regard.lab.tasks.embedded")
        vars(embedded)["embed"] = lambda encoder, texts, **how: encoder.encode(texts, **how)
        return arms
    network = fast.network

    def plain() -> Probabilities:
        parts = []
        for first in range(0, len(texts), 32):
            tokens, lengths = pad(run.task.tokenizer.encode(texts[first : first + 32]))
            parts.append(network(tokens, lengths))
        return np.asarray(torch.cat(parts).softmax(-1).numpy())

    return {**arms, "onnxruntime, batches of 32": plain}


def measure(arms: Arms, texts: int, rounds: int) -> list[str]:
    """Return the rows of the table."""
    answers = {name: work() for name, work in arms.items()}  # the first call is not timed
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, work in arms.items():
            begun = time.process_time()
            work()
            seconds[name].append((time.process_time() - begun) / texts)
    own, *_ = arms
    rows = []
    for name, spent in seconds.items():
        ratio = median(a / b for a, b in zip(seconds[own], spent, strict=True))
        gap = np.abs(answers[name] - answers[own]).max()
        rows.append(f"| {name} | {1000 * median(spent):.2f} | {ratio:.2f} | {gap:.1e} |")
    return rows


def served(folder: Path, words: int, seconds: float, *more: str) -> float:
    """Return the answers a second of a new server."""
    with started(folder, *more) as (_, url):
        client = Client(url, folder.name)
        asyncio.run(client.predict(words, 0))
        return asyncio.run(_served(client, words, seconds, 8))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path, help="texts, one per line")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", type=float, default=0, help="seconds for each server")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    texts = asked.file.read_text(encoding="utf-8").splitlines()[: asked.texts]
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(arms_of(asked.run, texts, Path(scratch)), len(texts), asked.rounds)
    head = [
        "| | ms a text | regard predict takes of it | largest difference |",
        "|---|--:|--:|--:|",
    ]
    sys.stdout.write("\n".join([*head, *rows]) + "\n")
    if asked.serve:
        for _ in range(3):
            hows = {"": (), "--onnx ": ("--onnx",), "--int8 ": ("--int8",)}
            rates = {how: served(asked.run, 20, asked.serve, *more) for how, more in hows.items()}
            shown = ", ".join(f"{how}{rate:.1f}" for how, rate in rates.items())
            sys.stdout.write(f"answers a second: {shown}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
