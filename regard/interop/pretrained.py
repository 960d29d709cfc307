"""Continue texts with models from Hugging Face, whose token 0 may be a word."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from regard.data.batches import pad
from regard.decoding import Limits, Sliding, Writer, Written, greedy, sample
from regard.decoding.shifted import Shifted
from regard.errors import RegardError
from regard.interop.huggingface import Loaded


class Pretrained:
    """A loaded GPT or T5 that generates texts.

    ``writer``, for `regard.decoding`, uses token ids ``shift`` above the model's own and ends a
    text by ``end``, also shifted. Errors: a BERT, which does not generate.
    """

    def __init__(self, loaded: Loaded) -> None:
        if loaded.kind == "bert":
            raise RegardError(
                "BERT does not generate texts; use its to_logits to predict masked tokens"
            )
        self.loaded = loaded
        model = cast(Writer, loaded.model)
        self.shift = int(loaded.kind == "gpt")
        self.writer = cast(Writer, Shifted(model)) if self.shift else model
        self.end = special(loaded.config, "eos_token_id") + self.shift

    def go_on(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        most: int = 50,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[list[int]]:
        """Return the continuation of each text of token ids (T5: its output), ``most`` at most.

        Temperature 0 takes the likeliest token; above 0 `regard.decoding.sample` draws it. An empty
        text begins with the config's first token. A GPT continues past its positions with a sliding
        window, `regard.decoding.Sliding`, and reads the end of a longer text. Errors: those of
        `sample`; a token id outside the vocabulary.
        """
        started = [list(ids) or [special(self.loaded.config, "bos_token_id")] for ids in prompts]
        words = int(self.loaded.config["vocab_size"])
        for token in (token for ids in started for token in ids):
            if not 0 <= token < words:
                raise RegardError(f"token id must be between 0 and {words - 1}, not {token}")
        source, lengths = pad([np.array(ids) + self.shift for ids in started])
        writer = Sliding(self.writer, self.context) if self.context else self.writer
        inputs = (cast(Writer, writer), source, lengths)
        limits = Limits(ratio=0.0, more=most, longest=most)
        texts: list[Written]
        if temperature:
            options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
            texts = sample(*inputs, end=self.end, limits=limits, seed=seed, **options)
        else:
            texts = greedy(*inputs, end=self.end, limits=limits)
        return [[token - self.shift for token in text.tokens] for text in texts]

    @property
    def context(self) -> int:
        """Return the number of positions of a GPT, or 0 for a T5, which has no limit."""
        settings: Any = self.loaded.settings
        return int(settings.length) if self.loaded.kind == "gpt" else 0


def special(config: dict[str, Any], name: str) -> int:
    """Return the id of a special token by its name in a config, or the last id if it has none.

    An id beyond the vocabulary is accepted: the model never generates it. Errors: not an integer
    of 0 or more.
    """
    token = config.get(name)
    token = token[0] if isinstance(token, list) and token else token
    if token is None or isinstance(token, list):
        return int(config["vocab_size"]) - 1
    if type(token) is not int or token < 0:
        raise RegardError(f"config.json: {name} must be a token id, not {token!r:.40}")
    return token
