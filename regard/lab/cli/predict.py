"""``regard predict``: predictions for texts from the command line, a file or a pipe."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.core.errors import RegardError
from regard.lab.cli.answers import Answer, must_be_known, unknown_of, write
from regard.lab.cli.console import Bar, Json, RunFolder, bar, emit_json, err, opened, say
from regard.lab.cli.options import Int8, Onnx

if TYPE_CHECKING:
    from regard.lab.data.data_source import Columns
    from regard.lab.data.examples import Example
    from regard.lab.runs import Run
    from regard.lab.tasks.writing.searching import Search

CHUNK = 512  # texts per batch, so that a pipe of any length fits into memory
T = TypeVar("T")


SecondTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--second",
        help="Second text of each TEXT, for a run that reads two.",
        show_default=False,
    ),
]
FeatureValues = Annotated[
    list[str] | None,
    typer.Option(
        "--feature",
        help="Value of a further column that the run reads, for every TEXT.",
        metavar="NAME=VALUE",
        show_default=False,
    ),
]


def predict(
    run: RunFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Input texts (default: read stdin)."),
    ] = None,
    second: SecondTexts = None,
    feature: FeatureValues = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Input file: one text per line, per row of a .csv, .tsv, .jsonl, .parquet or "
            ".feather, or per parsed sentence of a .conllu.",
        ),
    ] = None,
    column: Annotated[
        str,
        typer.Option(
            "--text",
            help="Text column of the table, or two: FIRST,SECOND.",
            show_default="the one of the training, else detected",
        ),
    ] = "",
    top: Annotated[
        int, typer.Option(min=0, help="Print the N most likely labels.", show_default=False)
    ] = 0,
    best: Annotated[
        int, typer.Option(min=0, help="Print the N best outputs with ln p.", show_default=False)
    ] = 0,
    beam: Annotated[
        int, typer.Option(min=0, help="Beam size; 1 = greedy search.", show_default="the run's")
    ] = 0,
    penalty: Annotated[
        float | None, typer.Option(help="Length penalty for beam search.", show_default="the run's")
    ] = None,
    longest: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum number of tokens to generate; a language model may exceed its context "
            "length.",
            show_default="the run's",
        ),
    ] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Sampling temperature: 1 = the model's distribution, lower = more likely tokens, "
            "0 = always the most likely token.",
            show_default="0.8 for language models, else 0",
        ),
    ] = None,
    top_k: Annotated[
        int, typer.Option(min=0, help="Sample from the k most likely tokens; 0 = all.")
    ] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the top tokens with this total probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for sampling.")] = 0,
    score: Annotated[
        bool,
        typer.Option("--score", help="Score given targets: each text is SOURCE<tab>TARGET."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the answers to this file instead of stdout: a .csv with texts and "
            "answers, a .jsonl with one object per text, or a .tsv or .txt with the lines as "
            "printed. It appears when all are written.",
        ),
    ] = None,
    onnx: Onnx = False,
    int8: Int8 = False,
    json: Json = False,
) -> None:
    """Predict labels or generate texts, line by line.

    A line is a label and its probability, or those of all labels of a text that has several, or a
    generated text. Columns are separated by tabs.

    --top 3: the three most likely labels on each line, each with its probability.
    --best 5: up to five lines per text, best first, each with the number of the text, ln p and the
    output. --score: ln p, token count and perplexity of each given pair. Texts that are too long
    are truncated, with a warning on stderr.

    A run that reads two texts (text=FIRST,SECOND) takes them from --second, from a line with a tab
    between them, or from the columns of a table. Further columns (features=price,country) come from
    --feature, or from the table.

    A language model samples a continuation: --seed 1 samples another one, --temperature 0 takes the
    most likely tokens. With --longest it may exceed its context length: whenever the context is
    full, generation continues from its last half.

    regard predict runs/classification-transformer 'not a bad film' 'not a good film'

    cat reviews.txt | regard predict runs/classification-transformer

    regard predict runs/classification-transformer --file new.csv --text body --out answers.csv

    regard predict runs/questions 'Is it red?' --second 'It is blue.'

    regard predict runs/translation-transformer --best 5 'Ein Hund schläft.'

    regard predict runs/language-modeling-gpt --temperature 1 --longest 500 'Once'
    """

    from regard.lab.data.data_source import Columns
    from regard.lab.data.examples import texts_of
    from regard.lab.tasks.task import unknown_phrase
    from regard.training.ranks import ranks

    must_be_paired(texts or [], second)
    if feature and not texts:
        raise RegardError("--feature belongs to TEXT; a table has its own columns")
    if texts and file:
        raise RegardError("texts and --file exclude each other; give only one of them")
    table = file is not None and not score and is_table(file)
    if column and not table:
        raise RegardError(
            "--text names a table column; add --file FILE.csv, .tsv, .jsonl or .parquet"
        )
    if output:
        must_be_known(output)
    if not (texts or file) and ranks().world > 1:
        raise RegardError("several processes cannot share stdin; give texts or --file")
    options: dict[str, tuple[Any, Any]] = {  # with the value that leaves each to the run
        "best": (best, 0), "beam": (beam, 0), "longest": (longest, 0), "top_k": (top_k, 0),
        "seed": (seed, 0), "penalty": (penalty, None), "temperature": (temperature, None),
        "top_p": (top_p, 1),
    }  # fmt: skip
    chosen = {key: value for key, (value, unset) in options.items() if value != unset}
    loaded = opened(run, "predict")
    if onnx or int8:
        from regard.lab.runs.onnx_folder import through_onnx

        loaded = through_onnx(loaded, int8=int8)
    answer = _how(loaded, chosen, score, top)
    name = str(file) if file else "text" if texts else "stdin"

    if file and table and not column:
        column = own_column(loaded, file)
    columns = Columns(column, features=loaded.task.columns.features)

    def source() -> "Iterable[str | Example]":
        if texts:
            return inputs_of(loaded, texts, second, feature)
        if file and table:
            return rows_of(file, columns)
        own = loaded.task.read_file(file) if file else None
        return map(loaded.task.input_of, lines(file)) if own is None else own

    def answers(show: Bar) -> Iterator[Answer]:
        total = sum(1 for _ in source()) if file and output else 0
        done = empty = unknown = 0
        for chunk in chunks(source()):
            for number, (printed, values) in enumerate(answer(chunk, name, done), done + 1):
                if words := unknown_of(values):
                    unknown += 1
                    if texts:
                        say(f"{name}:{number}: {unknown_phrase(words)}", quiet=True)
                yield printed, values
            done += len(chunk)
            empty += sum(
                isinstance(text, str) and not all(map(str.strip, texts_of(text))) for text in chunk
            )
            if total:
                show(done, total, "texts")
        if empty:
            say(
                f"{name}: empty texts: {empty:,} of {done:,}; their predictions are meaningless",
                quiet=True,
            )
        if unknown and not texts:
            say(
                f"{name}: {unknown:,} of {done:,} texts have words that are unknown to the model; "
                "--json and --out FILE.csv name them",
                quiet=True,
            )

    if output:
        with bar("predict", shown=err.is_terminal) as show:
            count = write(output, answers(show), first=ranks().first)
        if json:
            emit_json({"run": str(run), "out": str(output), "texts": count})
        else:
            say(f"{output}: {count:,} texts")
        return
    collected: list[dict[str, object]] = []
    with bar("predict", shown=False) as show:
        for printed, values in answers(show):
            if json:
                collected.append(values)
            else:
                sys.stdout.write("".join(f"{line}\n" for line in printed))
                sys.stdout.flush()
    if json:
        emit_json({"run": str(run), **loaded.task.about(), "predictions": collected})


def must_be_paired(texts: Sequence[str], second: Sequence[str] | None) -> None:
    """Raise an error unless each text has a second one, or none has."""
    if second and len(second) != len(texts):
        raise RegardError(f"{len(second)} --second for {len(texts)} texts; give one for each TEXT")


def is_table(file: Path) -> bool:
    """Return whether a file has columns."""
    from regard.lab.data.arrow import SUFFIXES
    from regard.lab.data.records import table_kind

    return table_kind(file) is not None or file.suffix.lower() in SUFFIXES


def own_column(run: "Run", file: Path) -> str:
    """Return the text column of a run's training if the table has a column of that name, or ""."""
    from regard.lab.data.guess import head
    from regard.lab.data.titles import place_of

    settings = run.task.settings
    own = getattr(settings, "source_name", "") or getattr(settings, "text", "")
    if run.task.columns.second:
        return own
    return own if own and place_of(file.name, head(file)[0], own) is not None else ""


def inputs_of(
    run: "Run", texts: Sequence[str], second: Sequence[str] | None, feature: Sequence[str] | None
) -> list[str]:
    """Return texts of the command line, each with its second text and the further columns.

    Raises: a value without a name.
    """
    from regard.lab.data.examples import as_json, from_json

    inputs = [as_json(run.task.input_of(as_utf8(text))) for text in texts]
    for row, other in zip(inputs, second or (), strict=False):
        row["second"] = as_utf8(other)
    pairs = [as_utf8(word).partition("=") for word in feature or ()]
    if wrong := next((word for word, equals, _ in pairs if not equals), None):
        raise RegardError(f"--feature {wrong!r:.60} is not NAME=VALUE, such as price=3")
    columns = {name.strip(): value for name, _, value in pairs}
    return [from_json({**row, "columns": columns}) for row in inputs]


def rows_of(file: Path, columns: "Columns") -> Iterator[str]:
    """Return the inputs of a table in order, empty ones included."""
    from regard.lab.data import arrow
    from regard.lab.data.files import read_inputs
    from regard.lab.data.text_files import files_at
    from regard.lab.data.text_rows import text_rows

    kind = file.suffix.lower()
    if columns.second or columns.features or kind in set(arrow.SUFFIXES) - {".parquet"}:
        return read_inputs(file, columns)
    if kind == ".parquet":
        return arrow.texts(files_at(str(file))[0], columns.text)
    return text_rows(file, columns.text, empty=True)


def _how(
    run: "Run", asked: dict[str, Any], score: bool, top: int
) -> Callable[[Sequence[Any], str, int], Iterator[Answer]]:
    """Return a function that answers a chunk of texts. Raises: options for other kinds of runs."""
    from regard.lab.data.examples import as_json

    run.must_be_complete()
    option = next(iter(asked), "").replace("_", "-")
    task = run.task
    if top and not task.ranks:
        raise RegardError("--top needs a run that predicts labels; for texts use --best N")
    if score:
        task.unscorable([])
        if asked:
            raise RegardError(f"--score generates no text; leave --{option} out")
        return lambda texts, name, done: _scored(run, texts, name, done)
    if unused := {"beam", "penalty"} & asked.keys():
        if asked.get("temperature"):
            raise RegardError(
                f"--{min(unused)} and --temperature exclude each other; give only one"
            )
        asked = {**asked, "temperature": 0.0}
    search = task.search_by(asked)
    if search is not None:
        slides = search.slides(task.context)
        if search.longest > (most := task.limits.longest) and not slides:
            say(f"--longest {search.longest}: this run generates at most {most} tokens", quiet=True)
        several = "best" in asked
        return lambda texts, name, done: _written(run, search, several, texts, name, done)

    def labelled(given: "Sequence[str | Example]", name: str, done: int) -> Iterator[Answer]:
        texts = [x if isinstance(x, str) else x.text for x in given]
        _warn(run, texts, name, done)
        for text, answer in zip(texts, run.predict(list(given)), strict=True):
            if top:
                several = [{"label": x, "probability": p} for x, p in answer.top(top)]
                yield [answer.line(top)], {**as_json(text), **answer.json(), "top": several}
            else:
                yield [answer.line()], {**as_json(text), **answer.json()}

    return labelled


def _written(
    run: "Run", search: "Search", ranked: bool, texts: Sequence[str], name: str, done: int
) -> Iterator[Answer]:
    """Generate a line for each text, or if ``ranked`` one line for each of its best outputs."""
    _warn(run, texts, name, done)
    outputs = run.best(texts, replace(search, behind=done))
    for number, (text, several) in enumerate(zip(texts, outputs, strict=True), done + 1):
        if not ranked:
            yield [several[0].line()], {"text": text, **several[0].json()}
            continue
        lines = [one.ranked(number) for one in several]
        yield lines, {"text": text, "best": [one.json() for one in several]}


def _scored(run: "Run", texts: Sequence[str], name: str, done: int) -> Iterator[Answer]:
    """Score each target. Raises: a line that is not a pair, with its file:line."""
    pairs: list[tuple[str, str]] = []
    wrong = ""
    for number, text in enumerate(texts, done + 1):
        source, tab, target = text.partition("\t")
        why = "no tab found; --score needs SOURCE<tab>TARGET"
        if tab:
            (why,) = run.task.unscorable([(source, target)])
        if why:
            wrong = f"{name}:{number}: {why}"
            break
        pairs.append((source, target))
    _warn(run, [source for source, _ in pairs], name, done)
    for (source, target), score in zip(pairs, run.score(pairs), strict=True):
        yield [score.line()], {"text": source, "target": target, **score.json()}
    if wrong:  # after the answers to the lines before it
        raise RegardError(wrong)


def _warn(run: "Run", texts: Sequence[str], name: str, done: int) -> None:
    """Warn about each truncated text."""
    which = {"head": "last", "tail": "first", "ends": "middle"}[run.task.keeps]
    for number, left in enumerate(run.left_out(texts), done + 1):
        if left:
            say(
                f"{name}:{number}: text is too long; its {which} {left:,} tokens are ignored"
                + ("; split it into sentences" if run.task.keeps == "head" else ""),
                quiet=True,
            )


def as_utf8(text: str) -> str:
    """Return a command line argument with a question mark for each invalid UTF-8 byte.

    Python stores each byte that the locale's encoding lacks as a surrogate.
    """
    try:
        return text.encode().decode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="replace").replace("\ufffd", "?")


def lines(file: Path | None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file or of stdin, empty ones included to keep answers aligned.

    Raises: no such file; a line that is not UTF-8 or too long, with its file:line.
    """
    name = str(file) if file else "stdin"
    if not file and sys.stdin is None:
        raise RegardError("stdin is closed; give texts or --file")
    if not file and sys.stdin.isatty():
        say("reading stdin, one text per line; end with Ctrl-D", quiet=True)
    from regard.lab.data.lines import Lines

    try:
        with file.open("rb") if file else sys.stdin.buffer as stream:
            read = Lines(stream, name)
            for line in read:
                if problem := read.complaint():
                    raise RegardError(f"{read.here}: {problem}")
                yield line.rstrip("\r\n")
    except OSError as error:
        raise RegardError(f"cannot read {name}: {error.strerror or error}") from None


def chunks(texts: Iterable[T]) -> Iterator[list[T]]:
    """Yield lists of at most `CHUNK` texts, also the texts before an error.

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
