"""A model in Hugging Face's layout in a local folder, as a subject: GPT-2, BERT and kin, T5."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.analysis.layer_attention import LayerAttention, looked
from regard.analysis.record import record
from regard.data.tokenizers import panics
from regard.decoding import Limits as Lengths
from regard.errors import RegardError
from regard.interop import huggingface
from regard.interop.pretrained import Pretrained, special
from regard.tasks.settings import TEMPERATURE
from regard.tasks.writing.streaming import (
    Drawing,
    Piece,
    Reread,
    WriteRequest,
    answered,
    reread,
    write,
)

SHORT = 48  # tokens that an answer has, unless more are asked for
MASKS = ("[MASK]", "<mask>")  # BERT's and RoBERTa's


#: What configs call the number of layers, and of heads.
LAYERS = ("n_layer", "num_hidden_layers", "num_layers", "n_layers")
HEADS = ("n_head", "num_attention_heads", "num_heads", "n_heads")


class PretrainedSubject:
    """GPT-2 goes on with a text, BERT fills in each mask, T5 writes what its text asks for."""

    kind = "sequences"
    residual = 0.5

    def __init__(self, name: str, loaded: huggingface.Loaded) -> None:
        if loaded.tokenizer is None:
            raise RegardError(f"{name} holds no tokenizer; save the model's own beside it")
        self.name, self.loaded, self.words = name, loaded, loaded.tokenizer
        self.writer = None if loaded.kind == "bert" else Pretrained(loaded)

    @property
    def temperature(self) -> float:
        """As a run that goes on with texts, or else 0."""
        return TEMPERATURE if self.loaded.kind == "gpt" else 0.0

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.loaded.model

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._ids(text))

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """What is written for each text. Errors: more than one answer asked for."""
        if best > 1:
            raise RegardError(f"{self.name} gives one answer to a text; ask without best")
        return [self._answer(text) for text in texts]

    def attention(self, text: str) -> list[LayerAttention]:
        """What every layer looks at: of T5 while its answer is written."""
        ids = self._ids(text)
        if not ids:
            return []
        if self.loaded.kind == "t5":
            pieces = self.write(text, Drawing(SHORT))
            return self.reread(text, [piece.id for piece in pieces if piece.id is not None]).layers
        with torch.no_grad(), record(self.model) as recording:
            self.model(torch.tensor([ids]))
            return looked(recording, self._names(ids))

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """A text token by token; of BERT the filled text at once.

        GPT-2 writes past its positions by a window, `regard.decoding.Sliding`.
        """
        if self.writer is None:
            said = self._answer(text)
            yield Piece(said["written"], math.exp(said["log_probability"]), said["written"])
        elif self._ids(text):
            yield from write(self.writer.writer, self._asked(text, drawing.most), drawing)

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """What was looked at while `write` wrote these tokens. Errors: BERT writes none."""
        if self.writer is None:
            raise RegardError(f"{self.name} fills in all at once; ask without written")
        return reread(self.model, self._asked(text, max(len(written), 1)), written)

    def _asked(self, text: str, most: int) -> WriteRequest:
        assert self.writer is not None
        context = self.writer.context
        return WriteRequest(
            np.array(self._ids(text)[-context:], dtype=np.int64),
            special(self.loaded.config, "eos_token_id"),
            int(self.loaded.config["vocab_size"]),
            Lengths(ratio=0.0, more=most, longest=most),
            self._names,
            self._text,
            self.loaded.kind == "gpt",
            self.writer.shift,
            context,
        )

    def _answer(self, text: str) -> dict[str, Any]:
        ids = self._ids(text)
        if not ids:
            return {"written": "", "log_probability": 0.0, "ended": True}
        if self.writer is None:
            return self._filled(ids)
        said = answered(list(self.write(text, Drawing(SHORT))))
        left = len(ids) - (self.writer.context or len(ids))
        return {**said, "left_out": left} if left > 0 else said

    def _filled(self, ids: list[int]) -> dict[str, Any]:
        """Each mask by its likeliest word."""
        name = next((name for name in MASKS if self.words.token_to_id(name) is not None), MASKS[0])
        mask = self.words.token_to_id(name)
        places = [i for i, token in enumerate(ids) if token == mask]
        if not places:
            raise RegardError(f"{self.name} fills in what is missing: put {name} into the text")
        with torch.no_grad():
            states = self.model(torch.tensor([ids]))[0, places]
            logits: Tensor = cast(Any, self.model).to_logits(states)
        chances, best = logits.float().log_softmax(-1).max(-1)
        for place, token in zip(places, best.tolist(), strict=True):
            ids[place] = token
        return {"written": self._text(ids), "log_probability": float(chances.sum()), "ended": True}

    def _ids(self, text: str) -> list[int]:
        with panics(f"{self.name}: its tokenizer could not cut the text into tokens"):
            return list(self.words.encode(text).ids)

    def _names(self, ids: Sequence[int]) -> list[str]:
        with panics(f"{self.name}: its tokenizer could not write tokens as a text"):
            return [self.words.decode([i]) or str(self.words.id_to_token(i)) for i in ids]

    def _text(self, ids: Sequence[int]) -> str:
        with panics(f"{self.name}: its tokenizer could not write tokens as a text"):
            return str(self.words.decode(list(ids)))


def is_pretrained(folder: Path) -> bool:
    """Whether a folder holds a model in Hugging Face's layout."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def told(name: str, folder: Path) -> dict[str, Any]:
    """The model in a few plain values, read from its config. Errors: no model that regard reads."""
    from regard.reading import read_json

    config = read_json(folder / "config.json")
    kind = str(config.get("model_type"))
    does = huggingface.layout_of(config, name).kind
    layers, heads = (next((config[key] for key in keys if key in config), None)
                     for keys in (LAYERS, HEADS))  # fmt: skip
    mask = MASKS[0] if kind in ("bert", "distilbert") else MASKS[1]
    says = {"gpt": "goes on with a text", "bert": f"fills in each {mask}"}
    return {
        "name": name,
        "task": "Hugging Face",
        "model": kind,
        "says": says.get(does, "writes what its text asks for"),
        "kind": "sequences",
        "data": "",
        "labels": [],
        "attends": True,
        "layers": layers,
        "heads": heads,
        "parameters": None,
        "settings": {},
        "writes": {"gpt": "on", "bert": ""}.get(does, "another"),
        "temperature": TEMPERATURE if does == "gpt" else 0.0,
    }


def opened(name: str, folder: Path) -> PretrainedSubject:
    """The model of a folder as a subject. Errors: those of `interop.huggingface.load`."""
    return PretrainedSubject(name, huggingface.load(folder))
