"""Serve models in Hugging Face's layout from local folders: GPT-2, BERT and its variants, T5."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.analysis.attribution import Explainable, attributed
from regard.analysis.layer_attention import LayerAttention, looked
from regard.analysis.record import record
from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.decoding import Limits as Lengths
from regard.interop import huggingface
from regard.interop.pretrained import Pretrained
from regard.interop.tokenizer_files import panics
from regard.lab.data.tokenizers import whole_characters
from regard.lab.tasks import explaining
from regard.lab.tasks.settings import TEMPERATURE
from regard.lab.tasks.writing.streaming import (
    Drawing,
    NextWord,
    Piece,
    Reread,
    WriteRequest,
    answered,
    next_words,
    reread,
    write,
)

SHORT = 48  # default number of tokens of an answer
MASKS = ("[MASK]", "<mask>")  # BERT's and RoBERTa's


#: Names of the numbers of layers and heads in config.json.
LAYERS = ("n_layer", "num_hidden_layers", "num_layers", "n_layers")
HEADS = ("n_head", "num_attention_heads", "num_heads", "n_heads")


class ServedPretrained:
    """A pretrained model: GPT-2 continues a text, BERT fills in masks, T5 answers its prompt."""

    answers_in_texts = True
    residual = 0.5

    def __init__(self, name: str, loaded: huggingface.Loaded) -> None:
        if loaded.tokenizer is None:
            raise RegardError(
                f"{name} has no tokenizer; save the model's tokenizer.json in the same folder"
            )
        self.name, self.loaded, self.words = name, loaded, loaded.tokenizer
        self.writer = None if loaded.kind == "bert" else Pretrained(loaded)

    @property
    def temperature(self) -> float:
        """Default sampling temperature: the language models' for GPT-2, else 0."""
        return TEMPERATURE if self.loaded.kind == "gpt" else 0.0

    @property
    def network(self) -> nn.Module:
        """The network."""
        return self.loaded.model

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._ids(text))

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """Return the text generated for each text. Raises: ``best`` > 1."""
        if best > 1:
            raise RegardError(f"{self.name} gives one answer per text; leave out best")
        return [self._answer(text) for text in texts]

    def unknown(self, text: str) -> list[str]:
        """Return the words of a text that the tokenizer does not know; none if it has bytes."""
        with panics(f"{self.name}: its tokenizer could not encode the text"):
            encoding = self.words.encode(text)
        model = self.words.model
        name = getattr(model, "unk_token", None)
        number = self.words.token_to_id(str(name)) if name else getattr(model, "unk_id", None)
        spans = [x for x, i in zip(encoding.offsets, encoding.ids, strict=True) if i == number]
        return list(dict.fromkeys(text[start:end].strip() for start, end in spans))

    def attention(self, text: str) -> list[LayerAttention]:
        """Return the attention of every layer; for T5, while it writes its answer."""
        ids = self._ids(text)
        if not ids:
            return []
        if self.loaded.kind == "t5":
            pieces = self.write(text, Drawing(SHORT))
            return self.reread(text, [piece.id for piece in pieces if piece.id is not None]).layers
        with torch.no_grad(), record(self.network) as recording:
            self.network(torch.tensor([ids]))
            return looked(recording, self._names(ids))

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """Generate a text token by token; BERT yields the filled text at once.

        GPT-2 writes past its context with a sliding window, `regard.decoding.Sliding`.
        """
        if self.writer is None:
            answer = self._answer(text)
            yield Piece(answer["written"], math.exp(answer["log_probability"]), answer["written"])
        elif self._ids(text):
            yield from write(self.writer.writer, self._request(text, drawing.most), drawing)

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """Return the attention while `write` wrote these tokens. Raises: the model is BERT."""
        if self.writer is None:
            raise RegardError(f"{self.name} fills in all masks at once; leave out written")
        return reread(self.network, self._request(text, max(len(written), 1)), written)

    def next_words(self, text: str) -> list[NextWord]:
        """Return the likeliest first words of the output; none for BERT."""
        return [] if self.writer is None else next_words(self.network, self._request(text, 1))

    def attribute(self, text: str, choice: int | None = None) -> dict[str, Any]:
        """Return attributions of the tokens. Raises: no such number; a text without tokens."""
        with torch.no_grad():
            return attributed(self.network, self._explainable(text), choice).json()

    def _explainable(self, text: str) -> Explainable:
        if self.writer is None:
            ids = self._ids(text)
            mask, best = self._best(ids)
            names = self._names(ids)
            return explaining.filled(
                self.network, ids, names, best, words=self._vocabulary, mask=mask
            )
        request = self._request(text, SHORT)
        if self.loaded.kind == "gpt":
            return explaining.continuations(self.network, request)
        written = [piece.id for piece in self.write(text, Drawing(SHORT)) if piece.id is not None]
        return explaining.outputs(self.network, request, written)

    @property
    def _vocabulary(self) -> int:
        return int(self.loaded.config["vocab_size"])

    def _request(self, text: str, most: int) -> WriteRequest:
        assert self.writer is not None
        context = self.writer.context
        return WriteRequest(
            np.array(self._ids(text)[-context:], dtype=np.int64),
            self.writer.ends,
            self._vocabulary,
            Lengths(ratio=0.0, more=most, longest=most),
            self._names,
            self._text,
            self.loaded.kind == "gpt",
            self.writer.shift,
            context,
            self.writer.begin,
        )

    def _answer(self, text: str) -> dict[str, Any]:
        named = {"unknown": words} if (words := self.unknown(text)) else {}
        return {**self._own_answer(text), **named}

    def _own_answer(self, text: str) -> dict[str, Any]:
        ids = self._ids(text)
        if not ids:
            return {"written": "", "log_probability": 0.0, "ended": True}
        if self.writer is None:
            return self._filled(ids)
        answer = answered(list(self.write(text, Drawing(SHORT))))
        left = len(ids) - (self.writer.context or len(ids))
        return {**answer, "left_out": left} if left > 0 else answer

    def _filled(self, ids: list[int]) -> dict[str, Any]:
        """Replace each mask by its most likely word."""
        name, best = self._best(ids)
        if not best:
            raise RegardError(f"{self.name} fills in masks: put {name} into the text")
        for place, word in best.items():
            ids[place] = word.id
        chance = sum(math.log(max(word.probability, 1e-300)) for word in best.values())
        return {"written": self._text(ids), "log_probability": chance, "ended": True}

    def _best(self, ids: list[int]) -> tuple[str, dict[int, NextWord]]:
        """Return the mask's name, and the likeliest word at the place of each mask."""
        name = next((name for name in MASKS if self.words.token_to_id(name) is not None), MASKS[0])
        mask = self.words.token_to_id(name)
        places = [i for i, token in enumerate(ids) if token == mask]
        if not places:
            return name, {}
        if any(weight.startswith("head") for weight in self.loaded.drawn):
            raise RegardError(
                f"the file of {self.name} has no weights to predict words with; save the model "
                "with its head, as AutoModelForMaskedLM of transformers does"
            )
        with torch.no_grad():
            states = self.network(torch.tensor([ids]))[0, places]
            logits: Tensor = cast(Any, self.network).to_logits(states)
        chances, best = logits.float().softmax(-1).max(-1)
        words = zip(self._names(best.tolist()), chances.tolist(), best.tolist(), strict=True)
        return name, {place: NextWord(*word) for place, word in zip(places, words, strict=True)}

    def _ids(self, text: str) -> list[int]:
        with panics(f"{self.name}: its tokenizer could not encode the text"):
            return list(self.words.encode(text).ids)

    def _names(self, ids: Sequence[int]) -> list[str]:
        with panics(f"{self.name}: its tokenizer could not decode tokens"):
            named = whole_characters(ids, lambda part: str(self.words.decode(list(part))))
            return [
                name or str(self.words.id_to_token(i)) for name, i in zip(named, ids, strict=True)
            ]

    def _text(self, ids: Sequence[int]) -> str:
        with panics(f"{self.name}: its tokenizer could not decode tokens"):
            return str(self.words.decode(list(ids)))


def is_pretrained(folder: Path) -> bool:
    """Return whether a folder contains a model in Hugging Face's layout."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def describe(name: str, folder: Path) -> dict[str, Any]:
    """Describe a model in plain values from its config. Raises: regard cannot read the model."""
    config = read_json(folder / "config.json")
    kind = str(config.get("model_type"))
    layout = huggingface.layout_of(config, name).kind
    layers, heads = (next((config[key] for key in keys if key in config), None)
                     for keys in (LAYERS, HEADS))  # fmt: skip
    mask = MASKS[0] if kind in ("bert", "distilbert") else MASKS[1]
    descriptions = {"gpt": "continues a text", "bert": f"fills in each {mask}"}
    return {
        "name": name,
        "task": "Hugging Face",
        "model": kind,
        "says": descriptions.get(layout, "generates a text from its prompt"),
        "answers_in_texts": True,
        "data": "",
        "labels": [],
        "attends": True,
        "attributes": False,
        "layers": layers,
        "heads": heads,
        "parameters": None,
        "settings": {},
        "writes": {"gpt": "on", "bert": ""}.get(layout, "another"),
        "temperature": TEMPERATURE if layout == "gpt" else 0.0,
    }


def opened(name: str, folder: Path) -> ServedPretrained:
    """Load the model of a folder. Raises: as `interop.huggingface.load`."""
    return ServedPretrained(name, huggingface.load(folder))
