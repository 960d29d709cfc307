"""The peers of translation: a plain torch loop, Hugging Face's Marian, CTranslate2."""

import importlib.util
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.language_model_peers import descend
from regard.attention import sinusoidal
from regard.lab.tasks.writing.encoded import PairBatch
from regard.lab.tasks.writing.task import Sequences
from regard.nn.layers.device import device_of, to_device
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer
from regard.training.batches import pad

BEAM = 5
RATE = 1e-4
Ids = NDArray[np.integer]


def quiet_transformers() -> Any:
    """Import transformers without its progress bars and warnings."""
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return transformers


def missing(package: str) -> str:
    """Return the reason for a peer's omission; "" if it is installed.

    >>> missing("torch"), missing("no_such_package")
    ('', 'no_such_package is not installed')
    """
    return "" if importlib.util.find_spec(package) else f"{package} is not installed"


def train_plainly(
    model: nn.Module, task: Sequences, size: int, seed: int, *, bf16: bool
) -> Iterator[int]:
    """Yield the real tokens of each step of the usual loop: random padded batches, AdamW."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    random, count = np.random.default_rng(seed), len(task.split("train"))
    while True:
        order = random.permutation(count)
        for start in range(0, count - size + 1, size):
            batch = to_device(model, task.batch("train", order[start : start + size]))
            with torch.autocast(device_of(model).type, torch.bfloat16, enabled=bf16):
                loss = model(batch)
            descend(model, optimizer, loss)
            yield int(batch.lengths.sum())


class Tutorial(nn.Module):
    """`nn.Transformer` as in the tutorial of translation: one loss of a padded batch."""

    def __init__(self, sizes: TransformerSettings, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, sizes.width, padding_idx=0)
        self.transformer = nn.Transformer(
            sizes.width,
            sizes.heads,
            sizes.layers,
            sizes.decoder_layers or sizes.layers,
            sizes.feedforward,
            sizes.dropout,
            batch_first=True,
        )
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, batch: PairBatch) -> Tensor:
        """Return the mean cross entropy of the target's words."""
        device = batch.source.device
        places = torch.arange(batch.source.shape[1], device=device)
        padding = places >= batch.source_lengths[:, None]
        time = batch.decoder_input.shape[1]
        states = self.transformer(
            self.embed(batch.source),
            self.embed(batch.decoder_input),
            tgt_mask=torch.triu(torch.ones(time, time, dtype=torch.bool, device=device), 1),
            src_key_padding_mask=padding,
            tgt_key_padding_mask=~batch.real,
            memory_key_padding_mask=padding,
        )
        logits = F.linear(states, self.embedding.weight)
        wanted = batch.wanted.masked_fill(~batch.real, -100)
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=0.1)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return scaled vectors with sine positions."""
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        places = torch.arange(tokens.shape[1], device=x.device)
        found: Tensor = self.dropout(x + sinusoidal(places, x.shape[-1]))
        return found


class Marian(nn.Module):
    """Hugging Face's Marian at these sizes, with its own loss and labels."""

    def __init__(self, sizes: TransformerSettings, words: int) -> None:
        super().__init__()
        from regard.interop.marian import config_of

        transformers = quiet_transformers()
        post = sizes.model_copy(update={"norm": "post"})
        self.words = words
        self.model = transformers.MarianMTModel(
            transformers.MarianConfig(**config_of(post, words, "marian"))
        )

    def forward(self, batch: PairBatch) -> Tensor:
        """Return the mean cross entropy of the target's words."""
        from regard.interop.marian import to_marian

        places = torch.arange(batch.source.shape[1], device=batch.source.device)
        mask = (places < batch.source_lengths[:, None]).long()
        loss: Tensor = self.model(
            input_ids=to_marian(batch.source, self.words),
            attention_mask=mask,
            decoder_input_ids=to_marian(batch.decoder_input, self.words),
            labels=to_marian(batch.wanted, self.words).masked_fill(~batch.real, -100),
        ).loss
        return loss


class Generating:
    """Hugging Face's ``generate`` with a regard model's weights."""

    def __init__(
        self, model: Transformer, sizes: TransformerSettings, forced: int, dtype: torch.dtype
    ) -> None:
        from regard.interop.marian import save_translator

        transformers = quiet_transformers()
        self.words, self.forced = model.target.weight.shape[0], forced
        with tempfile.TemporaryDirectory() as folder:
            place = save_translator(model, sizes, Path(folder) / "there")
            self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(place).eval().to(dtype)

    @torch.no_grad()
    def write(self, batches: Sequence[Sequence[Ids]]) -> Any:
        """Return a beam for each batch; all texts have one length."""
        from regard.interop.marian import to_marian

        found = None
        for batch in batches:
            source, lengths = pad(batch)
            mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
            found = self.model.generate(
                input_ids=to_marian(source, self.words),
                attention_mask=mask,
                num_beams=BEAM,
                length_penalty=0.0,
                min_new_tokens=self.forced,
                max_new_tokens=self.forced,
            )
        return found


class CTranslate2:
    """CTranslate2 with a regard model's weights, at its best setting: two workers of one thread."""

    quick = True  # it writes as many batches as regard

    def __init__(
        self, model: Transformer, sizes: TransformerSettings, forced: int, kind: str
    ) -> None:
        self.model, self.sizes, self.forced, self.kind = model, sizes, forced, kind

    def __enter__(self) -> Self:
        import ctranslate2

        from regard.interop.ctranslate2 import save_ctranslate2

        self.folder = tempfile.TemporaryDirectory()
        place = Path(self.folder.name) / "there"
        plain = [f"w{i}" for i in range(self.model.target.weight.shape[0] - 1)]
        self.names = save_ctranslate2(self.model, self.sizes, place, plain, quantization=self.kind)
        self.translator = ctranslate2.Translator(
            str(place), device="cpu", inter_threads=2, intra_threads=1, compute_type=self.kind
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.translator.unload_model()
        self.folder.cleanup()

    def write(self, batches: Sequence[Sequence[Ids]]) -> Any:
        """Decode all batches at once: its workers share them."""
        return self.translator.translate_batch(
            [[self.names[i] for i in ids.tolist()] for batch in batches for ids in batch],
            beam_size=BEAM,
            length_penalty=0.0,
            max_batch_size=len(batches[0]),
            min_decoding_length=self.forced,
            max_decoding_length=self.forced,
        )
