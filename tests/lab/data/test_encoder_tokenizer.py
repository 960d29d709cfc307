"""Tokenizers of pretrained encoders: symbols, truncation, unknown pieces, files."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from regard.core.errors import RegardError
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.tasks.encoded import joined

pytest.importorskip("transformers")
from tests.interop import encoders


def test_symbols_come_from_the_tokenizer_and_no_text_can_fake_them():
    words = EncoderTokenizer(encoders.tokenizer("bert"), "here")
    assert (
        words.special_tokens.classify,
        words.special_tokens.separator,
        words.special_tokens.mask,
    ) == (3, 4, 5)
    (ids,) = words.encode(["good [SEP] film"])
    assert 4 not in ids
    assert words.split("good [SEP] film") == ["good", "[", "SEP", "]", "film"]
    pairs = EncoderTokenizer(encoders.tokenizer("roberta"), "here")
    assert (pairs.special_tokens.classify, pairs.special_tokens.separator) == (0, 2)
    assert 2 not in pairs.encode(["good</s>"])[0]
    assert words.framed(["good"]) == ["[CLS]", "good", "[SEP]"]


def test_what_the_file_cuts_and_pads_is_left_to_the_task():
    """The tokenizer of the tests truncates to 7 and pads."""
    words = EncoderTokenizer(encoders.tokenizer("bert"), "here")
    found = words.encode(["film " * 20, "plot", ""])
    assert [len(ids) for ids in found] == [20, 1, 0]


def test_pieces_are_those_of_the_text():
    words = EncoderTokenizer(encoders.tokenizer("bert"), "here")
    assert words.split("plots unseen") == ["plot", "s", "unseen"]
    assert words.unknown == words.encode(["unseen"])[0][0] == 2
    pairs = EncoderTokenizer(encoders.tokenizer("roberta"), "here")
    assert pairs.split("good bad film") == ["good", " ", "bad", "f", "i", "l", "m"]
    assert pairs.split("\udc80") == ["?"], "half of a surrogate pair"


def test_it_comes_back_from_its_file(tmp_path):
    made = EncoderTokenizer(encoders.tokenizer("roberta"), "here")
    (tmp_path / "t.json").write_bytes(made.to_bytes())
    again = EncoderTokenizer.load(tmp_path / "t.json")
    assert again.sha256 == made.sha256
    assert again.encode(["good film</s>"]) == made.encode(["good film</s>"])
    (tmp_path / "bad.json").write_text("{}")
    for name, says in [("bad.json", "not a valid tokenizer"), ("none.json", "cannot read")]:
        with pytest.raises(RegardError, match=says):
            EncoderTokenizer.load(tmp_path / name)


def test_symbols_by_name_where_nothing_sets_them_and_none_at_all():
    from tokenizers import Tokenizer, models

    plain = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 5, "a": 1, "[UNK]": 2}, "[UNK]"))
    made = EncoderTokenizer(plain, "here")
    assert (made.special_tokens.classify, made.special_tokens.separator, len(made)) == (0, 5, 6)
    assert EncoderTokenizer(Tokenizer(models.WordLevel({"a": 0}, "a")), "").special_tokens is None
    with pytest.raises(RegardError, match="has no tokens"):
        EncoderTokenizer(Tokenizer(models.WordLevel({}, "a")), "here")


def test_a_text_is_tokenized_once_for_its_answer_its_cut_and_its_unknown_words():
    known = EncoderTokenizer(encoders.tokenizer("bert"), "x")
    inner, calls = known.inner, []

    class Counted:
        def encode_batch_fast(self, texts, **more):
            calls.extend(texts)
            return inner.encode_batch_fast(texts, **more)

    known.inner = Counted()
    texts = ["a good film", "the plot", "a good film"]
    first = known.encode(texts)
    assert first == known.encode(texts) == [known.encode([text])[0] for text in texts]
    assert known.unknown_in("the plot") == ()
    assert calls == texts
    assert known.encode(["scene"] * 2000) == 2000 * known.encode(["scene"])


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_two_texts_are_framed_and_truncated_as_by_the_tokenizer(kind: str) -> None:
    words = {name: i for i, name in enumerate(["[CLS]", "[SEP]", "[UNK]", "a", "b"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    middle = "[SEP]" if kind == "bert" else "[SEP] [SEP]"
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A {middle} $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    known = EncoderTokenizer(inner, kind)
    assert known.between == (1,) * (1 if kind == "bert" else 2)
    for first, second in ((9, 2), (2, 9), (9, 8), (3, 3)):
        texts = "a " * first, "b " * second
        for length in (8, 9):
            whole = Tokenizer.from_str(inner.to_str())
            whole.enable_truncation(length + 2, strategy="longest_first")
            mine = joined(known.encode(texts), known.between, length, "head")
            theirs = whole.encode(*texts).ids[1:-1]
            assert len(mine) == len(theirs)
            assert abs(list(mine).count(3) - theirs.count(3)) <= 1  # an odd token is the first's
