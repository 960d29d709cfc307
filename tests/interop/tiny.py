"""Tiny models of transformers with random settings and weights, and both sides' answers."""

import random
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from regard.analysis.record import record, table

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

CLASSES = {
    "gpt2": transformers.GPT2LMHeadModel,
    "bert": transformers.BertForPreTraining,
    "t5": transformers.T5ForConditionalGeneration,
}


def random_config(kind: str, seed: int) -> Any:
    """A config of some kind, every setting that matters drawn from a seed."""
    draw = random.Random(f"{kind} {seed}")
    heads = draw.choice([1, 2, 3, 4])
    width, inner = heads * draw.choice([3, 4, 5]), draw.choice([7, 20])
    common = {"vocab_size": draw.randint(11, 40), "attn_implementation": "eager"}
    if kind == "gpt2":
        return transformers.GPT2Config(
            n_embd=width, n_head=heads, n_layer=draw.randint(1, 3),
            n_inner=draw.choice([None, inner]), n_positions=draw.choice([16, 33]),
            activation_function=draw.choice(["gelu_new", "gelu", "relu", "silu"]),
            scale_attn_weights=draw.random() < 0.8, tie_word_embeddings=draw.random() < 0.7,
            scale_attn_by_inverse_layer_idx=draw.random() < 0.3,
            layer_norm_epsilon=draw.choice([1e-5, 1e-3]), bos_token_id=1, eos_token_id=2, **common,
        )  # fmt: skip
    if kind == "bert":
        return transformers.BertConfig(
            hidden_size=width, num_attention_heads=heads, num_hidden_layers=draw.randint(1, 3),
            intermediate_size=inner, max_position_embeddings=draw.choice([16, 33]),
            type_vocab_size=draw.choice([1, 2, 3]), layer_norm_eps=draw.choice([1e-12, 1e-3]),
            hidden_act=draw.choice(["gelu", "gelu_new", "relu", "silu"]), **common,
        )  # fmt: skip
    buckets = draw.choice([4, 8, 32])
    return transformers.T5Config(
        d_model=draw.choice([6, 8, 11]), d_kv=draw.choice([2, 3, 8]), d_ff=inner, num_heads=heads,
        num_layers=draw.randint(1, 3), num_decoder_layers=draw.choice([None, 1, 2]),
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=draw.choice([2 * buckets, 128]),
        feed_forward_proj=draw.choice(
            ["relu", "gated-gelu", "gelu", "gated-silu", "gated-relu", "gelu_new"]
        ),
        tie_word_embeddings=draw.random() < 0.5, layer_norm_epsilon=draw.choice([1e-6, 1e-3]),
        **common,
    )  # fmt: skip


def random_model(kind: str, seed: int) -> Any:
    """A model of a random config, its weights some way off where they begin."""
    torch.manual_seed(seed)
    model = CLASSES[kind](random_config(kind, seed)).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=0.1)
    return model


def furthest(kind: str, theirs: Any, ours: nn.Module, seed: int) -> tuple[float, float]:
    """The largest difference of logits, and of weights, over texts of three lengths.

    Of logits above 1 as a share of the largest: T5's are not scaled, and in float32 theirs alone
    are up to 8e-6 from their own in float64.
    """
    torch.manual_seed(seed)
    count, lengths = theirs.config.vocab_size, torch.tensor([15, 4, 9])
    real = torch.arange(15) < lengths[:, None]
    tokens = torch.randint(1, count, (3, 15)) * real
    asked = {"attention_mask": real.long(), "output_attentions": True}
    with torch.no_grad(), record(ours) as recording:
        if kind == "gpt2":
            said = theirs(tokens, **asked)
            pairs = [(ours.to_logits(ours(tokens, lengths))[real], said.logits[real])]
            weights = said.attentions
        elif kind == "bert":
            types = torch.randint(0, theirs.config.type_vocab_size, (3, 15))
            said = theirs(tokens, token_type_ids=types, **asked)
            states = ours(tokens, lengths, types)
            pairs = [(ours.to_logits(states)[real], said.prediction_logits[real]),
                     (ours.next_sentence(states), said.seq_relationship_logits)]  # fmt: skip
            weights = said.attentions
        else:
            written = torch.randint(1, count, (3, 6))
            written[:, 0] = 0
            said = theirs(input_ids=tokens, decoder_input_ids=written, **asked)
            pairs = [(ours.to_logits(ours(tokens, lengths, written)), said.logits)]
            both = zip(said.decoder_attentions, said.cross_attentions, strict=True)
            weights = [*said.encoder_attentions, *(x for pair in both for x in pair)]
        found = [table(seen) for _, seen in recording.layers]
    return (
        max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs),
        max(gap(a, b, real) for a, b in zip(found, weights, strict=True)),
    )


def gap(one: Tensor, two: Tensor, real: Tensor) -> float:
    """How far weights differ, over queries that are real."""
    difference = (one - two).abs()
    if one.shape[-2] == real.shape[1]:
        difference = difference * real[:, None, :, None]
    return float(difference.max())
