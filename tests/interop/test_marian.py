"""A trained Transformer in Marian's and Pegasus' layouts: the same logits and translations."""

import pytest
import torch

pytest.importorskip("transformers")

from regard.core.errors import RegardError
from regard.decoding import Limits, beam
from regard.interop.marian import from_marian, save_translator, to_marian
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer
from tests.interop.tiny import transformers
from tests.interop.translators import FORMS, TEXTS, questions, tokenizer, trained


def exported(form, folder, kind="words"):
    model, settings = trained(form)
    save_translator(model, settings, folder, tokenizer=tokenizer(kind))
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, loaded, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_logits_and_translations(form, tmp_path):
    model, there, words = exported(form, tmp_path / "m")
    kind = {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}
    assert type(there).__name__ == kind[trained(form)[1].norm]
    (source, lengths), count = questions(), len(tokenizer()) + 1
    real = (torch.arange(source.shape[1]) < lengths[:, None]).long()
    asked = {"input_ids": to_marian(source, count), "attention_mask": real}
    target = torch.randint(1, count, (len(source), 6))
    target[:, 0] = 0
    with torch.no_grad():
        said = there(**asked, decoder_input_ids=to_marian(target, count)).logits.roll(1, -1)
        gap = (model.to_logits(model(source, lengths, target)) - said).abs().max()
    assert gap < 1e-4
    limits = Limits(ratio=0, more=15)
    found = beam(model, source, lengths, end=count - 1, size=5, penalty=0.0, limits=limits)
    made = there.generate(**asked, num_beams=5, length_penalty=0.0, max_new_tokens=15,
                          output_scores=True, return_dict_in_generate=True)  # fmt: skip
    assert sum(best.ended for best, *_ in found) >= 4, "a test of texts that end"
    for row, (best, *_) in enumerate(found):
        if best.ended:
            written = from_marian(made.sequences[row], count).tolist()[1 : len(best.tokens) + 2]
            assert written == [*best.tokens, count - 1]
            assert float(made.sequences_scores[row]) == pytest.approx(best.score, abs=1e-4)
            text = words.decode(made.sequences[row], skip_special_tokens=True)
            assert text == tokenizer().decode(best.tokens)


@pytest.mark.parametrize("kind", ["words", "characters", "bpe", "unigram"])
def test_the_tokenizer_goes_along(kind, tmp_path):
    cut, settings = tokenizer(kind), TransformerSettings(width=8, heads=2, layers=1, feedforward=8)
    model = Transformer(settings, len(cut) + 1, len(cut) + 1)
    save_translator(model, settings, tmp_path / "m", tokenizer=cut)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    texts = [*TEXTS[:3], "the ünknown cat", ""]
    assert [[i + 1 for i in ids] for ids in there(texts).input_ids] == cut.encode(texts)
    assert (there.pad_token_id, there.eos_token_id) == (len(cut), len(cut) - 1)
    assert there.decode(there(TEXTS[0]).input_ids) == TEXTS[0]


def test_ctranslate2_converts_the_folder(tmp_path):
    """By its own converter. Of Pegasus' layout it keeps the symbol that texts begin with."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    from ctranslate2.converters import TransformersConverter

    model, _, _ = exported("pre", tmp_path / "m")
    TransformersConverter(str(tmp_path / "m")).convert(str(tmp_path / "ct2"))
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    (source, lengths), words = questions(), [*tokenizer().vocabulary, "</s>"]
    pieces = [[words[i] for i in row[:n]] for row, n in zip(source, lengths, strict=True)]
    made = translator.translate_batch(pieces, beam_size=5, length_penalty=0)
    for row, (best, *_) in enumerate(
        beam(model, source, lengths, end=len(words) - 1, size=5, penalty=0.0)
    ):
        assert made[row].hypotheses[0] == [words[i] for i in best.tokens]


@pytest.mark.parametrize(
    ("given", "layout", "says"),
    [
        ({}, "marian", "Marian does not support norm=pre; train with norm=post"),
        ({"norm": "post"}, "pegasus", "Pegasus does not support norm=post"),
        ({"pattern": "window-4"}, "", "Pegasus does not support pattern=window-4"),
        ({"compress": "linformer"}, "", "Pegasus does not support compress=linformer"),
        ({"tie": False}, "", "Pegasus does not support tie=False; train with tie=True"),
        ({"position": "rotary"}, "", "position=rotary; train with position=sinusoidal"),
        ({"score": "additive"}, "", "score=additive"),
        ({"normalize": "sparsemax"}, "", "normalize=sparsemax"),
        ({"activation": "gated-gelu"}, "", "activation=gated-gelu; train with activation=gelu or"),
        ({"key_value_heads": 1}, "", "key_value_heads=1; train with key_value_heads=0"),
        ({"residual": "depth-attention"}, "pegasus", "Pegasus does not support residual="),
        ({}, "bart", "layout must be marian or pegasus, not 'bart'"),
    ],
)
def test_what_cannot_be_written_names_the_setting(given, layout, says, tmp_path):
    settings = TransformerSettings(width=8, heads=2, layers=1, feedforward=8, **given)
    with pytest.raises(RegardError, match=says):
        save_translator(Transformer(settings, 9, 9), settings, tmp_path / "m", layout=layout)


def test_another_tokenizer_is_refused(tmp_path):
    settings = TransformerSettings(width=8, heads=2, layers=1, feedforward=8)
    with pytest.raises(RegardError, match="has 9 words, but the tokenizer with the end has"):
        save_translator(Transformer(settings, 9, 9), settings, tmp_path / "m",
                        tokenizer=tokenizer())  # fmt: skip
