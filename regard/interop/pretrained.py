"""Continue texts with models from Hugging Face, whose token 0 may be a word."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from regard.core.errors import RegardError
from regard.decoding import Limits, Sliding, Writer, Written, greedy, sample
from regard.decoding.shifted import Shifted
from regard.decoding.stepwise import BEGIN
from regard.interop import generation
from regard.interop.huggingface import Loaded
from regard.training.batches import pad


class Pretrained:
    """A loaded GPT or T5 that generates texts.

    ``writer``, for `regard.decoding`, uses token ids one above the model's own. A text ends with
    one of ``ends``, and a T5's text begins with ``begin``, in the model's own ids. Raises: a BERT,
    which does not generate; a file without output weights; an unsupported key of
    ``generation_config.json`` or the config that would change the text.
    """

    shift = 1

    def __init__(self, loaded: Loaded) -> None:
        if loaded.kind == "bert":
            raise RegardError(
                "BERT does not generate texts; use its to_logits to predict masked tokens"
            )
        if loaded.drawn:
            raise RegardError(
                f"the file has no {loaded.drawn[0]}, without which the model cannot generate; save "
                "the whole model, not its body alone"
            )
        generation.must_be_honoured(loaded.generation)
        self.loaded = loaded
        self.ends = generation.ends_of(loaded.generation)
        self.begin = BEGIN
        if loaded.kind == "t5":
            self.begin = generation.begin_of(
                loaded.generation, "decoder_start_token_id", "bos_token_id", "pad_token_id"
            )
            if self.begin >= self.words:
                raise RegardError(
                    f"{loaded.generation['source']}: texts begin with token {self.begin}, but the "
                    f"model has {self.words} words"
                )
        self.writer: Writer = Shifted(cast(Writer, loaded.model), self.begin)

    @property
    def words(self) -> int:
        """Return the size of the vocabulary."""
        return int(self.loaded.config["vocab_size"])

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
        text begins with ``bos_token_id``. A GPT continues past its positions with a sliding
        window, `regard.decoding.Sliding`, and reads the end of a longer text. Raises: as
        `sample`; a token id outside the vocabulary; an empty text without ``bos_token_id``.
        """
        known = self.loaded.generation
        started = [list(ids) or [generation.begin_of(known, "bos_token_id")] for ids in prompts]
        words = self.words
        for token in (token for ids in started for token in ids):
            if not 0 <= token < words:
                raise RegardError(f"token id must be between 0 and {words - 1}, not {token}")
        source, lengths = pad([np.array(ids) + self.shift for ids in started])
        writer: Writer = Sliding(self.writer, self.context) if self.context else self.writer
        inputs = (writer, source, lengths)
        limits = Limits(ratio=0.0, more=most, longest=most)
        ends = [token + self.shift for token in self.ends]
        texts: list[Written]
        if temperature:
            options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
            texts = sample(*inputs, end=ends, limits=limits, seed=seed, **options)
        else:
            texts = greedy(*inputs, end=ends, limits=limits)
        return [[token - self.shift for token in text.tokens] for text in texts]

    @property
    def context(self) -> int:
        """Return the number of positions of a GPT, or 0 for a T5, which has no limit."""
        settings: Any = self.loaded.settings
        return int(settings.length) if self.loaded.kind == "gpt" else 0
