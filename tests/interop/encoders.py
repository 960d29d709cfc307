"""Tiny random encoders of transformers in folders, with tokenizers, and texts that they know."""

import json
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tests.interop.tiny import transformers

WORDS = "good fine great bad poor awful film plot actor scene the a is was it".split()
PIECES = ["##s", "##ly", ".", "!"]
BERT_WORDS = ["[PAD]", "[unused]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *PIECES]
ROBERTA_WORDS = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
MERGES = [("g", "o"), ("o", "d"), ("go", "od"), ("b", "a"), ("ba", "d"), ("Ġ", "f")]
ROBERTA_WORDS += [a + b for a, b in MERGES] + ["<mask>"]
MOST = 40  # positions of a text, with its two symbols
KINDS = ("bert", "roberta", "distilbert")


def config(kind: str, seed: int = 0, *, wide: bool = False) -> Any:
    """A config of some kind, sizes drawn from a seed; wide enough to tell all words apart."""
    draw = random.Random(f"{kind} {seed}")
    heads = draw.choice([1, 2, 3])
    width, inner, layers = heads * draw.choice([4, 6]), draw.choice([9, 20]), draw.randint(1, 3)
    heads, width, layers = (2, 64, 2) if wide else (heads, width, layers)
    if kind == "distilbert":
        return transformers.DistilBertConfig(
            vocab_size=len(BERT_WORDS) + 3, dim=width, hidden_dim=inner, n_layers=layers,
            n_heads=heads, max_position_embeddings=MOST,
            activation=draw.choice(["gelu", "relu"]), attn_implementation="eager",
        )  # fmt: skip
    common = {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "layer_norm_eps": draw.choice([1e-12, 1e-5]),
        "attn_implementation": "eager",
    }  # fmt: skip
    if kind == "bert":
        return transformers.BertConfig(
            vocab_size=len(BERT_WORDS) + 3, max_position_embeddings=MOST,
            type_vocab_size=draw.choice([1, 2]), **common,
        )  # fmt: skip
    return transformers.RobertaConfig(
        vocab_size=len(ROBERTA_WORDS), max_position_embeddings=MOST + 2, type_vocab_size=1, **common
    )


CLASSES = {
    "bert": (transformers.BertModel, transformers.BertForPreTraining),
    "roberta": (transformers.RobertaModel, transformers.RobertaForMaskedLM),
    "distilbert": (transformers.DistilBertModel, transformers.DistilBertForMaskedLM),
}


def model(kind: str, seed: int = 0, *, heads: bool = False, wide: bool = False) -> Any:
    """A random model, its weights some way off where they begin; a wide one's where they begin,
    where the mean of its states is nearly one of its words.
    """
    torch.manual_seed(seed)
    made = CLASSES[kind][heads](config(kind, seed, wide=wide)).eval()
    with torch.no_grad():
        for x in made.parameters():
            x.add_(torch.randn_like(x), alpha=0.0 if wide else 0.2)
    return made


def tokenizer(kind: str) -> Tokenizer:
    """RoBERTa's byte pairs, or word pieces."""
    if kind == "roberta":
        ids = {word: i for i, word in enumerate(ROBERTA_WORDS)}
        made = Tokenizer(models.BPE(ids, MERGES, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        return made
    ids = {word: i for i, word in enumerate(BERT_WORDS)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.post_processor = processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3))
    made.enable_truncation(7)
    made.enable_padding(pad_id=0)
    return made


def save(kind: str, folder: Path, seed: int = 0, *, heads: bool = False, wide: bool = False) -> Any:
    """A model and its tokenizer in a folder; BERT's tokenizer as a list of words alone."""
    made = model(kind, seed, heads=heads, wide=wide)
    made.save_pretrained(folder)
    if kind == "bert":
        (folder / "vocab.txt").write_text("\n".join(BERT_WORDS) + "\n")
    else:
        (folder / "tokenizer.json").write_text(tokenizer(kind).to_str())
    return made


def labelled(path: Path, count: int = 400) -> Path:
    """Texts whose label is that of their one word of praise or blame, as JSON lines."""
    draw = random.Random(3)
    rows = []
    for i in range(count):
        label = i % 2
        words = draw.sample(WORDS[6:], draw.randint(2, 6))
        words.insert(draw.randint(0, len(words)), draw.choice(WORDS[3 * label : 3 * label + 3]))
        rows.append({"text": " ".join([*words, "." * (i % 3)]), "label": ["good", "bad"][label]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
