"""Download a model from the Hugging Face hub by its name: weights, config and tokenizer files."""

import os
import re
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError, importing

#: The files to download: weights, config and tokenizer, no code. A pattern with a folder names the
#: modules of sentence-transformers, one folder deep.
FETCHED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "modules.json",
    "sentence_*_config.json",
    "config_sentence_transformers.json",
    "[0-9]*_*/config.json",
    "[0-9]*_*/sentence_*_config.json",
    "[0-9]*_*/model.safetensors",
    "[0-9]*_*/tokenizer.json",
    "[0-9]*_*/tokenizer_config.json",
    "[0-9]*_*/special_tokens_map.json",
    "[0-9]*_*/vocab.txt",
)
LIMIT = 20_000_000_000  # bytes of a download
NAME = re.compile(r"(?P<name>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")


def fetch(source: str, revision: str | None = None) -> Path:
    """Return the local folder of a model on the hub, downloaded unless it is in the cache.

    ``source`` is "NAME", "ORGANISATION/NAME" or either with "@REVISION": a branch, a tag or a
    commit. HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE apply, as in huggingface_hub.
    Without network, a cached model is used without a check for updates.

    Raises: `RegardError`: huggingface_hub is not installed; the hub does not know the name, or
    does not answer and the cache has no such model; pickles only; more than `LIMIT` bytes.
    """
    parts = NAME.fullmatch(source)
    if parts is None or source.startswith("."):
        raise RegardError(f"{source} is not a folder; give a model's folder or its name on the hub")
    commit = revision or parts["revision"]
    return _fetch(parts["name"], commit, os.environ.get("HF_ENDPOINT") or None)


@lru_cache(maxsize=16)
def _fetch(name: str, revision: str | None, endpoint: str | None) -> Path:
    """Download once per process, so that all its runs of one name have the same commit."""
    with importing(f"{name} is not a folder, and downloading it requires huggingface_hub", "hf"):
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
    try:
        info = HfApi(endpoint=endpoint).model_info(name, revision=revision, files_metadata=True)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise _refused(name, error) from None
    except Exception as error:  # no usable answer
        try:
            cached = hf_hub_download(name, "config.json", revision=revision, local_files_only=True)
        except Exception:
            raise _refused(name, error) from None
        return Path(cached).parent
    files = _chosen(name, {file.rfilename: file.size or 0 for file in info.siblings or ()})
    options: dict[str, Any] = {"revision": info.sha, "endpoint": endpoint}
    try:
        paths = [Path(hf_hub_download(name, file, **options)) for file in files]
    except Exception as error:
        raise _refused(name, error) from None
    top_level = next(path for file, path in zip(files, paths, strict=True) if "/" not in file)
    return top_level.parent


def _chosen(name: str, sizes: dict[str, int]) -> list[str]:
    """Return the files to download, from all files with their sizes in bytes."""
    chosen = [file for file in sorted(sizes) if _needed(file)]
    if not any(file.endswith(".safetensors") for file in chosen):
        pickles = [file for file in sorted(sizes) if file.endswith((".bin", ".pt", ".ckpt"))]
        why = f"its weights are a pickle ({pickles[0]}), which can run code" if pickles else ""
        raise RegardError(
            f"{name} has no model.safetensors on the hub{why and ': ' + why}; regard only reads "
            "safetensors: if you trust the file, convert it with "
            "from_pretrained(…).save_pretrained(FOLDER) of transformers, then give FOLDER"
        )
    size = sum(sizes[file] for file in chosen)
    if size > LIMIT:
        raise RegardError(
            f"{name} has {size / 1e9:,.1f} GB on the hub, more than the {LIMIT / 1e9:.0f} GB that "
            f"regard downloads; download it with `hf download {name} --local-dir FOLDER` and give "
            "FOLDER, or use a smaller model"
        )
    return chosen


def _needed(file: str) -> bool:
    """Return whether a file of a repository is downloaded."""
    return any(
        file.count("/") == pattern.count("/") and fnmatch(file, pattern) for pattern in FETCHED
    )


def _refused(name: str, error: Exception) -> RegardError:
    """Return an error of the hub or the network in one line, with the remedy."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return RegardError(
        f"{name} is not a folder, and downloading it from the hub failed: {first[:200]}; without "
        f"network, run `hf download {name} --local-dir FOLDER` on another machine and give FOLDER"
    )
