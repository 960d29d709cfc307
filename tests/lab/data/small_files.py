"""Small files as tests write them, and the one line by which a reader refuses them."""

import gzip
import json
import zipfile

import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns
from regard.lab.data.files import read_examples


def write(path, content):
    """Write a text or bytes, compressed where the name ends with .gz, and return the path."""
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def zipped(path, members, compression=zipfile.ZIP_DEFLATED):
    """Write a zip archive of members by their names, and return its path."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def static_vectors(folder, words, matrix, **config):
    """Write a folder of model2vec: a vector for each word, and a tokenizer; return the folder."""
    folder.mkdir()
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", **config}))
    save_file({"embeddings": matrix}, folder / "model.safetensors")
    return folder


def refusal(read, *given, **named):
    """Return the error of a call, which is one line."""
    with pytest.raises(RegardError) as caught:
        read(*given, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(path, **columns):
    """Return the error of reading labelled texts."""
    return refusal(read_examples, path, Columns(**columns))
