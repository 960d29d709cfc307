"""The benchmark of translation gives everybody the same work, and says what it measured."""

import json
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from benchmarks import joey, joey_process, translation, translation_peers
from regard.core.errors import RegardError
from regard.interop.marian import to_marian
from regard.lab.tasks.settings import SequencesSettings
from regard.lab.tasks.writing.task import Sequences
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer

SIZES = ["width=16", "layers=1", "heads=2", "feedforward=16", "length=40"]
SMALL = [*SIZES, "data=reverse", "tokenizer=characters", "examples=200", "batch_tokens=512"]
FEW = ["rounds=1", "round_tokens=300", "batches=2", "sentences=3", "forced=4", "peer_batch=8"]


def measured(*settings: str) -> list[dict]:
    return list(translation.cases(settings=[*SMALL, *FEW, *settings]))


def test_training_beside_a_plain_loop_of_torch() -> None:
    (row,) = measured("case=training", "against=nn.Transformer", "precision=fp32")
    assert row["time_ratio"] == pytest.approx(row["theirs_s"] / row["ours_s"])
    assert row["ours_tokens_per_s"] == pytest.approx(1000 / row["ours_s"])
    assert row["name"].startswith("training in fp32, 1 + 1 layers, width 16, 29 words, reverse")
    assert row["against"] == "nn.Transformer, fp32, random batches of 8"
    assert (row["aim"], row["reached"]) == ("≥ 4× faster", row["time_ratio"] >= 4)


def test_a_peer_without_its_environment_is_named_and_left_out() -> None:
    rows = measured("against=joey")
    assert [row["name"].split()[0] for row in rows] == ["training", "decoding"]
    assert all("left out: joey=PATH" in row["against"] for row in rows)
    assert all(row["time_ratio"] is row["reached"] is None for row in rows)


def test_errors() -> None:
    with pytest.raises(RegardError, match=r"no peer is called 'fairseq'; there are: nn\."):
        measured("against=fairseq")
    with pytest.raises(RegardError, match="joey=/none does not start"):
        measured("joey=/none", "case=training", "against=joey")


def task():
    return Sequences(SequencesSettings(data="reverse", tokenizer="characters", examples=200))


def test_peers_learn_the_same_pairs() -> None:
    """Each word of each pair once an epoch, and a loss that falls."""
    torch.manual_seed(0)
    sizes = TransformerSettings(width=16, layers=1, heads=2, feedforward=16, dropout=0.0)
    given = task()
    model = translation_peers.Tutorial(sizes, given.end + 1)
    batch = given.batch("train", np.arange(8))
    before = model(batch).item()
    steps = translation_peers.train_plainly(model, given, 50, 0, bf16=False)
    count = len(given.split("train")) // 50
    tokens = [next(steps) for _ in range(count)]
    whole = given.split("train").lengths[: 50 * count].sum()
    assert sum(tokens) == pytest.approx(whole, rel=0.05)
    assert model(batch).item() < before


def test_the_loop_of_torch_hides_padding_and_what_comes() -> None:
    sizes = TransformerSettings(width=16, layers=1, heads=2, feedforward=16, dropout=0.0)
    given = task()
    model = translation_peers.Tutorial(sizes, given.end + 1).eval()
    alone = given.tensors([np.array([5, 6])], [np.array([6, 5])])
    both = given.tensors(
        [np.array([5, 6]), np.array([7, 8, 9, 5])], [np.array([6, 5]), np.array([5, 9, 8, 7])]
    )
    both.real[1] = False
    assert_close(model(both), model(alone))


@pytest.mark.parametrize("kind", ["generate", "ctranslate2"])
def test_peers_write_with_the_same_weights(kind: str) -> None:
    pytest.importorskip("transformers" if kind == "generate" else kind)
    torch.manual_seed(0)
    sizes = TransformerSettings(width=16, layers=1, heads=2, feedforward=16, length=20)
    model = translation.spread(Transformer(sizes, 12, 12))
    batch = [np.array([3, 4, 5]), np.array([6, 7])]
    source, lengths = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([3, 2])
    limits = translation.Limits(ratio=0, more=4, longest=4, least=4)
    ours = translation.beam(
        model, source, lengths, end=11, size=translation.BEAM, penalty=0.0, limits=limits
    )
    expected = [list(texts[0].tokens) for texts in ours]
    if kind == "generate":
        peer = translation_peers.Generating(model, sizes, 4, torch.float32)
        said = peer.write([batch])
        found = [[(int(i) + 1) % 12 for i in row[1:5]] for row in said]
        assert int(to_marian(torch.tensor(0), 12)) == int(said[0, 0])
    else:
        with translation_peers.CTranslate2(model, sizes, 4, "float32") as peer:
            found = [
                [peer.names.index(word) for word in result.hypotheses[0]]
                for result in peer.write([batch])
            ]
    assert found == expected


FAKE = f"""#!{sys.executable}
import json, sys
first = json.loads(sys.stdin.readline())
assert sorted(first) == {
    sorted(
        ["words", "width", "layers", "decoder_layers", "heads", "feedforward", "dropout", "pairs"]
    )
}
print(json.dumps({{"ready": True}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "write" in asked and asked["forced"] == 9:
        sys.exit(1)
    print(json.dumps({{"tokens": 7}} if "step" in asked else {{"written": 1}}), flush=True)
"""


def test_joey_is_asked_line_by_line(tmp_path) -> None:
    python = tmp_path / "python"
    python.write_text(FAKE)
    python.chmod(0o755)
    sizes = TransformerSettings(width=16, layers=1, heads=2, feedforward=16)
    with joey.Joey(str(python), sizes, task(), 9) as peer:
        steps = peer.training()
        assert [next(steps), next(steps)] == [7, 7]
        with pytest.raises(RegardError, match=r"JoeyNMT of .*python ended"):
            peer.write([[np.array([3, 4])]])


def test_joeys_batches_hold_as_many_tokens_as_its_own_sampler_takes(monkeypatch) -> None:
    pairs = [[[5] * (i % 30), [6] * 9] for i in range(900)]
    seen = []
    monkeypatch.setattr(joey_process, "batch_of", lambda batch, symbols: seen.append(batch))
    steps = joey_process.by_tokens(json.loads(json.dumps(pairs)), None)
    _, tokens = next(steps)
    (batch,) = seen
    longest = max(max(len(a), len(b)) + 1 for a, b in batch)
    assert longest * len(batch) >= joey_process.BATCH_TOKENS > longest * (len(batch) - 1)
    assert tokens == sum(len(a) + len(b) + 1 for a, b in batch)
