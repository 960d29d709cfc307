"""Tiny random models of every family of transformers, and their inputs.

A family is a ``model_type``. Its default config is shrunk by the names of its fields, and the
first class of transformers' auto tables that can be made from it is taken.
"""

import importlib
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError

BATCH, LENGTH, WORDS = 2, 9, 99
LARGEST = 110_000_000  # parameters
LAYERS = 6  # the most, where layers are of several kinds
#: transformers' tables of model classes, in the order in which a family's class is looked for:
#: whole encoder-decoders before their decoders.
TABLES = (
    "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM",
    "MASKED_LM",
)  # fmt: skip
#: Sizes by the name of a config's field: the first pattern that fits the whole name.
RULES: tuple[tuple[str, int], ...] = (
    (r"(num_)?(hidden_)?layers|n_layers?|(en|de)coder_layers|num_(en|de)coder_layers|depth", 2),
    (r"num_(hidden|text|block|attention|transformer)_layers|.*_num_hidden_layers", 2),
    (r".*vocab_size(_per_layer_input)?", WORDS),
    (r"num_key_value_heads|num_kv_heads|n_kv_heads|multi_query_group_num|.*num_key_value_heads", 2),
    (r"(.*_)?num_(attention_)?heads|n_heads?|(.*_)?attention_heads|index_n_heads", 4),
    (r"index_head_dim|qk_head_dim", 16),
    (r"(.*_)?head_dim|d_kv|attention_head_size|dim_head|(.*_)?head_size|qk_rope_head_dim", 8),
    (r"(q|kv|o|.*)_lora_rank", 16),
    (r"rotary_dim", 4),
    (r"moe_intermediate_size|expert_ffn_hidden_size|shared_expert_intermediate_size", 16),
    (r"(.*_)?(intermediate|ffn)_(hidden_)?(size|dim)|d_ff|n_inner|(.*_)?mlp_dim|ffn_dim", 24),
    (r"(.*_)?(hidden|embedding|embed|attn_hidden)_(size|dim)|d_model|n_embd|dim|emb_dim", 32),
    (r"(projection|word_embed_proj|output|text_embed)_dim|pooler_(hidden|output)_size", 32),
    (r"hidden_size_per_layer_input", 8),
    (r"(n_routed|num_local|num|moe_num|n)_experts", 4),
    (r"num_experts_per_tok(en)?|moe_(topk|k|top_k)|top_k(_experts)?|num_selected_experts", 2),
    (r"n_group|topk_group|first_k_dense_replace|num_nextn_predict_layers", 1),
    (r"n_shared_experts|num_shared_experts|moe_num_shared_experts", 1),
    (r"max_(source_|target_|2d_)?position(s|_embeddings)|n_positions|max_seq_len(gth)?|n_ctx", 64),
    (r"sliding_window(_size)?|local_attention|attention_chunk_size|index_topk", 4),
    (r"image_size|pretrain_image_size|input_image_size|window_size", 32),
    (r"patch_size|pixel_size", 8),
    (r"query_pre_attn_scalar", 8),
)  # fmt: skip
#: Of these only the number of layers and words is changed in the last attempt.
FEW = tuple(rule for rule in RULES if rule[1] in (2, WORDS) and "heads" not in rule[0])
#: With positions of three axes, which some configs leave to their model.
THREE = RULES[:-1]
#: Made anew by the config.
LEFT_OUT = (
    "transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path",
    "per_layer_config", "out_features", "out_indices", "_out_features", "_out_indices",
    "stage_names",
)  # fmt: skip
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
HALF = {"layer_types": ["linear_attention", "full_attention"]}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
SPARSE = {"mlp_layer_types": ["dense", "sparse"]}
MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
#: Fields by family that its default config leaves unset, or that fit no rule.
SETTINGS: dict[str, dict[str, Any]] = {
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "granitemoehybrid": {**MAMBA, **HALF},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False,
              "mamba_dt_rank": 4},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_key_value_heads": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], **SPARSE},
    "deepseek_ocr2_text": {**SPARSE, "num_experts_per_tok": 2},
    "deepseek_ocr2": {"text_config": {**SPARSE, "num_experts_per_tok": 2}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8},
    "chameleon": {"vocabulary_map": {"<image>": 90}},
    "wav2vec2-bert": {"feature_projection_input_dim": 80},
    "nemotron": {"num_key_value_heads": 2},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "esm": {"vocab_size": WORDS, "pad_token_id": 0, "mask_token_id": 5},
    "xmod": {"default_language": "en_XX"},
    "ministral": {"head_dim": 8, **MIXED},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "hunyuan_vl_text": {"head_dim": 8},
    "hunyuan_vl": {"text_config": {"head_dim": 8}},
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"], "index_n_heads": 2,
        "index_block_size": 2, "index_topk_blocks": 2},
    "step3p5": {"sliding_window": 4, **MIXED, "rope_parameters": {
        x: {"rope_type": "default", "rope_theta": 1e4} for x in MIXED["layer_types"]}},
    "cohere_compass_text": {"rope_parameters": {
        "full_attention": MROPE, "sliding_attention": MROPE}},
    "glm4v_moe_text": {"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
    "ernie4_5_vl_moe_text": {"rope_parameters": {**MROPE, "mrope_section": [1, 1, 2]}},
    "gemma3n_text": {"num_kv_shared_layers": 0, **MIXED},
    "audio-spectrogram-transformer": {"max_length": 32, "num_mel_bins": 32},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 4},
    "glm5_next_text": {"index_kpool": 2},
    "glm5_next": {"text_config": {"index_kpool": 2}},
}  # fmt: skip
WIDE = ("size", "dim", "width", "rank", "model", "embd", "ff", "inner", "channels")


def families() -> list[str]:
    """Return every ``model_type`` for which transformers has a model, by name."""
    from transformers.models.auto import modeling_auto

    names = {
        name
        for table in dir(modeling_auto)
        if table.endswith("_MAPPING_NAMES")
        for name in getattr(modeling_auto, table)
    }
    return sorted(names)


def classes(family: str) -> list[str]:
    """Return the names of the family's model classes, generating ones first."""
    from transformers.models.auto import modeling_auto

    tables = [f"MODEL_FOR_{name}_MAPPING_NAMES" for name in TABLES] + ["MODEL_MAPPING_NAMES"]
    rest = [x for x in dir(modeling_auto) if x.endswith("_MAPPING_NAMES") and x not in tables]
    found: dict[str, None] = {}
    for table in [*tables, *rest]:
        if table == "CONFIG_MAPPING_NAMES":
            continue
        names = getattr(modeling_auto, table).get(family, ())
        found.update(dict.fromkeys([names] if isinstance(names, str) else names))
    return list(found) or parts(family)


def parts(family: str) -> list[str]:
    """Return the classes of a family that is a part of another, from that one's file."""
    from transformers import CONFIG_MAPPING, PreTrainedModel

    config = CONFIG_MAPPING[family]
    try:
        module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return []
    return [
        name
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, PreTrainedModel)
        if kind.config_class is config and kind.__module__ == module.__name__
        if not name.endswith("PreTrainedModel")
    ]


def class_of(family: str, name: str) -> Any:
    """Return the class of this name."""
    import transformers
    from transformers import CONFIG_MAPPING

    found = getattr(transformers, name, None)
    place = CONFIG_MAPPING[family].__module__.replace("configuration_", "modeling_")
    return found if found is not None else getattr(importlib.import_module(place), name)


def make(family: str) -> nn.Module:
    """Return a tiny model of the family in eval mode, with weights away from their initial values.

    Raises: none of its classes can be made of a shrunk config; the reason is the first attempt's.
    """
    from transformers import CONFIG_MAPPING

    reasons: list[str] = []
    for settings in shrunk(CONFIG_MAPPING[family]()):
        merge(settings, SETTINGS.get(family, {}))
        for name in classes(family)[:4]:
            try:
                torch.manual_seed(0)
                config = CONFIG_MAPPING[family](**settings)
                with torch.device("meta"):
                    size = sum(x.numel() for x in class_of(family, name)(config).parameters())
                if size > LARGEST:
                    raise ValueError(f"{size / 1e6:.0f} M parameters even after shrinking")
                model: nn.Module = class_of(family, name)(config).eval()
                try:
                    stir(model)
                except RuntimeError:  # it may take its features by (frames, bins)
                    model.transposed = True  # type: ignore[assignment]
                    stir(model)
            except Exception as error:
                reasons.append(f"{name}: {short(error)}")
            else:
                return model
    raise RegardError(reasons[0] if reasons else "no transformers class uses its config")


def merge(settings: dict[str, Any], given: dict[str, Any]) -> None:
    """Set the given fields, those of a config in the config one by one."""
    for key, value in given.items():
        inner = settings.get(key)
        if isinstance(value, dict) and isinstance(inner, dict) and key.endswith("config"):
            merge(inner, value)
        else:
            settings[key] = value


def stir(model: nn.Module, by: float = 0.1) -> None:
    """Add noise to the weights, so that the attention depends on the text.

    Raises: the model cannot be run, or its output is not finite.
    """
    before = [x.detach().clone() for x in model.parameters()]
    with torch.no_grad():
        asked = question(model)
        answer(model, asked)
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=by)
        if is_finite(model, asked):
            return
        for x, old in zip(model.parameters(), before, strict=True):
            x.copy_(old)
        if not is_finite(model, asked):
            raise RegardError("it answers numbers that are not finite")


def is_finite(model: nn.Module, asked: dict[str, Tensor]) -> bool:
    """Return whether all outputs are finite."""
    return all(bool(x.isfinite().all()) for x in answer(model, asked).values())


def shrunk(config: Any) -> Iterator[dict[str, Any]]:
    """Yield settings of a smaller config: by constants, by a common factor, or with few layers."""
    given = config.to_dict()
    yield smaller(given, RULES, 0)
    yield smaller(given, THREE, 0)
    yield smaller(given, FEW, 16)
    yield smaller(given, FEW, 1)


def smaller(given: dict[str, Any], rules: tuple[tuple[str, int], ...], over: int) -> dict[str, Any]:
    """Return a config's fields, nested ones too, by the rules; other widths ÷ ``over``."""
    layers = next((given[x] for x in ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
                   if isinstance(given.get(x), int)), 0)  # fmt: skip
    lists = {key: x for key, x in given.items()
             if isinstance(x, list) and layers > 1 and len(x) == layers}  # fmt: skip
    kinds = [tuple(map(str, each)) for each in zip(*lists.values(), strict=True)]
    kept = sorted({kinds.index(x) for x in kinds})[:LAYERS] if lists else [0, 1]
    kept = kept if len(kept) > 1 else [0, 1]
    made: dict[str, Any] = {}
    for key, value in given.items():
        if key in LEFT_OUT or (key == "model_type" and not value):
            continue
        if key in lists:
            made[key] = [value[i] for i in kept]
        elif isinstance(value, dict):
            made[key] = value if key == "id2label" else smaller(value, rules, over)
        else:
            made[key] = size(key, value, rules, over)
            if made[key] == 2 and value == layers and "layer" in key:
                made[key] = len(kept)
    if "mrope_section" in made or ("rope_type" in made and rules is THREE):
        made["mrope_section"] = [2, 1, 1]
    heads = given.get("num_attention_heads")
    if heads is not None and heads == given.get("num_key_value_heads") and over == 0:
        made["num_key_value_heads"] = made["num_attention_heads"]
    return made


def size(key: str, value: Any, rules: tuple[tuple[str, int], ...], over: int) -> Any:
    """Return a smaller value of a config's field."""
    if re.fullmatch(r".*_token_(id|index)", key):
        few = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
        return few.get(key.rpartition("_token_")[0], value if value is None else 90)
    if isinstance(value, (list, tuple)) and over > 1 and is_wide(key):
        return type(value)(max(x // over, 1) if isinstance(x, int) else x for x in value)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    for pattern, small in rules:
        if re.fullmatch(pattern, key):
            return min(small, value) if value > 0 else value
    return max(value // over, 1) if over > 1 and is_wide(key) and value >= over else value


def is_wide(key: str) -> bool:
    """Return whether a field is a width, by its name."""
    words = key.split("_")
    return words[-1] in WIDE and not {"image", "patch", "kernel", "vocab", "batch"} & set(words)


def question(model: Any, padded: str = "") -> dict[str, Tensor]:
    """Return inputs by the names in the model's forward, padded on the "left", "right" or not."""
    torch.manual_seed(1)
    takes = inspect.signature(model.forward).parameters
    config = model.config
    asked: dict[str, Tensor] = {}
    if "input_ids" in takes:
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        if padded:
            mask[1, slice(3) if padded == "left" else slice(-3, None)] = 0
        words = torch.randint(4, 80, (BATCH, LENGTH))
        asked["input_ids"] = words * mask
        if "attention_mask" in takes:
            asked["attention_mask"] = mask
    if "musicgen" in config.model_type and hasattr(config, "num_codebooks"):
        asked["input_ids"] = asked["input_ids"].repeat_interleave(config.num_codebooks, 0)
    if "spatial_shapes" in takes and "siglip" in config.model_type:
        vision = getattr(config, "vision_config", config)
        patch = torch.randn(BATCH, 16, vision.num_channels * vision.patch_size**2)
        asked |= {"pixel_values": patch, "spatial_shapes": torch.tensor([[4, 4]] * BATCH)}
        if "pixel_attention_mask" in takes:
            asked["pixel_attention_mask"] = torch.ones(BATCH, 16, dtype=torch.long)
        return asked
    if "bbox" in takes:
        asked["bbox"] = torch.randint(0, 30, (BATCH, LENGTH, 4)).sort(-1).values
    if "decoder_input_ids" in takes:
        asked["decoder_input_ids"] = torch.randint(4, 80, (BATCH, 5))
    if "flattened_patches" in takes:
        vision = getattr(config, "vision_config", config)
        patch = torch.randn(BATCH, LENGTH, vision.patch_embed_hidden_size)
        places = torch.arange(2 * LENGTH).reshape(1, LENGTH, 2).expand(BATCH, -1, -1)
        return {"flattened_patches": torch.cat([places.float(), patch], -1), **asked}
    if "grid_thw" in takes:
        return patches(next(x for x in takes if x != "self"), config)
    if "past_values" in takes and hasattr(config, "context_length"):
        channels = getattr(config, "num_input_channels", 1)
        return {"past_values": torch.randn(BATCH, config.context_length, channels)}
    main = getattr(model, "main_input_name", "")
    signals = [x for x in ("pixel_values", "input_values", "input_features") if x in takes]
    if main in signals or ("input_ids" not in takes and signals):
        main = main if main in signals else signals[0]
        asked[main] = signal(main, config, transposed=getattr(model, "transposed", False))
    elif "pixel_values" in takes and hasattr(config, "projection_dim"):
        asked["pixel_values"] = signal("pixel_values", config)
    if not asked:
        raise RegardError(f"it needs {main or 'nothing'}, which this benchmark does not generate")
    return asked


def patches(name: str, config: Any) -> dict[str, Tensor]:
    """Return two pictures of 4 × 4 patches in sequence."""
    sizes = (getattr(config, key, 1) for key in ("temporal_patch_size", "patch_size", "patch_size"))
    channels = int(getattr(config, "num_channels", 0) or getattr(config, "in_channels", 3))
    width = channels * math.prod(sizes)
    grid = torch.tensor([[1, 4, 4]] * BATCH)
    return {name: torch.randn(BATCH * 16, width), "grid_thw": grid}


def signal(name: str, config: Any, transposed: bool = False) -> Tensor:
    """Return pictures, sound or its features, these by (bins, frames), or transposed."""
    vision = getattr(config, "vision_config", config)
    if name == "input_values":
        if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
            return torch.randn(BATCH, config.max_length, config.num_mel_bins)
        return torch.randn(BATCH, 2000)
    if name == "input_features":
        inner = getattr(config, "encoder_config", None) or getattr(config, "audio_config", config)
        bins = int(getattr(inner, "num_mel_bins", 0) or getattr(inner, "feature_size", 80))
        frames = 2 * int(getattr(inner, "max_source_positions", 32))
        size = (frames, bins) if transposed else (bins, frames)
        return torch.randn(BATCH, *size)
    sides = getattr(vision, "image_size", 32)
    high, wide = (sides, sides) if isinstance(sides, int) else list(sides)[-2:]
    number = getattr(vision, "num_frames", None)
    times = (number,) if isinstance(number, int) else ()
    return torch.randn(BATCH, *times, getattr(vision, "num_channels", 3), high, wide)


def answer(model: Any, asked: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the model's float outputs by name, without caches and attentions."""
    found = model(**asked, return_dict=True)
    said = {
        key: x
        for key, x in found.items()
        if isinstance(x, Tensor) and x.is_floating_point() and "attentions" not in key
    }
    if not said:
        raise RegardError("its output has no float tensor")
    return said


def short(error: BaseException) -> str:
    """Return an error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:3])
    return f"{type(error).__name__}: {text}"[:160] if text else type(error).__name__
