"""Models by their name on a hub, one on this machine's own address: fetched, cached, refused."""

import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("transformers")
pytest.importorskip("huggingface_hub")

from regard.core.errors import RegardError
from regard.interop import hub
from regard.lab.runs.encoder import Encoder
from tests.interop import encoders
from tests.interop.hub import COMMIT, serving

NAME = "someone/tiny-bert"


@pytest.fixture
def repository(tmp_path):
    """A model with files beside it that nobody needs, or should run."""
    folder = tmp_path / "repository"
    encoders.save("bert", folder)
    (folder / "modeling.py").write_text("raise SystemExit('code of the hub ran')")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"other")
    return folder


@pytest.fixture
def there(repository, tmp_path, monkeypatch):
    hub._fetch.cache_clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.DEFAULT_REQUEST_TIMEOUT", 2, raising=False)
    with serving(NAME, repository) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served
    hub._fetch.cache_clear()


def test_what_is_needed_is_fetched_and_nothing_that_runs(there, repository):
    folder = hub.fetch(NAME)
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "vocab.txt"}  # fmt: skip
    assert folder.name == COMMIT
    for path in folder.iterdir():
        assert path.read_bytes() == (repository / path.name).read_bytes()
    assert not any(name.endswith((".py", ".bin")) or "onnx" in name for name in there.asked)
    encoder = Encoder(NAME)
    assert len(encoder.tokenizer) == len(encoders.BERT_WORDS)
    assert encoder.sha256 == Encoder(str(repository)).sha256


def test_a_revision_and_the_cache(there):
    assert hub.fetch(f"{NAME}@{COMMIT}") == hub.fetch(NAME)
    before = len(there.asked)
    hub.fetch(NAME)
    assert len(there.asked) == before, "one process asks once"
    hub._fetch.cache_clear()
    hub.fetch(NAME)
    assert there.asked[before:] == [f"/api/models/{NAME}"], "the files are in the cache"
    with pytest.raises(RegardError, match="downloading it from the hub failed"):
        hub.fetch(f"{NAME}@elsewhere")


def test_without_network_the_cache_is_enough(there, monkeypatch):
    folder = hub.fetch(NAME)
    with socket.socket() as closed:  # a port that nobody serves
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert hub.fetch(f"{NAME}@{COMMIT}") == folder
        says = "no/where is not a folder, and downloading .* failed.*hf download no/where --local"
        with pytest.raises(RegardError, match=says) as told:
            hub.fetch("no/where")
    assert "\n" not in str(told.value)


def test_what_is_refused(there, repository, tmp_path, monkeypatch):
    with pytest.raises(RegardError, match="someone/none is not a folder, and downloading"):
        hub.fetch("someone/none")
    for name in ("../a/b", "a/b/c", "a b", "", "a@", ".hidden"):
        with pytest.raises(RegardError, match="is not a folder; give a model's folder or its name"):
            hub.fetch(name)
    there.sizes["model.safetensors"] = 10**12
    with pytest.raises(RegardError, match=r"has 1,000\.0 GB on the hub, more than the 20 GB"):
        hub.fetch(NAME)
    (repository / "model.safetensors").unlink()
    with pytest.raises(RegardError, match=r"a pickle \(pytorch_model.bin\), which can run code"):
        hub.fetch(NAME)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(RegardError, match=r"requires huggingface_hub .*pip install .*\[hf\]"):
        hub.fetch(NAME)


def test_the_command_trains_from_a_hub(there, tmp_path):
    """In a process of its own, whose environment alone says where the hub is."""
    data = encoders.labelled(tmp_path / "texts.jsonl", 80)
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": there.url,
        "HF_HUB_DISABLE_XET": "1",
    }
    command = [sys.executable, "-m", "regard", "train", "classification", "--model", "frozen"]
    command += ["--data", str(data), f"weights={NAME}", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"started from {NAME}: " in done.stdout
    assert COMMIT in (tmp_path / "run" / "env.json").read_text()
