"""Read a pretrained encoder, named by ``weights=``, for a run that labels texts."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.core.settings import build
from regard.interop import folder, huggingface
from regard.interop.names import take
from regard.interop.tokenizer_files import read_tokenizer
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.nn.models.classifiers import BERTClassifier
from regard.nn.models.settings import BERTSettings, EncoderSettings

#: Settings decided by ``weights=``.
FIXED = ("width", "layers", "heads", "feedforward", "activation", "types", "epsilon")
#: Settings that must keep their defaults, with which the weights were trained.
LEARNED_SO = ("norm", "position", "key_value_heads")


@dataclass(frozen=True)
class Encoder:
    """A BERT, RoBERTa or DistilBERT in a folder or on the hub, named by ``weights=``.

    Raises, in every property: `RegardError`: no such folder or name; a model of another kind; no
    safetensors, no tokenizer; a config that does not match the tensors' sizes.
    """

    source: str

    @cached_property
    def folder(self) -> Path:
        """Return the local folder, downloaded if necessary."""
        return folder.locate(self.source)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Return its complete config. Raises: not an encoder; a key that is not supported."""
        config = read_json(self.folder / folder.CONFIG)
        kinds = [kind for kind, layout in huggingface.LAYOUTS.items() if layout.kind == "bert"]
        if config.get("model_type") not in kinds:
            raise RegardError(
                f"weights={self.source} has the unsupported model type "
                f"{config.get('model_type')!r}; use one of {', '.join(kinds)}"
            )
        return huggingface.complete(config, self.folder)

    @cached_property
    def described(self) -> tuple[huggingface.Layout, BERTSettings, int]:
        """Return its layout, settings and number of words, checked against its tensors."""
        return huggingface.described(self.folder, self.config, {})

    @cached_property
    def tokenizer(self) -> EncoderTokenizer:
        """Return its tokenizer. Raises: there is none; it has more tokens than the model."""
        inner = read_tokenizer(self.folder)
        if inner is None:
            raise RegardError(
                f"weights={self.source} has no tokenizer (tokenizer.json, vocab.txt, or "
                "vocab.json with merges.txt); save the model's own next to it: "
                "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) of transformers"
            )
        tokenizer, words = EncoderTokenizer(inner, self.source), self.described[2]
        if len(tokenizer) > words:
            raise RegardError(
                f"weights={self.source}: the tokenizer has {len(tokenizer):,} tokens, but the "
                f"model only {words:,} words; they do not match"
            )
        if tokenizer.special_tokens is None:
            raise RegardError(
                f"the tokenizer of {self.source} has no symbols to put around a text ([CLS] and "
                "[SEP], or <s> and </s>); save the model's own tokenizer next to it: "
                "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) of transformers"
            )
        return tokenizer

    @cached_property
    def sha256(self) -> str:
        """Return the hash of its safetensors."""
        return folder.digest(self.folder)

    def settings(self, chosen: dict[str, Any]) -> EncoderSettings:
        """Return the settings of a network that starts from these weights.

        ``chosen`` are the user's. Raises: one of `FIXED` or `LEARNED_SO` has another value.
        """
        stored = self.described[1].model_dump()
        requested = build(EncoderSettings, chosen).model_dump()
        defaults = build(EncoderSettings, {}).model_dump()
        for key in (*FIXED, *LEARNED_SO):
            value = stored[key] if key in FIXED else defaults[key]
            if key in chosen and requested[key] != value:
                raise RegardError(
                    f"weights={self.source} has {key}={value}: leave {key}={chosen[key]} out"
                )
        choices = {key: requested[key] for key in chosen if key != "length"}
        return build(EncoderSettings, {**stored, **choices, "weights": self.source})

    def put(self, network: BERTClassifier) -> dict[str, Any]:
        """Copy the weights into a network of `settings`; return the facts that a run stores.

        Words beyond the tokenizer's, which never occur, are omitted. Raises: missing tensors; other
        shapes.
        """
        layout, settings, _ = self.described
        place = str(self.folder)
        tidied = layout.tidy(self.config, folder.read_tensors(self.folder))
        parameters = dict(network.body.named_parameters())
        tensors = {
            n: x for n, x in take(layout.rows(settings), tidied, place).items() if n in parameters
        }
        words = network.body.embedding.weight.shape[0]
        tensors["embedding.weight"] = tensors["embedding.weight"][:words]
        new = huggingface.put(network.body, tensors, place)
        return {
            "source": self.source,
            "revision": "" if Path(self.source).is_dir() else self.folder.name,
            "sha256": self.sha256,
            "taken": sum(x.numel() for x in tensors.values()),
            "new": list(new),
        }
