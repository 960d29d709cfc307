"""Going on with texts by models that came from Hugging Face, whose token 0 may be a word."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from regard.data.batches import pad
from regard.decoding import Limits, Sliding, Writer, Written, greedy, sample
from regard.decoding.shifted import Shifted
from regard.errors import RegardError
from regard.interop.huggingface import Loaded


class Pretrained:
    """A GPT or a T5 that was loaded, ready to write.

    ``writer``, for `regard.decoding`, takes and tells numbers ``shift`` above the model's own, and
    ends a text by ``end``, which is shifted too. Errors: a BERT, which does not write.
    """

    def __init__(self, loaded: Loaded) -> None:
        if loaded.kind == "bert":
            raise RegardError("BERT says what stands at a place and writes no text; take its "
                              "to_logits")  # fmt: skip
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
        """What follows each text of token numbers (T5: what it writes for it), ``most`` at most.

        The likeliest each time at temperature 0, else drawn as `regard.decoding.sample` does. A
        text without tokens is begun by the config's first token. A GPT writes past its positions by
        a window, `regard.decoding.Sliding`; of a longer text it reads the end. Errors: those of
        `sample`.
        """
        begun = [list(ids) or [special(self.loaded.config, "bos_token_id")] for ids in prompts]
        words = int(self.loaded.config["vocab_size"])
        for token in (token for ids in begun for token in ids):
            if not 0 <= token < words:
                raise RegardError(f"token id must be between 0 and {words - 1}, not {token}")
        source, lengths = pad([np.array(ids) + self.shift for ids in begun])
        writer = Sliding(self.writer, self.context) if self.context else self.writer
        asked = (cast(Writer, writer), source, lengths)
        limits = Limits(ratio=0.0, more=most, longest=most)
        found: list[Written]
        if temperature:
            how: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
            found = sample(*asked, end=self.end, limits=limits, seed=seed, **how)
        else:
            found = greedy(*asked, end=self.end, limits=limits)
        return [[token - self.shift for token in text.tokens] for text in found]

    @property
    def context(self) -> int:
        """Positions of a GPT; 0 of a T5, whose positions have no end."""
        settings: Any = self.loaded.settings
        return int(settings.length) if self.loaded.kind == "gpt" else 0


def special(config: dict[str, Any], name: str) -> int:
    """A special token's number, by its name in a config; the last of all if it has none.

    One behind the last is told too: a model that has no such token never writes it. Errors: one
    that is no whole number of 0 or more.
    """
    found = config.get(name)
    found = found[0] if isinstance(found, list) and found else found
    if found is None or isinstance(found, list):
        return int(config["vocab_size"]) - 1
    if type(found) is not int or found < 0:
        raise RegardError(f"config.json: {name} must be a token id, not {found!r:.40}")
    return found
