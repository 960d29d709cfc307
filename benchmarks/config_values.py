"""The keys and values that `benchmarks.config_keys` tries, and the folders that it changes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

UNSET: Any = object()  # the key is removed from the file
_SIZES = {"vocab_size": 17, "bos_token_id": 1, "eos_token_id": 2}
_BERT = {
    "hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 9,
    "max_position_embeddings": 16, **_SIZES,
}  # fmt: skip
_T5 = {
    "d_model": 12, "d_kv": 5, "d_ff": 9, "num_heads": 2, "num_layers": 2,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "vocab_size": 17,
    "decoder_start_token_id": 0,
}  # fmt: skip
#: The config class, the model class and the sizes of each model type.
MODELS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {
        "n_embd": 12, "n_head": 2, "n_layer": 2, "n_positions": 16, **_SIZES}),
    "bert": ("BertConfig", "BertForPreTraining", _BERT),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**_BERT, "max_position_embeddings": 18}),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM", {
        "dim": 12, "n_heads": 2, "n_layers": 2, "hidden_dim": 9, "max_position_embeddings": 16,
        **_SIZES}),
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", _T5),
    "marian": ("MarianConfig", "MarianMTModel", {
        "d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 9, "decoder_ffn_dim": 9,
        "max_position_embeddings": 16, "vocab_size": 17, "pad_token_id": 16, "eos_token_id": 0,
        "decoder_start_token_id": 16, "forced_eos_token_id": 0}),
}  # fmt: skip
ACTIVATIONS = [
    "gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh",
    "gelu_accurate", "gelu_10", "quick_gelu", "relu", "relu2", "relu6", "silu", "swish", "tanh",
    "sigmoid", "linear", "mish", "leaky_relu", "hardswish", "laplace", "nothing", UNSET,
]  # fmt: skip
FLAGS = [True, False, UNSET]
EPSILONS = [1e-12, 1e-5, 1e-2, 0, "1e-5", UNSET]
SHARES = [0.0, 0.3, 1, UNSET]
#: Keys of all model types.
_ALL: dict[str, Sequence[Any]] = {
    "use_cache": FLAGS,
    "torch_dtype": ["float16", "bfloat16", "float32", None],
    "dtype": ["float16", "float32"],
    "tie_word_embeddings": FLAGS,
    "is_decoder": FLAGS,
    "is_encoder_decoder": FLAGS,
    "add_cross_attention": FLAGS,
    "cross_attention_hidden_size": [None, 8],
    "chunk_size_feed_forward": [0, 3],
    "output_attentions": FLAGS,
    "output_hidden_states": FLAGS,
    "return_dict": [True],
    "torchscript": FLAGS,
    "pruned_heads": [{}, {"0": [1]}],
    "position_embedding_type": ["absolute", "relative_key", "relative_key_query", "rotary"],
    "rope_scaling": [None, {"type": "linear", "factor": 2.0}],
    "rope_theta": [10000.0],
    "sliding_window": [None, 3],
    "num_key_value_heads": [1],
    "quantization_config": [{"load_in_8bit": True, "quant_method": "bitsandbytes"}],
    "per_layer_config": [None, {"0": {"layer_norm_eps": 1e-2}}],
    "tie_encoder_decoder": FLAGS,
    "auto_map": [{"AutoModel": "modeling_own.Own"}],
    "problem_type": [None, "regression", "multi_label_classification"],
    "id2label": [{"0": "bad", "1": "good", "2": "fair"}],
    "num_labels": [1, 3],
    "classifier_dropout": [None, 0.3],
    "initializer_range": [0.02, 0.5],
    "attn_implementation": ["sdpa", "eager"],
    "pad_token_id": [0, 1, None, UNSET],
    "bos_token_id": [0, None, UNSET],
    "eos_token_id": [1, [1, 2], None, UNSET],
    "no_repeat_ngram_size": [2],
    "num_beams": [4],
    "max_length": [3],
    "gradient_checkpointing": FLAGS,
    "vocab_size": [17, 18, 0, -1, "17"],
    "a_key_of_nobody": [1],
}
_ENCODER: dict[str, Sequence[Any]] = {
    **_ALL,
    "hidden_act": ACTIVATIONS,
    "layer_norm_eps": EPSILONS,
    "type_vocab_size": [1, 2, 3, 0, UNSET],
    "hidden_size": [12, 8, 13, UNSET],
    "num_hidden_layers": [1, 3, 0],
    "num_attention_heads": [1, 3, 5, 0],
    "intermediate_size": [7, 0],
    "max_position_embeddings": [20, 4],
    "hidden_dropout_prob": SHARES,
    "attention_probs_dropout_prob": SHARES,
    "pooler_fc_size": [768],
    "directionality": ["bidi"],
    "layer_norm_epsilon": [1e-2],
    "num_layers": [1],
}
_T5_KEYS: dict[str, Sequence[Any]] = {
    **_ALL,
    "feed_forward_proj": [
        *("relu", "gelu", "silu", "gelu_new", "tanh", "gated-gelu", "gated-silu", "gated-relu"),
        *("gated-gelu_new", "gated-tanh", "gated", "relu-gelu", 3, None, UNSET),
    ],
    "dense_act_fn": ["relu", "gelu", "gelu_new", "silu", "tanh", None],
    "is_gated_act": [*FLAGS, None],
    "scale_decoder_outputs": [*FLAGS, None],
    "layer_norm_epsilon": EPSILONS,
    "d_kv": [3, 6, 8],
    "d_ff": [7],
    "d_model": [8],
    "num_heads": [1, 3],
    "num_layers": [1, 3],
    "num_decoder_layers": [1, 3, None, 0, UNSET],
    "relative_attention_num_buckets": [4, 6, 7, 32, UNSET],
    "relative_attention_max_distance": [8, 5, 128, 4, UNSET],
    "dropout_rate": SHARES,
    "initializer_factor": [0.5],
    "decoder_start_token_id": [0, 2, None, UNSET],
    "hidden_size": [12, 8],
    "num_hidden_layers": [2, 1],
    "head_dim": [5, 3],
    "hidden_act": ["tanh"],
    "n_positions": [4],
}
#: The values of every key of config.json.
CONFIGS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "gpt2": {
        **_ALL,
        "activation_function": ACTIVATIONS,
        "layer_norm_epsilon": EPSILONS,
        "scale_attn_weights": [*FLAGS, "false"],
        "scale_attn_by_inverse_layer_idx": [*FLAGS, 1],
        "reorder_and_upcast_attn": FLAGS,
        "n_inner": [None, 7, 48, UNSET],
        "n_embd": [8, 13],
        "n_head": [1, 3, 5],
        "n_layer": [1, 3],
        "n_positions": [20, 4, UNSET],
        "n_ctx": [4],
        "hidden_size": [12, 8],
        "num_attention_heads": [2, 3],
        "num_hidden_layers": [2, 1],
        "max_position_embeddings": [16, 20],
        "resid_pdrop": SHARES,
        "embd_pdrop": SHARES,
        "attn_pdrop": SHARES,
        "summary_type": ["mean"],
        "summary_use_proj": FLAGS,
        "hidden_act": ["tanh"],
        "layer_norm_eps": [1e-2],
        "intermediate_size": [7],
    },
    "bert": _ENCODER,
    "roberta": {**_ENCODER, "pad_token_id": [1, 0, 2, None, UNSET]},
    "distilbert": {
        **_ALL,
        "activation": ACTIVATIONS,
        "hidden_act": ["relu"],
        "layer_norm_eps": [1e-2],
        "sinusoidal_pos_embds": FLAGS,
        "dim": [8, 13],
        "n_heads": [1, 3],
        "n_layers": [1, 3],
        "hidden_dim": [7],
        "hidden_size": [12, 8],
        "num_hidden_layers": [2, 1],
        "num_attention_heads": [2, 3],
        "max_position_embeddings": [20, 4],
        "dropout": SHARES,
        "attention_dropout": SHARES,
        "qa_dropout": [0.3],
        "seq_classif_dropout": [0.3],
        "type_vocab_size": [2],
    },
    "t5": _T5_KEYS,
    "mt5": _T5_KEYS,
    "marian": {
        "activation_function": ["gelu", "swish"],
        "scale_embedding": FLAGS,
        "normalize_before": FLAGS,
        "normalize_embedding": FLAGS,
        "add_final_layer_norm": FLAGS,
        "static_position_embeddings": FLAGS,
        "share_encoder_decoder_embeddings": FLAGS,
        "forced_eos_token_id": [0, None],
        "bad_words_ids": [[[16]]],
        "decoder_vocab_size": [17],
        "decoder_start_token_id": [16, 0],
    },
}
#: The values of every key of generation: those of tokens first.
GENERATION: Mapping[str, Sequence[Any]] = {
    "eos_token_id": [2, 4, [2, 4], [3, 5, 7, 9], [], None, UNSET, 99, "2", -1],
    "bos_token_id": [0, 3, None, UNSET],
    "decoder_start_token_id": [0, 2, 5, None, UNSET, 99],
    "pad_token_id": [0, 3, None, UNSET],
    "forced_bos_token_id": [None, 3],
    "forced_eos_token_id": [None, 3, [3, 4]],
    "bad_words_ids": [None, [[3]], [[3, 4]]],
    "suppress_tokens": [None, [], [3, 4]],
    "begin_suppress_tokens": [None, [], [3, 4]],
    "sequence_bias": [None, [[[3], 5.0]]],
    "no_repeat_ngram_size": [0, 2],
    "encoder_no_repeat_ngram_size": [0, 2],
    "repetition_penalty": [1.0, 1.5],
    "encoder_repetition_penalty": [1.0, 1.5],
    "exponential_decay_length_penalty": [None, [2, 1.5]],
    "min_length": [0, 6],
    "min_new_tokens": [0, 6],
    "max_length": [4, 20],
    "max_new_tokens": [3],
    "num_beams": [1, 4],
    "do_sample": [False, True],
    "temperature": [0.5],
    "top_k": [3],
    "top_p": [0.5],
    "min_p": [None, 0.5],
    "typical_p": [1.0, 0.5],
    "epsilon_cutoff": [0.0, 0.1],
    "eta_cutoff": [0.0, 0.1],
    "length_penalty": [2.0],
    "early_stopping": [True],
    "renormalize_logits": [True],
    "remove_invalid_values": [True],
    "guidance_scale": [None, 1.5],
    "stop_strings": [None, ["a"]],
    "token_healing": [False, True],
    "watermarking_config": [None, {"greenlist_ratio": 0.25, "bias": 9.0}],
    "use_cache": FLAGS,
    "cache_implementation": ["static"],
    "num_return_sequences": [1],
    "output_scores": [True],
    "a_key_of_nobody": [1],
}
#: The values of every setting of a Transformer that goes out.
SETTINGS: Mapping[str, Sequence[Any]] = {
    "activation": ["gelu", "gelu-tanh", "relu", "silu", "gated-gelu", "gated-silu"],
    "norm": ["pre", "post"],
    "tie": [True, False],
    "heads": [1, 3],
    "key_value_heads": [0, 1],
    "layers": [1, 3],
    "decoder_layers": [0, 1, 3],
    "feedforward": [7],
    "width": [8, 13],
    "length": [16],
    "dropout": [0.0, 0.3],
    "attention_dropout": [0.0, 0.3],
    "position": ["sinusoidal", "learned", "none", "rotary", "alibi", "t5-bias"],
    "score": ["scaled-dot", "dot", "additive"],
    "attention": ["multi-head", "gated", "linear"],
    "normalize": ["softmax", "sparsemax"],
    "pattern": ["none", "window-4"],
    "compress": ["none", "linformer"],
}

#: Families of tokenizers, and the form of their vocabulary.
TOKENIZERS = (
    ("bert", "vocab.txt"),
    ("bert", "tokenizer.json"),
    ("distilbert", "vocab.txt"),
    ("gpt2", "vocab.json"),
    ("gpt2", "tokenizer.json"),
    ("roberta", "vocab.json"),
    ("roberta", "tokenizer.json"),
    ("t5", "tokenizer.json"),
)
_NEW = {"content": "<new>", "lstrip": True, "rstrip": False, "normalized": False, "special": True}
_PLAIN = {**_NEW, "lstrip": False, "normalized": True, "special": False}


def copied_settings(kind: str, form: str) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Yield the files, keys and values of a tokenizer."""
    size = len(words(kind))
    settings: dict[str, Sequence[Any]] = {
        "do_lower_case": [*FLAGS, None],
        "strip_accents": [*FLAGS, None],
        "tokenize_chinese_chars": FLAGS,
        "add_prefix_space": FLAGS,
        "add_bos_token": FLAGS,
        "add_eos_token": FLAGS,
        "model_max_length": [4, 512, int(1e30)],
        "max_length": [4],
        "padding_side": ["left", "right"],
        "truncation_side": ["left"],
        "truncation_strategy": ["longest_first"],
        "pad_to_multiple_of": [8],
        "stride": [1],
        "legacy": FLAGS,
        "split_special_tokens": FLAGS,
        "do_basic_tokenize": FLAGS,
        "never_split": [["good"]],
        "clean_up_tokenization_spaces": FLAGS,
        "errors": ["strict"],
        "trim_offsets": FLAGS,
        "tokenizer_class": [
            *("BertTokenizer", "BertTokenizerFast", "RobertaTokenizer", "GPT2Tokenizer"),
            *("PreTrainedTokenizerFast", "XLNetTokenizer", UNSET),
        ],
        "added_tokens_decoder": [
            {str(size): _NEW},
            {str(size): _PLAIN},
            {str(size): _NEW, str(size + 1): {**_PLAIN, "content": "<extra>"}},
            {str(size + 5): _NEW},
            {},
        ],
        "additional_special_tokens": [["<new>", "<extra>"], []],
        "extra_special_tokens": [["<new>"], {"new_token": "<new>"}],
        "mask_token": ["<new>", "<mask>", {**_NEW, "__type": "AddedToken"}, None],
        "cls_token": ["<new>", None],
        "sep_token": ["<new>"],
        "pad_token": ["<new>", None],
        "unk_token": ["<new>"],
        "bos_token": ["<new>"],
        "eos_token": ["<new>"],
        "image_token": ["<new>"],
        "auto_map": [{"AutoTokenizer": ["own.Own", None]}],
        "a_key_of_nobody": [1],
    }
    for key, values in settings.items():
        yield "tokenizer_config.json", key, values
    yield "added_tokens.json", "<new>", [size, size + 5]
    for key in ("mask_token", "additional_special_tokens"):
        yield "special_tokens_map.json", key, [x for x in settings[key] if x is not None]
    if form == "tokenizer.json":
        yield (
            form,
            "truncation",
            [{"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}],
        )
        yield form, "padding", [
            {"strategy": {"Fixed": 24}, "direction": "Left", "pad_to_multiple_of": None,
             "pad_id": 0, "pad_type_id": 0, "pad_token": words(kind)[0]}
        ]  # fmt: skip


def words(kind: str) -> list[str]:
    """Return the vocabulary of a family's tokenizer."""
    from tokenizers import pre_tokenizers

    if kind in ("bert", "distilbert"):
        pieces = "good film best Good it ' s the ! : a de ##ja vu - 東 京 ##s".split()
        return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    if kind == "t5":
        pieces = ["▁", "▁good", "▁film", "▁the", "a", "o", "d", "g", "<"]
        return ["<pad>", "</s>", "<unk>", *pieces]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    joined = [first + second for first, second in MERGES]
    if kind == "gpt2":
        return [*letters, *joined, "<|endoftext|>"]
    return ["<s>", "<pad>", "</s>", "<unk>", *letters, *joined, "<mask>"]


MERGES = [("g", "o"), ("o", "d"), ("go", "od"), ("Ġ", "good"), ("f", "i"), ("l", "m"), ("fi", "lm")]


def write_tokenizer(kind: str, form: str, folder: Path) -> None:
    """Write a tokenizer's files and the config of its model type."""
    import transformers

    vocabulary = words(kind)
    ids = {word: number for number, word in enumerate(vocabulary)}
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    if kind in ("bert", "distilbert"):
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    elif kind in ("gpt2", "roberta"):
        (folder / "vocab.json").write_text(json.dumps(ids))
        lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if form != "tokenizer.json":
        return
    if kind == "t5":
        scores = [(word, -float(number)) for number, word in enumerate(vocabulary)]
        made: Any = transformers.T5Tokenizer(vocab=scores, extra_ids=0)
    else:
        made = transformers.AutoTokenizer.from_pretrained(folder)
    made.save_pretrained(folder)
    for name in ("vocab.txt", "vocab.json", "merges.txt"):
        (folder / name).unlink(missing_ok=True)
