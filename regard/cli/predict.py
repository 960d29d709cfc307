"""``regard predict``: a run's answers for texts from the command line, a file or a pipe."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import emit_json, say
from regard.errors import RegardError

CHUNK = 512  # texts answered at once, so that a pipe of any length fits into memory


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a complete run.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts; without any, stdin is read."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A file with one text a line.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Answer texts, one line out for each line in: a label and its probability, or a text.

    regard predict runs/sentiment-transformer 'not a bad film' 'not a good film'

    cat reviews.txt | regard predict runs/sentiment-transformer
    """
    from regard import runs

    if texts and file:
        raise RegardError("give texts or --file, not both")
    loaded = runs.load(run)
    source: Iterable[str] = [as_utf8(text) for text in texts] if texts else lines(file)
    answers: list[dict[str, object]] = []
    for chunk in chunks(source):
        found = loaded.predict(chunk)
        if json:
            pairs = zip(chunk, found, strict=True)
            answers += [{"text": text, **answer.json()} for text, answer in pairs]
            continue
        for answer in found:
            sys.stdout.write(f"{answer.line()}\n")
        sys.stdout.flush()
    if json:
        emit_json({"run": str(run), **loaded.about(), "predictions": answers})


def as_utf8(text: str) -> str:
    """A text from the command line, with a question mark for each byte that is not UTF-8."""
    return text.encode(errors="replace").decode()


def lines(file: Path | None) -> Iterator[str]:
    """The lines of a UTF-8 file, or of stdin: empty ones too, so that answers stay in line.

    Errors: no such file; a line that is not UTF-8, as file:line.
    """
    name = str(file) if file else "stdin"
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


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of at most `CHUNK` texts.

    >>> [len(chunk) for chunk in chunks(["a"] * 1025)]
    [512, 512, 1]
    """
    iterator = iter(texts)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
