"""Speed of ``attn_implementation="regard"``, sdpa and eager in five families.

    python -m benchmarks.huggingface_speed --out speed.json

Each family has 4 layers of width 256 with 8 heads, random weights and no dropout. A step is forward
and backward of the loss of 4 texts of 512 tokens; a prefill is the forward pass that fills a cache
(of encoders: their forward pass). The implementations are interleaved; the median of the rounds
counts. Half of the texts of BERT and T5 are padded by a quarter. transformers refuses sdpa for
Gemma 2, whose soft cap it does not compute.
"""

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from regard.interop.attention_interface import register
from regard.lab.runs.environment import processor

IMPLEMENTATIONS = ("eager", "sdpa", "regard")
DECODER = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
           "num_attention_heads": 8, "num_key_value_heads": 4}  # fmt: skip
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {
        "n_embd": 256, "n_layer": 4, "n_head": 8, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0}),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", DECODER),
    "Gemma 2": ("Gemma2Config", "Gemma2ForCausalLM", {
        **DECODER, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 128}),
    "BERT": ("BertConfig", "BertForMaskedLM", {
        "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 8, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "T5": ("T5Config", "T5ForConditionalGeneration", {
        "d_model": 256, "d_kv": 32, "d_ff": 1024, "num_layers": 4, "num_heads": 8,
        "dropout_rate": 0.0, "decoder_start_token_id": 0}),
}  # fmt: skip
VOCABULARY = 1000


def make(family: str) -> Any:
    """Return a random model of the family."""
    config, model, sizes = FAMILIES[family]
    torch.manual_seed(0)
    tokens = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return getattr(transformers, model)(getattr(transformers, config)(**tokens, **sizes))


def texts(model: Any, batch: int, length: int) -> dict[str, Tensor]:
    """Return random texts and their labels; T5 reads and writes half of the length each."""
    kind = model.config.model_type
    if kind == "t5":
        length //= 2
    tokens = torch.randint(3, VOCABULARY, (batch, length))
    if kind not in ("bert", "t5"):
        return {"input_ids": tokens, "labels": tokens}
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[::2, -length // 4 :] = 0
    return {"input_ids": tokens * mask, "attention_mask": mask, "labels": tokens}


def step(model: Any, inputs: dict[str, Tensor]) -> None:
    """Run forward and backward."""
    model.train().zero_grad()
    model(**inputs, use_cache=False).loss.backward()


@torch.no_grad()
def prefill(model: Any, inputs: dict[str, Tensor]) -> None:
    """Run forward with an empty cache."""
    model.eval()(**inputs, use_cache=model.config.model_type != "bert")


def supported(model: Any) -> list[str]:
    """Return the implementations that transformers allows for the model."""
    allowed = []
    for name in IMPLEMENTATIONS:
        with contextlib.suppress(ValueError):
            model.set_attn_implementation(name)
            allowed.append(name)
    return allowed


def compare(
    model: Any,
    work: Callable[[Any, dict[str, Tensor]], None],
    inputs: dict[str, Tensor],
    rounds: int,
) -> dict[str, float]:
    """Return the median seconds of each implementation, interleaved."""
    taken: dict[str, list[float]] = {x: [] for x in supported(model)}
    for number in range(rounds + 1):  # the first is a warm-up
        for name, times in taken.items():
            model.set_attn_implementation(name)
            start = time.perf_counter()
            work(model, inputs)
            if number:
                times.append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=[*FAMILIES])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    register()
    rows = []
    print(f"{processor()}, {torch.get_num_threads()} threads")
    for family in asked.only:
        model = make(family)
        inputs = texts(model, asked.batch, asked.length)
        for name, work in (("step", step), ("prefill", prefill)):
            seconds = compare(model, work, inputs, asked.rounds)
            rows.append({"family": family, "work": name, "seconds": seconds})
            figures = [f"{seconds[x]:.3f}" if x in seconds else "" for x in IMPLEMENTATIONS]
            figures += [
                f"{seconds['regard'] / seconds[x]:.2f}" if x in seconds else ""
                for x in ("eager", "sdpa")
            ]
            print(f"| {family} | {name} | {' | '.join(figures)} |", flush=True)
    if asked.out:
        found = {"processor": processor(), "threads": torch.get_num_threads(), "rows": rows}
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
