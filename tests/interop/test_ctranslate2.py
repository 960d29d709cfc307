"""A folder for CTranslate2: the same translations as regard's own beam."""

import pytest
import torch

ctranslate2 = pytest.importorskip("ctranslate2")

from regard.core.errors import RegardError  # noqa: E402
from regard.decoding import Limits, beam  # noqa: E402
from regard.interop.ctranslate2 import save_ctranslate2  # noqa: E402
from regard.nn.models.settings import TransformerSettings  # noqa: E402
from regard.nn.models.transformer import Transformer  # noqa: E402
from tests.interop.translators import FORMS, questions, tokenizer, trained  # noqa: E402


def translated(model, settings, folder, size, **how):
    """regard's beam and CTranslate2's, of the same questions."""
    names = save_ctranslate2(model, settings, folder, tokenizer())
    there = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    source, lengths = questions()
    limits = Limits(ratio=0, more=15)
    found = beam(model, source, lengths, end=len(names) - 1, size=size, penalty=0.0, limits=limits)
    pieces = [[names[i] for i in row[:n]] for row, n in zip(source, lengths, strict=True)]
    made = there.translate_batch(
        pieces, beam_size=size, length_penalty=0, min_decoding_length=0, max_decoding_length=15,
        return_scores=True, **how,
    )  # fmt: skip
    words = [[names[i] for i in best.tokens] for best, *_ in found]
    return words, [best for best, *_ in found], made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 5])
def test_the_same_translations(form, size, tmp_path):
    words, best, made = translated(*trained(form), tmp_path / "ct2", size)
    assert sum(x.ended for x in best) >= 4, "a test of texts that end"
    for ours, text, theirs in zip(words, best, made, strict=True):
        if text.ended:
            assert theirs.hypotheses[0] == ours
            assert theirs.scores[0] == pytest.approx(text.log_probability, abs=1e-4)


@pytest.mark.parametrize(
    "given",
    [
        {"position": "learned", "norm": "post"},
        {"position": "none", "activation": "gated-silu", "tie": False},
        {"activation": "gated-gelu-tanh", "width": 9, "heads": 3},
    ],
)
def test_forms_that_no_layout_of_hugging_face_has(given, tmp_path):
    """Random weights: what is written may not end, and is as likely as it says all the same."""
    torch.manual_seed(2)
    base = {"width": 12, "heads": 2, "layers": 2, "feedforward": 10, "length": 20}
    settings = TransformerSettings(**(base | given))
    count = len(tokenizer()) + 1
    model = Transformer(settings, count, count).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=0.3)
    words, best, made = translated(model, settings, tmp_path / "ct2", 5)
    for ours, text, theirs in zip(words, best, made, strict=True):
        if not text.ended:
            assert theirs.hypotheses[0] == ours
            assert theirs.scores[0] == pytest.approx(text.log_probability, abs=1e-4)


def test_eight_bits_take_less_room(tmp_path):
    settings = TransformerSettings(width=64, heads=2, layers=1)
    model = Transformer(settings, len(tokenizer()) + 1, len(tokenizer()) + 1)
    sizes = []
    for kind in ("float32", "int8"):
        save_ctranslate2(model, settings, tmp_path / kind, tokenizer(), quantization=kind)
        sizes.append((tmp_path / kind / "model.bin").stat().st_size)
        assert {x.name for x in (tmp_path / kind).iterdir()} == {
            "model.bin", "config.json", "shared_vocabulary.json", "tokenizer.json",
            "MANIFEST.json"}  # fmt: skip
    assert sizes[1] < 0.5 * sizes[0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pattern": "window-4"}, "CTranslate2 does not support pattern=window-4"),
        ({"compress": "linformer"}, "CTranslate2 does not support compress=linformer"),
        (
            {"position": "rotary"},
            "CTranslate2 does not support position=rotary; train with position=",
        ),
        ({"score": "gaussian"}, "score=gaussian; train with score=scaled-dot"),
        ({"normalize": "entmax15"}, "normalize=entmax15"),
        ({"key_value_heads": 1}, "key_value_heads=1"),
        ({"residual": "depth-attention"}, "residual=depth-attention; train with residual=sum"),
    ],
)
def test_what_cannot_be_written_names_the_setting(given, says, tmp_path):
    settings = TransformerSettings(width=8, heads=2, layers=1, feedforward=8, **given)
    with pytest.raises(RegardError, match=says):
        save_ctranslate2(Transformer(settings, 9, 9), settings, tmp_path / "x", ["a"] * 8)


def test_errors(tmp_path):
    settings = TransformerSettings(width=8, heads=2, layers=1, feedforward=8)
    model = Transformer(settings, 5, 5)
    with pytest.raises(RegardError, match="has 5 words, but the tokenizer with the end has 4"):
        save_ctranslate2(model, settings, tmp_path / "x", ["[PAD]", "[UNK]", "a"])
    save_ctranslate2(model, settings, tmp_path / "x", ["[PAD]", "[UNK]", "a", "</s>"])
    with pytest.raises(RegardError, match="already exists"):
        save_ctranslate2(model, settings, tmp_path / "x", ["[PAD]", "[UNK]", "a", "</s>"])
