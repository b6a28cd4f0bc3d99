"""Rows of the second matrix product before weights and sum: what vLLM computes inside its experts and does not return.

Upstream has no such output. On a CUDA device ``TritonExperts`` runs its two products as ever (the same sorted routes,
tiles and launches), told not to multiply by the weights, and the sum behind them is left out. On the host one operation
does everything, so each route is given to it as a token of its own, with one expert.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

TRITON_EXPERTS = ("TritonExperts",)
HOST_EXPERTS = ("CPUUnquantizedExperts", "X86CPUUnquantizedExperts")


def gives_rows(layer: Any) -> bool:
    """Whether rows can be had from a ``RoutedExperts``: unquantized weights, and experts that are known here."""
    experts = getattr(getattr(layer.quant_method, "moe_kernel", None), "fused_experts", None)
    known = type(experts).__name__ in TRITON_EXPERTS + HOST_EXPERTS
    return (
        experts is not None and known and experts.quant_dtype is None and not getattr(experts, "_use_zentorch", False)
    )


def unweighted_rows(layer: Any, hidden_states: Tensor, topk_ids: Tensor) -> Tensor:
    """Row token x top_k + slot, BF16 [tokens x top_k, hidden].

    Args:
        layer: vLLM's RoutedExperts, for which ``gives_rows`` holds.
        hidden_states: [tokens, hidden].
        topk_ids: [tokens, top_k].
    """
    experts = layer.quant_method.moe_kernel.fused_experts
    tokens, top_k = topk_ids.shape
    if type(experts).__name__ in HOST_EXPERTS:
        rows = torch.empty(tokens * top_k, hidden_states.shape[1], dtype=hidden_states.dtype)
        repeated = hidden_states.repeat_interleave(top_k, dim=0)
        _apply(experts, layer, repeated, topk_ids.reshape(-1, 1).contiguous(), rows)
        return rows
    taken: list[Tensor] = []
    unsummed = copy.copy(experts)
    unsummed.moe_sum = lambda rows, _: taken.append(rows)
    _apply(unsummed, layer, hidden_states, topk_ids, torch.empty_like(hidden_states))
    (found,) = taken
    return found.view(tokens * top_k, hidden_states.shape[1])


def _apply(experts: Any, layer: Any, hidden_states: Tensor, topk_ids: Tensor, output: Tensor) -> None:
    w1, w2 = layer.w13_weight, layer.w2_weight
    local, tokens, width, hidden, top_k = experts.moe_problem_size(hidden_states, w1, w2, topk_ids)
    shapes = experts.workspace_shapes(
        tokens, width, hidden, top_k, layer.global_num_experts, local, None, layer.activation
    )
    made = [torch.empty(shape, dtype=hidden_states.dtype, device=hidden_states.device) for shape in shapes[:2]]
    type(experts).apply(  # of the class: a recorder may stand before the object's own
        experts,
        output=output,
        hidden_states=hidden_states,
        w1=w1,
        w2=w2,
        topk_weights=torch.ones(topk_ids.shape, dtype=torch.float32, device=topk_ids.device),
        topk_ids=topk_ids,
        activation=layer.activation,
        global_num_experts=layer.global_num_experts,
        expert_map=layer.expert_map,
        a1q_scale=None,
        a2_scale=None,
        workspace13=made[0],
        workspace2=made[1],
        expert_tokens_meta=None,
        apply_router_weight_on_input=True,
    )
