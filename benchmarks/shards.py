"""Data that do not fit: 10 GB of tokens read by two ranks, texts tokenised, an S3 server.

    python -m benchmarks.shards                     # all; 10 GB of disk, some minutes
    python -m benchmarks.shards read --gigabytes 2
    python -m benchmarks.shards tokenise s3

``read`` writes shards whose tokens follow from their positions, drops them from the page cache,
and reads random batches in two processes by the path of a training (`LanguageModeling.batches` and
`batch`). It checks that the tokens are right, that no window is read by both, that an epoch covers
each window once, and that a process that starts at any step reads the same as an undisturbed one.
Memory is the peak of RssAnon in /proc/self/status: the system may drop mapped pages.
``tokenise`` compares one process with two, on IMDB reviews if available (REGARD_DATA), else on
generated ones. ``s3`` reads the same files by s3:// from moto's server on loopback.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.lab.data import synthetic
from regard.lab.data.data_source import DataSource
from regard.lab.data.fetch import present
from regard.lab.data.text_rows import text_rows
from regard.lab.data.token_corpus import Learned, TokenCorpus, load_tokens
from regard.lab.data.token_store import (
    SPLITS,
    Shard,
    TokenStream,
    ids_path,
    open_index,
    write_index,
)
from regard.lab.data.tokenizers import train_tokenizer
from regard.lab.data.window_order import Shuffled

LENGTH, ROWS = 512, 32  # tokens of a window, windows of a batch
KINDS = 65_000  # different tokens
BLOCK = 77 * KINDS  # tokens written at once
SHARD = 25 * BLOCK  # tokens
FACTOR = 48_271
CHECKED = 200  # batches whose every token is compared
RANKS = 2
MOST_MB = 1_000.0  # of anonymous memory in a rank
FILES = 8  # that reviews are divided among
STATUS = re.compile(r"RssAnon:\s+(\d+) kB")


def token_at(places: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return the token at a position of the stream."""
    return ((places * FACTOR + places // KINDS) % KINDS).astype(np.uint16)


def block_at(start: int) -> NDArray[np.uint16]:
    """Return the tokens of a block, faster."""
    row = np.arange(KINDS, dtype=np.int64) * FACTOR % KINDS
    numbers = (start // KINDS + np.arange(BLOCK // KINDS)) % KINDS
    sums = row.astype(np.uint32) + numbers.astype(np.uint32)[:, None]
    return np.where(sums >= KINDS, sums - KINDS, sums).astype(np.uint16).ravel()


def write_tokens(folder: Path, tokens: int) -> None:
    """Write shards of a stream of tokens, and drop them from the page cache."""
    shards = []
    for number, first in enumerate(range(0, tokens, SHARD)):
        last, digest = min(first + SHARD, tokens), hashlib.sha256()
        with ids_path(folder, number, "train").open("wb") as file:
            for start in range(first, last, BLOCK):
                data = block_at(start)[: last - start].tobytes()
                file.write(data)
                digest.update(data)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        counts, hashes = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, hashlib.sha256())
        for split in SPLITS[1:]:
            ids_path(folder, number, split).touch()
        shards.append(
            Shard(
                number,
                "generated",
                {**counts, "train": 1},
                {**counts, "train": last - first},
                {**{split: one.hexdigest() for split, one in hashes.items()},
                 "train": digest.hexdigest()},
            )
        )  # fmt: skip
    write_index(folder, KINDS, shards)


def anonymous_mb() -> float:
    """Return the anonymous memory of this process now."""
    found = STATUS.search(Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else 0.0


class Peak:
    """The peak of anonymous memory, read every 5 ms by a thread."""

    def __init__(self) -> None:
        self.mb = anonymous_mb()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.mb = max(self.mb, anonymous_mb())
            time.sleep(0.005)


def task_of(folder: Path) -> Any:
    """Return language modelling of the stream, as in a training."""
    from regard.lab.tasks.pretraining.language_modeling import LanguageModeling
    from regard.lab.tasks.settings import PretrainingSettings

    tokenizer = train_tokenizer("characters", ["some text"], minimum=1)
    settings = PretrainingSettings.model_validate({"data": "*", "length": LENGTH})
    task = LanguageModeling(settings, tokenizer)
    index = open_index(folder)
    streams = {split: TokenStream(folder, index, split) for split in SPLITS}
    corpus = TokenCorpus("generated", folder, index, tokenizer, streams, ())
    task.__dict__["corpus"] = corpus
    return task


def as_rank(folder: Path, rank: int, first: int, steps: int) -> dict[str, Any]:
    """Read a rank's batches from a step on; return the measurements."""
    import torch  # loaded before the memory is measured

    torch.set_num_threads(1)
    before, peak, begun = anonymous_mb(), Peak(), time.monotonic()
    task = task_of(folder)
    plan = task.batches("train", tokens=LENGTH * ROWS, seed=1, epoch=0)[rank::RANKS]
    offset, _ = task._cut("train", 1, 0)
    digests, seen, opened = [], [], 0.0
    started = time.monotonic()
    for step, rows in enumerate(plan[first : first + steps]):
        batch = task.batch("train", rows)
        if not step:
            opened = time.monotonic() - begun
        digests.append(hashlib.sha256(batch.tokens.numpy().tobytes()).hexdigest()[:16])
        seen += rows[:, 2].tolist()
        if step < CHECKED:
            places = offset + rows[:, 2:] * LENGTH + np.arange(LENGTH)
            if not (batch.tokens.numpy() == token_at(places)).all():
                raise RegardError(f"rank {rank}, step {step}: not the tokens of these places")
            if not (batch.wanted.numpy() == token_at(places + 1)).all():
                raise RegardError(f"rank {rank}, step {step}: not the tokens that follow")
    seconds = time.monotonic() - started
    return {
        "rank": rank,
        "peak_anonymous_mb": round(max(peak.mb, anonymous_mb()), 1),
        "before_mb": round(before, 1),
        "seconds_to_first_batch": round(opened, 3),
        "ms_per_batch": round(1e3 * seconds / steps, 3),
        "tokens_per_second": round(steps * ROWS * LENGTH / seconds),
        "digests": digests,
        "seen": seen,
    }


def in_process(*words: object) -> "subprocess.Popen[str]":
    """Start this file as a separate process."""
    command = [sys.executable, "-m", "benchmarks.shards", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


def answers(processes: list["subprocess.Popen[str]"]) -> list[dict[str, Any]]:
    """Return the output of the processes. Raises: one of them failed."""
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RegardError("a process failed; see above")
    return [json.loads(output) for output in outputs]


def read(place: Path, gigabytes: float, steps: int) -> dict[str, Any]:
    """Write the stream, read it by two ranks, and check the module's promises."""
    folder = place / "stream"
    folder.mkdir()
    begun = time.monotonic()
    write_tokens(folder, round(gigabytes * 1e9 / 2))
    wrote = time.monotonic() - begun
    ranks = answers([in_process("--rank", rank, folder, 0, steps) for rank in range(RANKS)])
    middle = steps // 2
    (resumed,) = answers([in_process("--rank", 1, folder, middle, steps - middle)])
    seen = [set(rank.pop("seen")) for rank in ranks]
    digests = [rank.pop("digests") for rank in ranks]
    count = (round(gigabytes * 1e9 / 2) - 1) // LENGTH
    again = np.zeros(count, np.uint8)
    order = Shuffled(count, (1, 0))
    for start in range(0, count, 1 << 20):
        np.add.at(again, order.at(np.arange(start, min(start + (1 << 20), count))), 1)
    return {
        "gigabytes": gigabytes,
        "windows": count,
        "steps": steps,
        "batch": [ROWS, LENGTH],
        "seconds_to_write": round(wrote, 1),
        "ranks": ranks,
        "seconds_to_first_batch_when_resumed": resumed["seconds_to_first_batch"],
        "disjoint": not seen[0] & seen[1] and sum(map(len, seen)) == RANKS * steps * ROWS,
        "resumed_is_undisturbed": resumed["digests"] == digests[1][middle:],
        "epoch_covers_each_once": bool((again == 1).all()),
        "within_memory": all(rank["peak_anonymous_mb"] <= MOST_MB for rank in ranks),
    }


def some_texts(count: int) -> Iterator[str]:
    """Yield reviews of IMDB if available, else generated ones."""
    if (folder := present("imdb")) and (folder / "unsup.jsonl.gz").is_file():
        yield from islice(text_rows(folder / "unsup.jsonl.gz", "text"), count)
    else:
        for example in synthetic.reviews(count, 1):
            yield example.text


def write_texts(folder: Path, count: int, last: str = ".jsonl.gz") -> float:
    """Write texts in files of equal size, the last one as Parquet if wanted; return their MB."""
    import pyarrow
    import pyarrow.parquet

    texts = list(some_texts(count))
    for number in range(FILES):
        part = texts[number::FILES]
        if number == FILES - 1 and last == ".parquet":
            pyarrow.parquet.write_table(pyarrow.table({"text": part}), folder / f"{number}.parquet")
        else:
            with gzip.open(folder / f"{number}.jsonl.gz", "wt", 1) as file:
                file.writelines(json.dumps({"text": text}) + "\n" for text in part)
    return sum(len(text.encode()) for text in texts) / 1e6


def tokenise(place: Path, count: int) -> dict[str, Any]:
    """Measure one process and two, in MB of text per second, without learning."""
    folder = place / "texts"
    folder.mkdir()
    size = write_texts(folder, count)
    first = DataSource(f"{folder}/0*", data_dir=place / "first")
    tokenizer = load_tokens(first, Learned("bpe")).tokenizer
    result: dict[str, Any] = {"megabytes": round(size, 1), "vocabulary": len(tokenizer)}
    prints = set()
    for processes in (1, 2):
        own = place / f"by-{processes}"
        begun = time.monotonic()
        corpus = load_tokens(
            DataSource(f"{folder}/*", data_dir=own), tokenizer, processes=processes
        )
        seconds = time.monotonic() - begun
        prints.add(corpus.fingerprint)
        result[f"mb_per_second_{processes}"] = round(size / seconds, 2)
        result["tokens"] = corpus.index.total("tokens", "train")
    return {**result, "same": len(prints) == 1}


def s3(place: Path, count: int) -> dict[str, Any]:
    """Read gzip lines and Parquet from an S3 server on loopback, and the same from the disk."""
    import s3fs
    from moto.server import ThreadedMotoServer

    folder = place / "remote"
    folder.mkdir()
    size = write_texts(folder, count, ".parquet")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    store = s3fs.S3FileSystem()
    store.mkdir("texts")
    store.put(f"{folder}/", "texts/all/", recursive=True)
    begun = time.monotonic()
    remote = load_tokens(
        DataSource("s3://texts/all/*", data_dir=place / "a"), Learned("words"), processes=2
    )
    seconds = time.monotonic() - begun
    here = load_tokens(
        DataSource(f"{folder}/*", data_dir=place / "b"), Learned("words"), processes=2
    )
    server.stop()
    return {
        "megabytes": round(size, 1),
        "files": sorted({path.suffix for path in folder.iterdir()}),
        "mb_per_second_with_learning": round(size / seconds, 2),
        "same": remote.fingerprint == here.fingerprint,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all promises hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=["read", "tokenise", "s3"])
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--texts", type=int, default=25_000, help="reviews that are tokenised")
    parser.add_argument("--place", type=Path, help="a folder with room (default: the system's)")
    parser.add_argument("--rank", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.rank:
        rank, folder, first, steps = asked.rank
        print(json.dumps(as_rank(Path(folder), int(rank), int(first), int(steps))))
        return 0
    result: dict[str, Any] = {}
    with TemporaryDirectory(dir=asked.place) as place:
        for part in asked.parts:
            own = Path(place) / part
            own.mkdir()
            if part == "read":
                result[part] = read(own, asked.gigabytes, asked.steps)
            else:
                result[part] = {"tokenise": tokenise, "s3": s3}[part](own, asked.texts)
    print(json.dumps(result, indent=2))
    held = [value for part in result.values() for value in part.values() if isinstance(value, bool)]
    return int(not all(held))


if __name__ == "__main__":
    raise SystemExit(main())
