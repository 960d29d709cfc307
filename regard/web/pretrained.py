"""A model in Hugging Face's layout in a local folder, as a subject: GPT-2, BERT, T5."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.analysis.record import record, table
from regard.decoding import Limits as Lengths
from regard.decoding import Writer, Written, greedy
from regard.errors import RegardError
from regard.interop import huggingface
from regard.interop.pretrained import special
from regard.runs import Looked
from regard.web.subject import Asked, Drawing, Piece, write

SHORT = 48  # tokens that an answer has, unless more are asked for
CROSS = "memory_attention"  # in the name of a layer that looks at another text
MASK = "[MASK]"


class PretrainedSubject:
    """GPT-2 goes on with a text, BERT fills in each [MASK], T5 writes what its text asks for."""

    kind = "sequences"
    residual = 0.5

    def __init__(self, name: str, loaded: huggingface.Loaded) -> None:
        if loaded.tokenizer is None:
            raise RegardError(f"{name} holds no tokenizer; save the model's own beside it")
        self.name, self.loaded, self.words = name, loaded, loaded.tokenizer
        self.end = special(loaded.config, "eos_token_id")

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

    def attention(self, text: str) -> list[Looked]:
        """What every layer looks at: of T5 while its answer is written."""
        ids = self._ids(text)
        if not ids:
            return []
        source = torch.tensor([ids])
        asking: list[str] = []
        with torch.no_grad(), record(self.model) as recording:
            if self.loaded.kind == "t5":
                written = list(self._written(ids).tokens)
                given = torch.tensor([[0, *written]])
                self.model(source, torch.tensor([len(ids)]), given)
                asking = [*self._names(written), "[END]"]
            else:
                self.model(source)
            found = [(name, table(seen).float()[0]) for name, seen in recording.layers]
        return [self._looked(name, kept, self._names(ids), asking) for name, kept in found]

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """A text token by token; of BERT the filled text at once."""
        ids = self._ids(text)
        if self.loaded.kind == "bert":
            said = self._answer(text)
            yield Piece(said["written"], math.exp(said["log_probability"]), said["written"])
        elif ids:
            lengths = Lengths(ratio=0.0, more=drawing.most, longest=drawing.most)
            yield from write(
                cast(Writer, self.model),
                Asked([torch.tensor(ids).numpy()], self.end, lengths, self._names, self._text),
                drawing,
            )

    def _answer(self, text: str) -> dict[str, Any]:
        ids = self._ids(text)
        if not ids:
            return {"written": "", "log_probability": 0.0, "ended": True}
        if self.loaded.kind == "bert":
            return self._filled(ids)
        found = self._written(ids)
        said = self._text(list(found.tokens))
        return {"written": said, "log_probability": found.log_probability, "ended": found.ended}

    def _filled(self, ids: list[int]) -> dict[str, Any]:
        """Each [MASK] by its likeliest word."""
        mask = self.words.token_to_id(MASK)
        places = [i for i, token in enumerate(ids) if token == mask]
        if not places:
            raise RegardError(f"{self.name} fills in what is missing: put {MASK} into the text")
        with torch.no_grad():
            states = self.model(torch.tensor([ids]))[0, places]
            logits: Tensor = cast(Any, self.model).to_logits(states)
        chances, best = logits.float().log_softmax(-1).max(-1)
        for place, token in zip(places, best.tolist(), strict=True):
            ids[place] = token
        return {"written": self._text(ids), "log_probability": float(chances.sum()), "ended": True}

    def _written(self, ids: list[int]) -> Written:
        lengths = Lengths(ratio=0.0, more=SHORT, longest=SHORT)
        source, sizes = torch.tensor([ids]), torch.tensor([len(ids)])
        (found,) = greedy(cast(Writer, self.model), source, sizes, end=self.end, limits=lengths)
        return found

    def _looked(self, name: str, kept: Tensor, reads: list[str], asking: list[str]) -> Looked:
        weights = kept.reshape(-1, *kept.shape[-2:]).numpy()
        if CROSS in name:
            return Looked(name, reads, weights, asking)
        own = weights.shape[-1] == len(asking) and name.startswith("decoder")
        return Looked(name, ["[BEGIN]", *asking[:-1]] if own else reads, weights)

    def _ids(self, text: str) -> list[int]:
        return list(self.words.encode(text).ids)

    def _names(self, ids: list[int]) -> list[str]:
        return [self.words.decode([i]) or str(self.words.id_to_token(i)) for i in ids]

    def _text(self, ids: list[int]) -> str:
        return str(self.words.decode(ids))


def is_pretrained(folder: Path) -> bool:
    """Whether a folder holds a model in Hugging Face's layout."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def told(name: str, folder: Path) -> dict[str, Any]:
    """The model in a few plain values, read from its config. Errors: no model that regard reads."""
    from regard.interop.folder import read_json

    config = read_json(folder / "config.json")
    kind = str(config.get("model_type"))
    huggingface.layout_of(config, name)
    layers = config.get("n_layer", config.get("num_hidden_layers", config.get("num_layers")))
    heads = config.get("n_head", config.get("num_attention_heads", config.get("num_heads")))
    says = {"gpt2": "goes on with a text", "bert": f"fills in each {MASK}"}
    return {
        "name": name,
        "task": "Hugging Face",
        "model": kind,
        "says": says.get(kind, "writes what its text asks for"),
        "kind": "sequences",
        "data": "",
        "labels": [],
        "attends": True,
        "layers": layers,
        "heads": heads,
        "parameters": None,
        "settings": {},
    }


def opened(name: str, folder: Path) -> PretrainedSubject:
    """The model of a folder as a subject. Errors: those of `interop.huggingface.load`."""
    return PretrainedSubject(name, huggingface.load(folder))
