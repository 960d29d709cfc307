"""A run as a folder of sentence-transformers: encoder, pool and the fitted layer as ``Dense``.

The "vector" of a text is then the logits of its labels, or its number.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.reading import parse_json, read_bytes, read_json
from regard.interop import bert, folder
from regard.interop.card import Card, plain, table
from regard.interop.names import give
from regard.interop.sentences import MODULES, PROMPTS, SENTENCE
from regard.interop.tokenizer_files import framed, tokenizer_files, with_ends
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.runs.run import Run
from regard.nn.layers import special_tokens
from regard.nn.models.classifiers import BERTClassifier
from regard.training.checkpoints import weights

KINDS = "sentence_transformers.models"
USUAL = [(f"{KINDS}.Transformer", ""), (f"{KINDS}.Pooling", "1_Pooling")]
TYPES = "bert.embeddings.token_type_embeddings.weight"
FILES = (".json", ".txt", ".safetensors")  # of an encoder, which are copied
USE = """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(FOLDER)
print(model.encode(["not bad at all"]))  # {what}
```"""


def save_sentences(run: Run, place: Path, card: Card) -> Path:
    """Write a ``bert``, ``frozen`` or ``sentence`` run as a folder that contains its encoder.

    Its output is that of the run up to rounding. Longer texts are truncated there, also where the
    run reads windows. Raises: an existing folder; another model; two texts; ``truncate`` other than
    head.
    """
    folder.must_be_new(place)
    if run.task.columns.second:
        raise RegardError("sentence-transformers encodes one text; this run reads two")
    baseline = run.config.entry.baseline
    if run.config.model == "sentence":
        files, modules = _copied(run)
        weight, bias, *_ = run.baseline.head
    elif not baseline and isinstance(run.network, BERTClassifier) and run.task.fits_head:
        files, modules = _encoder(run)
        weight, bias = (x.detach().numpy() for x in run.network.to_labels.parameters())
    else:
        raise RegardError(
            f"{run.config.model} on {run.config.task} is not an encoder with a layer for labels; "
            "sentence-transformers needs a run of bert, frozen or sentence"
        )
    facts = run.task.exported()
    if "mean" in facts:  # numbers are learned in deviations from the mean
        weight, bias = weight * facts["deviation"], bias * facts["deviation"] + facts["mean"]
    dense = f"{len(modules)}_Dense"
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (kind, path) in enumerate([*modules, (f"{KINDS}.Dense", dense)])
    ]
    files[MODULES] = (json.dumps(rows, indent=2) + "\n").encode()
    files[f"{dense}/config.json"] = folder.as_json({
        "in_features": weight.shape[1], "out_features": weight.shape[0], "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    })  # fmt: skip
    layers = {"linear.weight": weight, "linear.bias": bias}
    files[f"{dense}/{folder.WEIGHTS}"] = folder.packed(
        {name: torch.from_numpy(x.astype(np.float32)) for name, x in layers.items()}
    )
    what = f"logits of {', '.join(map(plain, run.task.labels))}" if run.task.labels else "numbers"
    lines = ["---", "library_name: sentence-transformers", "tags:", "- regard", "---", ""]
    lines += [f"# {plain(card.title)}", "", *USE.format(what=what).splitlines(), ""]
    lines += table("Trained on", card.trained) + table("Measured", card.measured)
    lines += [line for note in card.notes for line in (plain(note), "")]
    files["README.md"] = "\n".join(lines).encode()
    return folder.write_files(place, files)


def _encoder(run: Run) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Return the files of a trained encoder and of a mean pool, and the modules."""
    if run.task.keeps == "ends":
        raise RegardError(
            "sentence-transformers keeps the head or the tail of long texts, and this run both; "
            "train with truncate=head"
        )
    network: Any = run.network.cpu().float()
    settings: Any = run.config.network
    config = settings.model_copy(update={"types": max(1, settings.types)})
    words = network.body.embedding.num_embeddings
    tokenizer, roles = _tokenizer(run)
    contents = {
        **bert.config_of(config, words),
        "architectures": ["BertModel"],
        "pad_token_id": tokenizer.token_to_id(roles["pad_token"]),
    }
    if run.task.labels:
        contents["id2label"] = {str(i): label for i, label in enumerate(run.task.labels)}
        contents["label2id"] = {label: i for i, label in enumerate(run.task.labels)}
    own = weights(network.body)
    tensors = give([row for row in bert.rows(settings) if row.name in own], own)
    tensors.setdefault(TYPES, torch.zeros(1, settings.width))  # DistilBERT has no types
    for name, size in (("weight", (settings.width, settings.width)), ("bias", (settings.width,))):
        tensors[f"pooler.dense.{name}"] = torch.zeros(size)  # unused; transformers warns without
    longest = run.task.room + 2
    roles["truncation_side"] = {"head": "right", "tail": "left"}[run.task.keeps]
    roles["split_special_tokens"] = True  # as in the run, no text can fake them
    pool = {"word_embedding_dimension": settings.width, "pooling_mode_mean_tokens": True}
    files = {
        folder.CONFIG: folder.as_json(contents),
        folder.WEIGHTS: folder.packed({k.removeprefix(bert.PREFIX): x for k, x in tensors.items()}),
        SENTENCE: folder.as_json({"max_seq_length": longest, "do_lower_case": False}),
        "1_Pooling/config.json": folder.as_json(pool),
        **tokenizer_files(tokenizer, length=longest, roles=roles),
    }
    return files, USUAL


def _tokenizer(run: Run) -> tuple[Any, dict[str, Any]]:
    """Return a tokenizer that adds the symbols around a text, and its settings."""
    known = run.task.tokenizer
    if isinstance(known, EncoderTokenizer):
        inner = tokenizers.Tokenizer.from_str(known.inner.to_str())
        first, last = known.framed([])
        pads = [name for name in ("[PAD]", "<pad>") if inner.token_to_id(name) is not None]
        pad = [*pads, known.vocabulary[0]][0]
    else:
        inner = with_ends(known, special_tokens.NAMES)
        first, last, pad = "[CLS]", "[SEP]", known.vocabulary[0]
    roles: dict[str, Any] = {"cls_token": first, "sep_token": last, "pad_token": pad}
    return framed(inner, first, last), roles


def _copied(run: Run) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Return the files of a sentence encoder, with the run's prompt, and its modules."""
    settings = run.baseline.settings
    source = folder.locate(settings.weights)
    names = {path for path in source.iterdir() if path.name != MODULES}
    modules = USUAL
    if (source / MODULES).exists():
        rows = parse_json(read_bytes(source / MODULES), source / MODULES)
        modules = [(row["type"], row["path"]) for row in rows]
        names |= {path for _, below in modules if below for path in (source / below).glob("*")}
    files = {
        path.relative_to(source).as_posix(): read_bytes(path, folder.LARGEST)
        for path in sorted(names)
        if path.is_file() and path.suffix in FILES and path.name != atomic_io.MANIFEST
    }
    if not (source / MODULES).exists():
        pool = {
            "word_embedding_dimension": run.baseline.head.weight.shape[1],
            "pooling_mode_mean_tokens": True,
        }
        files["1_Pooling/config.json"] = folder.as_json(pool)
    if settings.prompt:
        prompts = read_json(source / PROMPTS) if PROMPTS in files else {}
        texts = {**(prompts.get("prompts") or {}), "regard": settings.prompt}
        chosen = {**prompts, "prompts": texts, "default_prompt_name": "regard"}
        files[PROMPTS] = folder.as_json(chosen)
    return files, modules
