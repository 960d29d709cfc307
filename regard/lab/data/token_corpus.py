"""Token streams of texts that do not fit into memory, stored on the disk.

Several processes write shards; after an interruption, the same command continues with the missing
shards.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.memory import cores, follow_parent
from regard.lab.data.data_source import DataSource
from regard.lab.data.fetch import Show, progress_lines
from regard.lab.data.text_files import files_at
from regard.lab.data.token_store import (
    SPLITS,
    Index,
    Shard,
    TokenStream,
    finished_shard,
    must_have_its_hashes,
    write_index,
    written_once,
)
from regard.lab.data.tokenizers import Tokenizer, must_be_known
from regard.lab.data.tokenizing import (
    TOKENIZER,
    Tokenising,
    end_of,
    learn,
    place_of,
    recipe_of,
)

INTERVAL = 0.5  # seconds between two checks of the processes
LOOKED_AT = 1_000_000  # training tokens that are checked for unknown tokens
HERE = "memory://"  # addresses that other processes cannot read


@dataclass(frozen=True)
class Learned:
    """A tokenizer to learn: its kind, and limits of its vocabulary."""

    kind: str = "characters"
    vocabulary: int = 8_000
    minimum: int = 2


@dataclass(frozen=True)
class TokenCorpus:
    """The tokens of three splits on the disk; no document is in two of them.

    The fingerprint is a sha256 over all tokens.
    """

    name: str
    folder: Path
    index: Index
    tokenizer: Tokenizer
    streams: Mapping[str, TokenStream]
    notes: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Return a sha256 over the hashes of all shards."""
        return self.index.fingerprint

    def verify(self) -> None:
        """Read all shards and verify their hashes. Raises: a damaged shard."""
        must_have_its_hashes(self.folder, self.index)


def load_tokens(
    source: DataSource,
    tokenizer: Tokenizer | Learned = Learned(),
    *,
    processes: int = 0,
    show: Show | None = None,
) -> TokenCorpus:
    """Return the tokens of texts, which are written first if they are not on the disk.

    A tokenizer is learned from a sample of the training documents, unless it is given.
    `processes`: 0 means one per processor, but not more than files. If a file has changed, its
    tokens are written again, to another folder.

    Raises: no file; an unreadable file, by file:line; a split without documents; no space; damaged
    shards.
    """
    data = source.name
    listed = files_at(data)
    files = [file for file in listed if file.size]
    if not files:
        raise RegardError(f"{data}: the file is empty")
    if source.splits.share == 0:
        raise RegardError(
            f"validation=0 evaluates on all training texts, which are too many in {data}; "
            "set validation=0.05 (for large data, less is held out)"
        )
    recipe = recipe_of(files, source)
    origin = (
        list(vars(tokenizer).values()) if isinstance(tokenizer, Learned) else [tokenizer.sha256]
    )
    folder = place_of(source.data_dir) / recipe.name(origin)

    def write() -> None:
        if not isinstance(tokenizer, Learned):
            known = tokenizer
        elif (folder / TOKENIZER).is_file():  # of an interrupted run
            known = Tokenizer.load(folder / TOKENIZER)
        else:
            tell = show or progress_lines("learn the tokenizer")
            known = learn(recipe, tokenizer.kind, tokenizer.vocabulary, tokenizer.minimum, tell)
        work = Tokenising.begin(folder, recipe, known)
        _write(work, processes, show or progress_lines("tokenise"))

    index = written_once(folder, write)
    if empty := [split for split in SPLITS if not index.total("documents", split)]:
        count = sum(index.total("documents", split) for split in SPLITS)
        raise RegardError(
            f"{data}: {count:,} documents are too few to hold some out for {empty[0]}; add "
            "documents"
        )
    corpus = TokenCorpus(
        Path(data).name,
        folder,
        index,
        Tokenizer.load(folder / TOKENIZER),
        {split: TokenStream(folder, index, split) for split in SPLITS},
        tuple(_notes(index, len(listed) - len(files))),
    )
    must_be_known([corpus.streams["train"][:LOOKED_AT]])
    return corpus


def _notes(index: Index, empty: int) -> Iterator[str]:
    train = index.total("tokens", "train")
    yield (
        f"{train:,} tokens of train in {index.total('documents', 'train'):,} documents are read "
        f"from the disk, in {len(index.shards):,} shards"
    )
    for split in SPLITS[1:]:
        count = index.total("documents", split)
        yield f"{count:,} documents split off as {split}, by a hash of the text"
    if empty:
        yield f"{empty:,} empty files skipped"


def _write(work: Tokenising, processes: int, show: Show) -> None:
    """Write the missing shards, then the index."""
    end, files = end_of(work.tokenizer), work.recipe.sources
    kept = {i: finished_shard(work.folder, i, end) for i in range(len(files))}
    todo = [number for number, shard in kept.items() if shard is None]
    todo.sort(key=lambda number: -files[number].size)  # the longest first, so that all end together
    before = sum(files[i].size for i, shard in kept.items() if shard)
    rows = sum(_rows(shard) for shard in kept.values() if shard)
    total = sum(file.size for file in files)

    def tell(read: int, count: int) -> None:
        show(min(before + read, total - 1), total, f"text ({rows + count:,} documents)")

    tell(0, 0)
    some = min(processes or cores(), len(todo))
    if some > 1 and not any(file.address.startswith(HERE) for file in files):
        _in_processes(work.folder, todo, some, tell)
    else:
        read = count = 0
        for number in todo:
            written = work.write(
                number,
                lambda done, some: tell(read + done, count + some),  # noqa: B023
            )
            read, count = read + files[number].size, count + _rows(written)
    found = (finished_shard(work.folder, i, end) for i in range(len(files)))
    shards = [shard for shard in found if shard]
    write_index(work.folder, end, shards)
    show(total, total, f"text ({sum(map(_rows, shards)):,} documents)")


def _rows(shard: Shard) -> int:
    return sum(shard.documents.values())


def _in_processes(
    folder: Path, todo: Sequence[int], count: int, tell: Callable[[int, int], None]
) -> None:
    """Tokenise files in several processes. Raises: an error of a file; a dead process."""
    context = multiprocessing.get_context("spawn")
    reached = context.RawArray("q", 2 * len(todo))  # bytes and documents of each file
    taken, errors = context.Value("q", 0), context.SimpleQueue()
    workers = [
        context.Process(
            target=_serve, args=(str(folder), list(todo), taken, reached, errors), daemon=True
        )
        for _ in range(count)
    ]
    try:
        for worker in workers:
            worker.start()
        while alive := [worker for worker in workers if worker.is_alive()]:
            ready = connection.wait([worker.sentinel for worker in alive], INTERVAL)
            for worker in alive:
                if worker.sentinel in ready:
                    worker.join()
            tell(sum(reached[::2]), sum(reached[1::2]))
            _must_do_well(workers, errors)
        _must_do_well(workers, errors)
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
            if worker.pid is not None:
                worker.join()


def _must_do_well(workers: Sequence[Any], errors: Any) -> None:
    """Raise the first error of a worker, or an error for one that died."""
    if not errors.empty():
        raise RegardError(str(errors.get()))
    if bad := [worker.exitcode for worker in workers if worker.exitcode]:
        raise RegardError(
            f"a process that tokenised texts ended with exit code {bad[0]}; run the same command "
            "again to go on (a script must call regard under if __name__ == '__main__':)"
        )


def _serve(folder: str, todo: Sequence[int], taken: Any, reached: Any, errors: Any) -> None:
    """Tokenise one file after another, in a worker process."""
    follow_parent()
    try:
        work = Tokenising(Path(folder))
        while True:
            with taken.get_lock():
                place, taken.value = taken.value, taken.value + 1
            if place >= len(todo):
                return

            def report(done: int, documents: int, place: int = place) -> None:
                reached[2 * place], reached[2 * place + 1] = done, documents

            work.write(todo[place], report)
            reached[2 * place] = work.recipe.sources[todo[place]].size
    except RegardError as error:
        errors.put(str(error))
