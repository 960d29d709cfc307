"""Fifty layers and models of other packages, as they are: adopted, held to the laws, observed.

    python -m benchmarks.elsewhere                 # a table in Markdown
    python -m benchmarks.elsewhere --only keras    # those whose name begins so
    python -m benchmarks.elsewhere --compare polarity.tsv.gz    # each as the arm of a comparison

Packages that are not installed are left out and named at the end. Torchvision without its compiled
operators, which timm imports, is given the names of two of them.
"""

import argparse
import contextlib
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import torch
from torch import nn

import regard
from regard.analysis.record import record
from regard.conformance import adopt, conform
from regard.conformance.law import InapplicableError
from regard.core.errors import RegardError
from tests.conformance import strangers

W, H = 16, 2
STEPS = 300  # of a comparison
SMALL: dict[str, Any] = {
    "vocab_size": 30, "hidden_size": W, "num_hidden_layers": 2, "num_attention_heads": H,
    "intermediate_size": 16, "max_position_embeddings": 640, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
Make = Callable[[], Any]


def transformers_model(kind: str, **more: Any) -> Any:
    """Return a small model of transformers with random weights."""
    transformers = import_module("transformers")
    model = getattr(transformers, kind)
    config = getattr(transformers, model.config_class.__name__)
    return model(config(**{**SMALL, **more}))


def transformers_layer(path: str, config: str, *index: Any, **more: Any) -> Any:
    """Return a layer of a model of transformers."""
    home, _, name = path.rpartition(".")
    settings = getattr(import_module("transformers"), config)(**{**SMALL, **more})
    settings._attn_implementation = "eager"
    return getattr(import_module(f"transformers.models.{home}"), name)(settings, *index)


def complete_torchvision() -> Any:
    """Name the operators that torchvision's Python code needs, if its compiled ones do not fit."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # it is there
            library.define(f"{name}(Tensor boxes, Tensor scores, float least) -> Tensor")
    return library


def of(package: str, name: str, *given: Any, **settings: Any) -> Make:
    """Return a function that imports a class and builds it; without settings, the class."""

    def make() -> Any:
        kind = getattr(import_module(package), name)
        return kind(*given, **settings) if given or settings else kind

    return make


def stack(kind: str, **more: Any) -> Any:
    """Return layers of x_transformers."""
    x_transformers = import_module("x_transformers")

    return getattr(x_transformers, kind)(dim=W, depth=2, heads=H, attn_dim_head=8, **more)


def wrapper(kind: str, layers: str) -> Any:
    """Return a network of x_transformers."""
    x_transformers = import_module("x_transformers")
    if kind == "TransformerWrapper":
        return x_transformers.TransformerWrapper(
            num_tokens=30, max_seq_len=640, attn_layers=stack(layers)
        )
    return x_transformers.ContinuousTransformerWrapper(
        dim_in=W, dim_out=W, max_seq_len=640, attn_layers=stack(layers)
    )


block = partial(nn.TransformerEncoderLayer, W, H, 16)
FAMILIES: dict[str, dict[str, Any]] = {
    "BertModel": {}, "RobertaModel": {}, "DistilBertModel": {"dim": W, "n_heads": H, "n_layers": 2},
    "AlbertModel": {"embedding_size": W}, "ElectraModel": {"embedding_size": W},
    "DebertaV2Model": {}, "ModernBertModel": {"cls_token_id": 1, "sep_token_id": 2},
    "MPNetModel": {}, "XLMRobertaModel": {}, "FNetModel": {}, "GPT2Model": {}, "GPTNeoXModel": {},
    "LlamaModel": {}, "MistralModel": {"num_key_value_heads": 1},
    "Qwen2Model": {"num_key_value_heads": 1}, "Gemma2Model": {"num_key_value_heads": 1,
                                                             "head_dim": 8},
    "PhiModel": {}, "OPTModel": {"ffn_dim": 16, "word_embed_proj_dim": W}, "FalconModel": {},
    "BloomModel": {"n_head": H}, "T5EncoderModel": {"d_model": W, "d_kv": 8, "d_ff": 16,
                                                    "num_heads": H, "num_layers": 2},
}  # fmt: skip
LAYERS: dict[str, Make] = {
    "torch.nn.MultiheadAttention": of("torch.nn", "MultiheadAttention"),
    "torch.nn.MultiheadAttention, time first": lambda: nn.MultiheadAttention(W, H),
    "torch.nn.TransformerEncoderLayer": block,
    "torch.nn.TransformerEncoder": lambda: nn.TransformerEncoder(block(), 2),
    "torch.nn.TransformerDecoderLayer": lambda: nn.TransformerDecoderLayer(W, H, 16),
    "torch.nn.TransformerDecoder": lambda: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(W, H, 16, batch_first=True), 2
    ),
    **{f"transformers.{name}": partial(transformers_model, name, **more)
       for name, more in FAMILIES.items()},
    "transformers BertLayer": partial(transformers_layer, "bert.modeling_bert.BertLayer",
                                      "BertConfig"),
    "transformers GPT2Attention": partial(transformers_layer, "gpt2.modeling_gpt2.GPT2Attention",
                                          "GPT2Config"),
    "x_transformers.Attention": of("x_transformers", "Attention", W, heads=H, dim_head=8),
    "x_transformers.Attention, flash": of("x_transformers", "Attention", W, heads=H, dim_head=8,
                                          flash=True),
    "x_transformers.Encoder": partial(stack, "Encoder"),
    "x_transformers.Encoder, rotary": partial(stack, "Encoder", rotary_pos_emb=True),
    "x_transformers.Decoder": partial(stack, "Decoder"),
    "x_transformers.Decoder, ALiBi": partial(stack, "Decoder", alibi_pos_bias=True),
    "x_transformers.TransformerWrapper": partial(wrapper, "TransformerWrapper", "Decoder"),
    "x_transformers.ContinuousTransformerWrapper": partial(
        wrapper, "ContinuousTransformerWrapper", "Encoder"
    ),
    "timm.layers.Attention": of("timm.layers", "Attention"),
    "timm.layers.AttentionRope": of("timm.layers", "AttentionRope", W, num_heads=H),
    "timm.layers.DiffAttention": of("timm.layers", "DiffAttention"),
    "timm vision_transformer.Block": of("timm.models.vision_transformer", "Block", W, H),
    "timm eva.EvaBlock": of("timm.models.eva", "EvaBlock", W, H),
    "keras.layers.MultiHeadAttention": of("keras.layers", "MultiHeadAttention", H, 8),
    "keras.layers.GroupQueryAttention": of("keras.layers", "GroupQueryAttention", 8, H, 1),
    "keras.layers.Attention": of("keras.layers", "Attention", use_scale=True),
    "keras.layers.AdditiveAttention": of("keras.layers", "AdditiveAttention", use_scale=True),
    **{f"notebook {kind.__name__}": of(kind.__module__, kind.__name__)
       for kind in strangers.STRANGERS},
}  # fmt: skip


LISTS = ("keras.layers.Attention", "keras.layers.AdditiveAttention")


def of_a_list(module: nn.Module, x: Any, memory: Any, allowed: Any) -> Any:
    """Call a layer of keras that takes [queries, values] and masks of each."""
    keys = x if memory is None else memory
    return module([x, keys], mask=None if allowed is None else [None, allowed.any(1)])


def row(name: str, make: Make) -> list[str]:
    """Return the cells of a layer: how it is called, laws held and failed, and the time."""
    begin = time.perf_counter()
    torch.manual_seed(0)  # of its parameters
    try:
        thing = make()
    except ImportError as error:
        return [name, f"not installed: {error.name}", "", "", "", "", ""]
    try:
        layer = adopt(thing, call=of_a_list if name in LISTS else "")
    except Exception as error:
        return [name, f"refused: {error}", "", "", "", "", ""]
    verdicts = conform(layer)
    counted = [sum(v.outcome == outcome for v in verdicts)
               for outcome in ("holds", "fails", "does not apply")]  # fmt: skip
    module, x = layer.build().eval(), torch.randn(2, 5, layer.width)
    with torch.no_grad(), record(module) as recording:
        layer.call(module, x)
    seen = ", ".join(f"{count} × {kind}" for kind, count in Counter(
        getattr(one, "seen", "own") for _, one in recording.layers).items())  # fmt: skip
    broken = "; ".join(f"{v.law}: {v.message}" for v in verdicts if v.outcome == "fails")
    called = str(layer).partition(": ")[2]
    return [
        name,
        called,
        seen or "none",
        *map(str, counted),
        broken,
        f"{time.perf_counter() - begin:.0f}",
    ]


class Classifier(nn.Module):
    """Words, a layer of any package and the mean of its outputs: what a comparison trains."""

    def __init__(self, vocabulary: int, labels: int, layer: Any) -> None:
        super().__init__()
        self.layer, self.inner = [layer], layer.build().float()  # a list: it is no module
        self.words = nn.Embedding(vocabulary, layer.width, padding_idx=0)
        nn.init.normal_(self.words.weight, std=0.3)
        self.head = nn.LazyLinear(labels)
        self.masked = True

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x, layer = self.words(ids), self.layer[0]
        try:
            y = layer.call(self.inner, x, lengths if self.masked else None)
        except InapplicableError:  # it takes no mask of keys
            self.masked = False
            y = layer.call(self.inner, x)
        valid = torch.arange(x.shape[1]) < lengths[:, None]
        y = y.masked_fill(~valid[:, :, None], 0.0).sum(1) / lengths[:, None]
        return self.head(y)  # type: ignore[no-any-return]


def compared(names: Sequence[str], data: str) -> None:
    """Print the accuracy of each layer in a classifier of reviews, trained in the same way."""
    arms: list[Any] = ["mean"]
    for name in names:
        with contextlib.suppress(ImportError, RegardError):
            layer = adopt(LAYERS[name](), call=of_a_list if name in LISTS else "")
            plain = "".join(x if x.isalnum() else "-" for x in name)
            arms.append(regard.Arm(partial(Classifier, layer=layer), plain))
    found = regard.compare(
        "classification", arms, data=data, seeds=1, steps=STEPS, examples=2000, learning_rate=3e-3,
        patience=0, width=W,
    )  # fmt: skip
    print("| layer | accuracy, % | parameters |\n|---|--:|--:|")
    for arm in found.arms:
        print(f"| {arm.arm.name} | {100 * arm.mean:.1f} | {arm.parameters:,} |")


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="the beginning of names")
    parser.add_argument("--compare", metavar="DATA", default="", help="texts with labels")
    options = parser.parse_args(arguments)
    library = complete_torchvision()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.compare:
        compared([name for name in LAYERS if name.startswith(options.only)], options.compare)
        return 0
    print("| layer | called | observed | hold | fail | – | broken laws | s |")
    print("|---|---|---|--:|--:|--:|---|--:|")
    for name, make in LAYERS.items():
        if name.startswith(options.only):
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in row(name, make)) + " |",
                  flush=True)  # fmt: skip
    del library  # whose operators live as long
    return 0


if __name__ == "__main__":
    sys.exit(main())
