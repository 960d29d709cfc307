"""A pretrained encoder that labels texts: what ``weights=`` names, read for a run."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.data.encoder_tokenizer import EncoderTokenizer
from regard.errors import RegardError
from regard.interop import folder, huggingface
from regard.interop.names import take
from regard.interop.tokenizer_files import read_tokenizer
from regard.models.classifiers import BERTClassifier
from regard.models.settings import BERTSettings, EncoderSettings
from regard.reading import read_json
from regard.settings import build

#: What cannot be set beside ``weights=``: the file decides.
FIXED = ("width", "layers", "heads", "feedforward", "activation", "types", "epsilon")
#: What must be as it is by default, for the weights were learned so.
LEARNED_SO = ("norm", "position", "key_value_heads")


@dataclass(frozen=True)
class Encoder:
    """A BERT, RoBERTa or DistilBERT in a folder or on the hub, by what ``weights=`` says.

    Errors of all that is read here: `RegardError`: no such folder or name; a model of another
    kind; no safetensors, no tokenizer; sizes by the config that the file does not have.
    """

    source: str

    @cached_property
    def folder(self) -> Path:
        """Where it lies here, after a download where it is needed."""
        return folder.locate(self.source)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its ``config.json``. Errors: a kind that is no encoder."""
        config = read_json(self.folder / folder.CONFIG)
        kinds = [kind for kind, layout in huggingface.LAYOUTS.items() if layout.kind == "bert"]
        if config.get("model_type") not in kinds:
            raise RegardError(
                f"weights={self.source} has the unsupported model type "
                f"{config.get('model_type')!r}; use one of {', '.join(kinds)}"
            )
        return config

    @cached_property
    def described(self) -> tuple[huggingface.Layout, BERTSettings, int]:
        """Its layout, settings and number of words, compared with the size of its file."""
        return huggingface.described(self.folder, self.config, {})

    @cached_property
    def tokenizer(self) -> EncoderTokenizer:
        """Its own tokenizer. Errors: there is none; it has more tokens than the model."""
        inner = read_tokenizer(self.folder)
        if inner is None:
            raise RegardError(
                f"weights={self.source} has no tokenizer (tokenizer.json, vocab.txt, or "
                "vocab.json with merges.txt); save the model's own beside it: "
                "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) of transformers"
            )
        tokenizer, words = EncoderTokenizer(inner, self.source), self.described[2]
        if len(tokenizer) > words:
            raise RegardError(
                f"weights={self.source}: the tokenizer has {len(tokenizer):,} tokens, but the "
                f"model only {words:,} words; they do not match"
            )
        return tokenizer

    @cached_property
    def sha256(self) -> str:
        """The hash over its safetensors."""
        return folder.digest(self.folder)

    def settings(self, given: dict[str, Any]) -> EncoderSettings:
        """Return the settings of a network that begins with these weights.

        ``given`` are the user's. Errors: one that the weights decide has another value.
        """
        own = self.described[1].model_dump()
        asked = build(EncoderSettings, given).model_dump()
        usual = build(EncoderSettings, {}).model_dump()
        for key in (*FIXED, *LEARNED_SO):
            value = own[key] if key in FIXED else usual[key]
            if key in given and asked[key] != value:
                raise RegardError(
                    f"weights={self.source} has {key}={value}: leave {key}={given[key]} out"
                )
        kept = {key: asked[key] for key in given if key != "length"}
        return build(EncoderSettings, {**own, **kept, "weights": self.source})

    def put(self, network: BERTClassifier) -> dict[str, Any]:
        """Put the weights into a network of `settings`; return what a run remembers of them.

        Words behind the tokenizer's last are left out: no text has them. Errors: tensors that are
        missing or of another shape.
        """
        layout, settings, _ = self.described
        place = str(self.folder)
        theirs = layout.tidy(self.config, folder.read_tensors(self.folder))
        here = dict(network.body.named_parameters())
        ours = {n: x for n, x in take(layout.rows(settings), theirs, place).items() if n in here}
        words = network.body.embedding.weight.shape[0]
        ours["embedding.weight"] = ours["embedding.weight"][:words]
        new = huggingface.put(network.body, ours, place)
        return {
            "source": self.source,
            "revision": "" if Path(self.source).is_dir() else self.folder.name,
            "sha256": self.sha256,
            "taken": sum(x.numel() for x in ours.values()),
            "new": list(new),
        }
