"""``regard export``: a run as a folder that another program loads."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.console import Json, RunFolder, emit_json, opened, say


def export(
    run: RunFolder,
    to: Annotated[
        Literal["huggingface", "marian", "ctranslate2"],
        typer.Option(help="The program, or the layout, that the folder is for."),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not be there yet.")],
    quantization: Annotated[
        str, typer.Option(help="CTranslate2's numbers: float32, int8, bfloat16, ….")
    ] = "float32",
    json: Json = False,
) -> None:
    """Write a run as a folder for transformers or CTranslate2.

    Weights, tokenizer, a model card: the same texts give the same logits and translations. A
    setting that a program has no place for is named, with the one that it takes.

    regard export runs/translation --to ctranslate2 --quantization int8 --out fast
    """
    from regard.runs.export import export as write

    found = write(opened(run, "export"), to, out, quantization=quantization)
    size = sum(path.stat().st_size for path in found.folder.iterdir())
    if json:
        emit_json({"run": str(run), "to": to, "folder": str(out), "bytes": size})
        return
    say(f"{out}: {size:,} bytes in {len(list(out.iterdir()))} files")
    say(f"load it with {found.load}")
