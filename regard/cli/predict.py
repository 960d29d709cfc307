"""``regard predict``: a run's answers for texts from the command line, a file or a pipe."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.cli.console import Json, RunFolder, emit_json, opened, say
from regard.data.files import Example, table_kind
from regard.data.text_rows import text_rows
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.runs import Run
    from regard.tasks.writing.searching import Search

CHUNK = 512  # texts answered at once, so that a pipe of any length fits into memory
T = TypeVar("T")
Answer = tuple[list[str], dict[str, object]]  # the lines of an answer, and it as plain values


def predict(
    run: RunFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts; without any, stdin is read."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="A file: one text a line; of a .csv, .tsv or .jsonl one a row; of a .conllu one a "
            "parsed sentence.",
        ),
    ] = None,
    column: Annotated[
        str,
        typer.Option("--text", help="Of such a table: the column of the texts, if not found."),
    ] = "",
    top: Annotated[
        int, typer.Option(min=0, help="The N likeliest labels of each text.", show_default=False)
    ] = 0,
    best: Annotated[
        int, typer.Option(min=0, help="So many texts for each, with ln p.", show_default=False)
    ] = 0,
    beam: Annotated[
        int, typer.Option(min=0, help="Texts to go on with; 1: greedy.", show_default="the run's")
    ] = 0,
    penalty: Annotated[
        float | None, typer.Option(help="Of length, in a beam.", show_default="the run's")
    ] = None,
    longest: Annotated[
        int,
        typer.Option(
            min=0,
            help="Most tokens of a text; of a model that goes on with texts even more than it "
            "reads at once.",
            show_default="the run's",
        ),
    ] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Draw each word: 1 as the model thinks, less: bolder; 0: take the likeliest.",
            show_default="0.8 of a model that goes on with texts, else 0",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=0, help="Draw of so many words; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw of the words of this share.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of drawing.")] = 0,
    score: Annotated[
        bool,
        typer.Option("--score", help="Texts are SOURCE<tab>TARGET: how likely is the target?"),
    ] = False,
    json: Json = False,
) -> None:
    """Answer texts, one line out for each line in.

    A line is a label and its probability, or a text.

    --top 3: on each line the three likeliest labels, each with its probability, tabs between.
    --best 5: up to five lines for each text, each with the text's number, ln p and what was
    written, tabs between them, best first. --score: ln p, tokens and perplexity of each given
    pair. A text longer than the run reads is answered from a part of it, and told on stderr.

    A model that goes on with texts draws their words: --seed 1 draws others, --temperature 0 takes
    the likeliest. With --longest it writes past what it reads at once: when that is full, its last
    half is read anew.

    regard predict runs/classification-transformer 'not a bad film' 'not a good film'

    cat reviews.txt | regard predict runs/classification-transformer

    regard predict runs/classification-transformer --file reviews.csv --text body > labels.tsv

    regard predict runs/translation-transformer --best 5 'Ein Hund schläft.'

    regard predict runs/language-modeling-gpt --temperature 1 --longest 500 'Once'
    """

    if texts and file:
        raise RegardError("give texts or --file, not both")
    table = file is not None and not score and table_kind(file) is not None
    if column and not table:
        raise RegardError("--text names a column of --file FILE.csv, .tsv or .jsonl")
    given: dict[str, Any] = {"best": best, "beam": beam, "longest": longest}
    given |= {"top_k": top_k, "seed": seed}
    asked = {key: value for key, value in given.items() if value}
    asked |= {"penalty": penalty} if penalty is not None else {}
    asked |= {"temperature": temperature} if temperature is not None else {}
    asked |= {"top_p": top_p} if top_p != 1 else {}
    loaded = opened(run, "predict")
    answer = _how(loaded, asked, score, top)
    name = str(file) if file else "text" if texts else "stdin"
    source: Iterable[str | Example] = [as_utf8(text) for text in texts] if texts else lines(file)
    if file and table:
        source = text_rows(file, column, empty=True)
    elif file and (own := loaded.task.read_file(file)) is not None:
        source = own
    answers: list[dict[str, object]] = []
    done = 0
    for chunk in chunks(source):
        for printed, values in answer(chunk, name, done):
            if json:
                answers.append(values)
            else:
                sys.stdout.write("".join(f"{line}\n" for line in printed))
        sys.stdout.flush()
        done += len(chunk)
    if json:
        emit_json({"run": str(run), **loaded.task.about(), "predictions": answers})


def _how(
    run: "Run", asked: dict[str, Any], score: bool, top: int
) -> Callable[[Sequence[Any], str, int], Iterator[Answer]]:
    """What answers a chunk of texts that begins behind so many. Errors: options of other runs."""
    from regard.tasks.writing.searching import Writes

    run.must_be_complete()
    option = next(iter(asked), "").replace("_", "-")
    task = run.task
    if top and not task.ranks:
        raise RegardError("--top is for runs that label texts; --best N asks a writer for several")
    if score:
        task.unscorable([])
        if asked:
            raise RegardError(f"--score judges texts that are given; --{option} is for writing")
        return lambda texts, name, done: _scored(run, texts, name, done)
    if unused := {"beam", "penalty"} & asked.keys():
        if asked.get("temperature"):
            raise RegardError(f"--{min(unused)} is for a beam, and --temperature draws; give one")
        asked = {**asked, "temperature": 0.0}
    if isinstance(task, Writes):
        search = replace(task.search, **asked)
        slides = search.slides(task.context)
        if search.longest > (most := task.limits.longest) and not slides:
            say(f"--longest {search.longest}: this run writes {most} tokens at most", quiet=True)
        several = "best" in asked
        return lambda texts, name, done: _written(run, search, several, texts, name, done)
    if asked:
        raise RegardError(f"--{option} is for runs that write texts; this one does not")

    def told(given: Sequence[str | Example], name: str, done: int) -> Iterator[Answer]:
        texts = [x.text if isinstance(x, Example) else x for x in given]
        _warn(run, texts, name, done)
        for text, found in zip(texts, run.predict(list(given)), strict=True):
            if top:
                several = [{"label": x, "probability": p} for x, p in found.top(top)]
                yield [found.line(top)], {"text": text, **found.json(), "top": several}
            else:
                yield [found.line()], {"text": text, **found.json()}

    return told


def _written(
    run: "Run", search: "Search", ranked: bool, texts: Sequence[str], name: str, done: int
) -> Iterator[Answer]:
    """What is written for each text: a line, or if they are ``ranked`` one for each of the best."""
    _warn(run, texts, name, done)
    found = run.best(texts, replace(search, behind=done))
    for number, (text, several) in enumerate(zip(texts, found, strict=True), done + 1):
        if not ranked:
            yield [several[0].line()], {"text": text, **several[0].json()}
            continue
        lines = [one.ranked(number) for one in several]
        yield lines, {"text": text, "best": [one.json() for one in several]}


def _scored(run: "Run", texts: Sequence[str], name: str, done: int) -> Iterator[Answer]:
    """How likely each target is. Errors: a line that is no pair, as file:line."""
    pairs: list[tuple[str, str]] = []
    wrong = ""
    for number, text in enumerate(texts, done + 1):
        source, tab, target = text.partition("\t")
        if not tab:
            wrong = f"{name}:{number}: has no tab; --score reads SOURCE<tab>TARGET"
            break
        (why,) = run.task.unscorable([(source, target)])
        if why:
            wrong = f"{name}:{number}: {why}"
            break
        pairs.append((source, target))
    _warn(run, [source for source, _ in pairs], name, done)
    for (source, target), found in zip(pairs, run.score(pairs), strict=True):
        yield [found.line()], {"text": source, "target": target, **found.json()}
    if wrong:  # after the answers to what stands before it
        raise RegardError(wrong)


def _warn(run: "Run", texts: Sequence[str], name: str, done: int) -> None:
    """Tell of each text that is read in part."""
    which = {"head": "last", "tail": "first", "ends": "middle"}[run.task.keeps]
    for number, left in enumerate(run.left_out(texts), done + 1):
        if left:
            say(
                f"{name}:{number}: too long: its {which} {left:,} tokens are not read"
                + ("; cut it into sentences" if run.task.keeps == "head" else ""),
                quiet=True,
            )


def as_utf8(text: str) -> str:
    """A text from the command line, with a question mark for each byte that is not UTF-8."""
    return text.encode(errors="replace").decode()


def lines(file: Path | None) -> Iterator[str]:
    """The lines of a UTF-8 file, or of stdin: empty ones too, so that answers stay in line.

    Errors: no such file; a line that is not UTF-8, as file:line.
    """
    name = str(file) if file else "stdin"
    if not file and sys.stdin is None:
        raise RegardError("there is no stdin to read; give texts or --file")
    if not file and sys.stdin.isatty():
        say("reading stdin, one text a line; Ctrl-D ends", quiet=True)
    try:
        stream = file.open("rb") if file else sys.stdin.buffer
    except OSError as error:
        raise RegardError(f"{name} cannot be read: {error.strerror or error}") from None
    with stream:
        number = 0
        try:
            for number, line in enumerate(stream, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise RegardError(f"{name}:{number}: is not UTF-8; convert the file") from None
        except OSError as error:
            raise RegardError(f"{name} cannot be read: {error.strerror or error}") from None


def chunks(texts: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most `CHUNK` texts; those before an error come before it.

    >>> [len(chunk) for chunk in chunks(["a"] * 1025)]
    [512, 512, 1]
    """
    chunk: list[T] = []
    try:
        for text in texts:
            chunk.append(text)
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
    except RegardError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
