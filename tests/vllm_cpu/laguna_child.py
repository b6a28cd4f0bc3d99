"""Run in a process of its own, with the selector on: what a live Laguna layer does when the contract is broken.

``python laguna_child.py layer|graph|lora|clash MODEL`` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

from moegauge import errors
from moegauge.adapters.vllm import laguna_m8
from moegauge.adapters.vllm.laguna_served import engine, worker_of

DECODE = {"attention": SimpleNamespace(max_query_len=1, num_actual_tokens=8)}
PROMPT = {"attention": SimpleNamespace(max_query_len=8, num_actual_tokens=8)}


class OtherRunner(MoERunner):  # type: ignore[misc]
    pass


def put(place: Any, name: str, value: Any) -> Callable[[Any], None]:
    return lambda runner: setattr(place(runner), name, value)


def surroundings(**changes: Any) -> Callable[[Any], None]:
    def change(runner: Any) -> None:
        runner.lane.environment = replace(runner.lane.environment, **changes)

    return change


CASES: dict[str, Callable[[Any], None]] = {
    "nothing": lambda runner: None,
    "dbo": put(lambda one: one, "enable_dbo", True),
    "scale": put(lambda one: one, "routed_scaling_factor", 2.0),
    "transform": put(lambda one: one, "routed_output_transform", torch.nn.Identity()),
    "all-reduce": put(lambda one: one.moe_config, "skip_final_all_reduce", True),
    "tensor parallel": put(lambda one: one.moe_config.moe_parallel_config, "tp_size", 4),
    "weighted": put(lambda one: one.routed_experts, "apply_router_weight_on_input", True),
    "no kernel": surroundings(kernel_present=False),
    "no place to say so": surroundings(combined_output=False),
    "selector of another platform": surroundings(selectors={"VLLM_XPU_LAGUNA_M8_GATHER_FINALIZE": "1"}),
    "adapters": lambda runner: setattr(runner.lane, "config", with_lora(runner.lane.config)),
}


def with_lora(config: Any) -> Any:
    return SimpleNamespace(
        model_config=config.model_config, parallel_config=config.parallel_config, lora_config=object()
    )


def outcome(runner: Any, config: Any, *, tokens: int = 8, metadata: Any = DECODE, **more: Any) -> dict[str, Any]:
    """Call the layer and say which arm ran or which predicate was named, and what ran at all."""
    random = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, 3072, generator=random).bfloat16()
    logits = torch.randn(tokens, 16, generator=random)
    ran: list[str] = []
    hook = runner.shared_experts._layer.register_forward_hook(lambda *_: ran.append("shared"))
    rows = laguna_m8.unweighted_rows

    def watched(*args: Any) -> Any:
        ran.append("rows")
        return rows(*args)

    laguna_m8.unweighted_rows = watched
    before = dict(runner.lane.launches)
    try:
        with set_forward_context(metadata, config, num_tokens=tokens):
            runner(hidden, logits, **more)
        predicate = None
    except laguna_m8.ContractBroken as error:
        predicate = error.predicate
    finally:
        hook.remove()
        laguna_m8.unweighted_rows = rows
    launched = {name: number - before.get(name, 0) for name, number in runner.lane.launches.items()}
    return {
        "predicate": predicate,
        "ran": ran,
        "launched": {name: number for name, number in launched.items() if number},
    }


def layer(model: Path) -> dict[str, Any]:
    llm = engine(model)  # held: the model goes with it
    worker = worker_of(llm)
    config = worker.vllm_config
    runner = next(one for one in worker.model_runner.model.modules() if isinstance(one, MoERunner))
    found: dict[str, Any] = {}
    for name, change in CASES.items():
        places = (runner, runner.moe_config, runner.moe_config.moe_parallel_config, runner.routed_experts, runner.lane)
        kept = [dict(vars(one)) for one in places]
        modules = dict(runner._modules)
        change(runner)
        found[name] = outcome(runner, config)
        for one, values in zip(places, kept, strict=True):
            vars(one).update(values)
        runner._modules.clear()
        runner._modules.update(modules)
    found["more arguments"] = outcome(runner, config, input_ids=torch.arange(8))
    found["seven tokens"] = outcome(runner, config, tokens=7)
    found["a prompt of eight"] = outcome(runner, config, metadata=PROMPT)
    found["no metadata"] = outcome(runner, config, metadata=None)
    found["nothing again"] = outcome(runner, config)
    lane, runner.lane = runner.lane, None
    with set_forward_context(DECODE, config, num_tokens=8):
        runner(torch.zeros(8, 3072).bfloat16(), torch.zeros(8, 16))
    found["a draft's layer"] = dict(lane.launches)
    return found


def refused(start: Callable[[], object]) -> dict[str, str]:
    try:
        start()
    except errors.MisuseError as error:
        return {"where": error.where, "expected": error.expected, "found": error.found}
    return {}


def main() -> None:
    what, model = sys.argv[1], Path(sys.argv[2])
    if what == "layer":
        found = layer(model)
    elif what == "clash":
        MoERunner.register_oot(name="MoERunner")(OtherRunner)
        found = refused(lambda: engine(model))
    else:
        found = refused(
            lambda: engine(model, **{"graph": {"enforce_eager": False}, "lora": {"enable_lora": True}}[what])
        )
    sys.stdout.write(f"\nfound {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
