"""Models that need no download: shapes of published ones, with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN3 = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "head_dim": 128,
}
BUILT_IN: dict[str, dict[str, Any]] = {
    "tiny-qwen3-moe": _COMMON
    | _QWEN3
    | {
        "vocab_size": 1024,
        "hidden_size": 256,
        "intermediate_size": 512,
        "moe_intermediate_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_experts": 32,
        "num_experts_per_tok": 4,
    },
    "qwen3-30b-a3b": _COMMON
    | _QWEN3
    | {
        "vocab_size": 32768,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "rope_theta": 1e6,
        "use_sliding_window": False,
    },
    "laguna-12": _COMMON
    | {
        "architectures": ["LagunaForCausalLM"],
        "model_type": "laguna",
        "vocab_size": 32768,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_hidden_layers": 12,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "gating": True,
        "num_experts": 256,
        "num_experts_per_tok": 10,
        "norm_topk_prob": True,
        "moe_routed_scaling_factor": 2.5,
        "mlp_only_layers": [0],
        "decoder_sparse_step": 1,
        "rope_theta": 1e6,
    },
    "tiny-laguna-3072": _COMMON
    | {
        "architectures": ["LagunaForCausalLM"],
        "model_type": "laguna",
        "vocab_size": 512,
        "hidden_size": 3072,
        "intermediate_size": 128,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "gating": True,
        "num_experts": 16,
        "num_experts_per_tok": 10,
        "norm_topk_prob": True,
        "moe_routed_scaling_factor": 2.5,
        "mlp_only_layers": [0],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["full_attention", "full_attention", "full_attention"],
        "decoder_sparse_step": 1,
    },
}
"""Name -> configuration. The vocabularies of the large ones are cut to 32768: it is no part of a MoE layer."""


def write_config(name: str, folder: Path, *, num_layers: int | None = None) -> None:
    """Write config.json of a built-in model, with another number of layers if one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    layers = {} if num_layers is None else {"num_hidden_layers": num_layers}
    (folder / "config.json").write_text(json.dumps(BUILT_IN[name] | layers, indent=1))


def write_checkpoint(name: str, folder: Path, *, seed: int, num_layers: int | None = None) -> None:
    """Write a random-initialised checkpoint of a built-in model (a small one: all of it passes through memory)."""
    import torch  # noqa: PLC0415 - the large shapes need neither
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    write_config(name, folder, num_layers=num_layers)
    torch.manual_seed(seed)
    config = AutoConfig.from_pretrained(folder)
    config.initializer_range = 0.08
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
