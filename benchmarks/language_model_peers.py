"""The peers: minGPT's decoder, and Hugging Face's classes, in regard's sizes."""

import importlib
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 128


@dataclass(frozen=True)
class Sizes:
    """The sizes of all networks: those of assignment 5."""

    width: int = 256
    heads: int = 8
    layers: int = 4
    feedforward: int = 1_024


SIZES = Sizes()


class Padded(nn.Module):
    """minGPT's decoder: three projections, a table of scores, a triangle of −∞. Karpathy 2020."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        width = SIZES.width
        self.words, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.1)
        self.places = nn.Parameter(torch.zeros(1, BLOCK, width))
        self.blocks = nn.Sequential(*(PaddedBlock() for _ in range(SIZES.layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits at every position, with padding."""
        x = self.drop(self.words(tokens) + self.places[:, : tokens.shape[1]])
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class PaddedBlock(nn.Module):
    """One of its blocks."""

    def __init__(self) -> None:
        super().__init__()
        width = SIZES.width
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.key, self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.drops = nn.ModuleList([nn.Dropout(0.1), nn.Dropout(0.1)])
        self.inner = nn.Sequential(
            nn.Linear(width, SIZES.feedforward),
            nn.GELU(),
            nn.Linear(SIZES.feedforward, width),
            nn.Dropout(0.1),
        )
        self.triangle: Tensor
        self.register_buffer("triangle", torch.tril(torch.ones(1, 1, BLOCK, BLOCK)))

    def forward(self, x: Tensor) -> Tensor:
        """The next layer's states."""
        x = x + self.attend(self.norms[0](x))
        found: Tensor = x + self.inner(self.norms[1](x))
        return found

    def attend(self, x: Tensor) -> Tensor:
        """Return softmax(q kᵀ / √d + mask) v, computed literally."""
        batch, time, width = x.shape
        q, k, v = (
            part(x).view(batch, time, SIZES.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        scores = scores.masked_fill(self.triangle[..., :time, :time] == 0, -1e10)
        found = self.drops[0](F.softmax(scores, -1)) @ v
        out: Tensor = self.drops[1](self.out(found.transpose(1, 2).reshape(batch, time, width)))
        return out


def hugging_face(name: str, vocabulary: int) -> Any:
    """Return GPT-2, BERT with both heads or T5 1.1, in regard's sizes."""
    hf: Any = importlib.import_module("transformers")

    width, heads, layers, inner = vars(SIZES).values()
    if name == "gpt":
        return hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=vocabulary, n_positions=BLOCK, n_embd=width, n_layer=layers,
                n_head=heads, n_inner=inner, attn_pdrop=0.0,
                bos_token_id=0, eos_token_id=0,
            )
        )  # fmt: skip
    if name == "bert":
        return hf.BertForPreTraining(
            hf.BertConfig(
                vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, intermediate_size=inner,
                max_position_embeddings=BLOCK, attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=vocabulary, d_model=width, d_kv=width // heads, d_ff=inner,
            num_layers=layers, num_heads=heads, feed_forward_proj="gated-gelu",
            tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def asked(name: str, batch: Any) -> dict[str, Tensor]:
    """Return regard's batch under Hugging Face's names; the label −100 is ignored."""
    wanted = torch.where(batch.real, batch.wanted, -100)
    if name == "t5":
        time = batch.source.shape[1]
        seen = torch.arange(time) < batch.source_lengths[:, None]
        return {
            "input_ids": batch.source,
            "attention_mask": seen.long(),
            "decoder_input_ids": batch.decoder_input,
            "labels": wanted,
        }
    seen = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    if name == "gpt":  # its loss shifts labels by one itself
        labels = torch.cat([torch.full_like(wanted[:, :1], -100), wanted[:, :-1]], 1)
        return {"input_ids": batch.tokens, "labels": labels}
    return {
        "input_ids": batch.tokens,
        "attention_mask": seen.long(),
        "token_type_ids": batch.types,
        "labels": wanted,
        "next_sentence_label": batch.elsewhere,
    }


def descend(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Make a training step with the gradient clipped at 1, as all peers do."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
