"""``regard export``: write a run as a folder for another program."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.lab.cli.console import Json, RunFolder, emit_json, opened, say


def export(
    run: RunFolder,
    to: Annotated[
        Literal["huggingface", "sentence-transformers", "marian", "ctranslate2", "onnx"],
        typer.Option(help="Target program or format."),
    ],
    out: Annotated[Path, typer.Option(help="Output folder; it must not exist yet.")],
    quantization: Annotated[
        str, typer.Option(help="Number type for ONNX (float32, int8) or CTranslate2 (more).")
    ] = "float32",
    json: Json = False,
) -> None:
    """Export a run for other libraries.

    Writes weights, tokenizer and a model card; the same texts yield the same logits and
    translations. A run of bert, frozen or sentence goes to sentence-transformers with its encoder;
    the vector of a text is the logits of its labels. The README of an ONNX folder has a script that
    runs it without torch. With int8, a product with weights multiplies 8-bit integers, which is
    faster for large networks and changes answers a little: the README has its test metrics. An
    error names a setting that the format does not support and a supported value.

    regard export runs/translation --to ctranslate2 --quantization int8 --out fast

    regard export runs/mine --to onnx --quantization int8 --out mine-onnx

    regard export runs/mine --to sentence-transformers --out mine-encoder
    """
    from regard.lab.runs.export import export as write

    exported = write(opened(run, "export"), to, out, quantization=quantization)
    files = [path for path in exported.folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if json:
        emit_json({"run": str(run), "to": to, "folder": str(out), "bytes": size})
        return
    say(f"{out}: {size:,} bytes in {len(files)} files")
    say(f"load it with {exported.load}")
