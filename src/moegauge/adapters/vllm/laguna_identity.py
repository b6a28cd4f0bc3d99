"""Whether lane laguna_m8 changes what a real vLLM engine serves: four engines, one after another, word by word.

    python -m moegauge.adapters.vllm.laguna_identity --out FILE [--model NAME]

The engines: vLLM without the plugin; with the plugin and the selector off; with it on, the incumbent pair; with it on,
the candidate. The two first have to give the same words, and the two last have to. Stock vLLM weights its rows before
they are summed, so it is a third path, and how far it is from the lane's is reported and decides nothing. Runs on the
platform that it finds, eagerly; writes what it saw as JSON, and ends with status 1 where a check does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moegauge.adapters.vllm.laguna_m8_settings import ARM
from moegauge.adapters.vllm.models import write_checkpoint, write_config
from moegauge.evidence.digest import record_digest
from moegauge.lanes.laguna_m8.contract import CONTRACTS
from moegauge.lanes.laguna_m8.sequence import NUM_TOKENS

MODEL = "tiny-laguna-3072"
NO_PLUGIN, OFF, INCUMBENT, CANDIDATE = "no plugin", "off", "incumbent", "candidate"
ENGINES = (NO_PLUGIN, OFF, INCUMBENT, CANDIDATE)
LAUNCHES = {INCUMBENT: {"moe_gather": 1, "scale_add": 1}, CANDIDATE: {"gather_finalize": 1}}
"""Launches of the lane in a layer at each treated step."""
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1",
}


def environment_of(engine: str, platform: str) -> dict[str, str]:
    """Variables of one engine, besides this process's own."""
    selector = CONTRACTS["cuda" if platform == "cuda" else "cpu"].selector
    if engine == NO_PLUGIN:
        return _ENVIRONMENT | {"VLLM_PLUGINS": ""}
    chosen = {} if engine == OFF else {selector: "1", ARM: engine}
    return _ENVIRONMENT | {"VLLM_PLUGINS": "moegauge"} | chosen


def serve_all(model: str, folder: Path) -> dict[str, dict[str, Any]]:
    """What each engine gave; its logits stay in the folder.

    Raises:
        subprocess.CalledProcessError: an engine did not end well; its own words went to standard error.
    """
    platform = "cuda" if torch.cuda.is_available() else "cpu"
    if platform == "cpu":
        write_checkpoint(model, folder / "model", seed=0)
    else:
        write_config(model, folder / "model")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MOEGAUGE_", "VLLM_"))}
    found = {}
    for engine in ENGINES:
        arrays, report = folder / f"{engine}.npz", folder / f"{engine}.json"
        command = [sys.executable, "-m", "moegauge.adapters.vllm.laguna_served", str(folder / "model")]
        subprocess.run(  # noqa: S603 - this interpreter, this package
            [*command, str(arrays), str(report)], env=inherited | environment_of(engine, platform), check=True
        )
        found[engine] = json.loads(report.read_text())
    return found


def compared(left: str, right: str, found: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Logits of two engines as words, step by step, and their tokens."""
    paths = (folder / f"{left}.npz", folder / f"{right}.npz")
    with np.load(paths[0], allow_pickle=False) as one, np.load(paths[1], allow_pickle=False) as other:
        same_steps = [one[name].shape for name in one.files] == [other[name].shape for name in other.files]
        pairs = [(one[name], other[name]) for name in one.files] if same_steps else []
    return {
        "engines": [left, right],
        "same_steps": same_steps,
        "num_words": sum(first.size for first, _ in pairs),
        "num_different": sum(int((first != second).sum()) for first, second in pairs),
        "same_tokens": found[left]["tokens"] == found[right]["tokens"],
    }


def treated_calls(layer: Mapping[str, Any]) -> int:
    """Calls of a layer that took the lane's arm."""
    return sum(int(call[3]) for call in layer["calls"] if call[2] == "treatment")


def checks(found: Mapping[str, Mapping[str, Any]], comparisons: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Everything that has to hold, by name."""
    held = {
        f"{name}: same words and tokens": one["same_tokens"] and one["num_words"] > 0 and one["num_different"] == 0
        for name, one in comparisons.items()
        if name != "lane against stock"
    }
    held["off: nothing is replaced or patched"] = (
        found[OFF]["runners"] == ["MoERunner"]
        and found[OFF]["replaced_layers"] == found[NO_PLUGIN]["replaced_layers"]
        and not found[OFF]["plugin_patched_worker"]
    )
    for engine, launches in LAUNCHES.items():
        layers, oracle = found[engine]["layers"].values(), found[engine]["oracle"]
        treated = [treated_calls(one) for one in layers]
        held[f"{engine}: every decode step of {NUM_TOKENS} rows was treated, and no other"] = bool(treated) and all(
            (call[2] == "treatment") == (call[0] == "decode" and call[1] == NUM_TOKENS)
            for one in layers
            for call in one["calls"]
        )
        held[f"{engine}: launches of a layer at a treated step"] = min(treated, default=0) > 0 and all(
            one["launches"] == {name: number * calls for name, number in launches.items()}
            for one, calls in zip(layers, treated, strict=True)
        )
        held[f"{engine}: the shared output was read once a treated call"] = bool(treated) and all(
            one["shared_reads"] == calls for one, calls in zip(layers, treated, strict=True)
        )
        held[f"{engine}: every treated output is the oracle's"] = (
            oracle.get("calls", 0) == sum(treated) > 0 and oracle["different"] == 0
        )
        if found[engine]["device"] != "host":
            held[f"{engine}: kernels that the device ran"] = found[engine]["device_launches"] == {
                name: number * sum(treated) for name, number in launches.items()
            }
    return held


def report_of(model: str, found: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """The whole evidence."""
    comparisons = {
        "off against no plugin": compared(OFF, NO_PLUGIN, found, folder),
        "candidate against incumbent": compared(CANDIDATE, INCUMBENT, found, folder),
        "lane against stock": compared(INCUMBENT, OFF, found, folder),
    }
    held = checks(found, comparisons)
    return {
        "model": model,
        "vllm": found[OFF]["vllm"],
        "torch": found[OFF]["torch"],
        "device": found[OFF]["device"],
        "endpoint_authorized": False,
        "passed": all(held.values()),
        "checks": held,
        "comparisons": comparisons,
        "engines": {
            engine: {name: value for name, value in one.items() if name not in {"vllm", "torch", "device", "tokens"}}
            | {"tokens_digest": record_digest(one["tokens"])}
            for engine, one in found.items()
        },
    }


def main() -> int:
    """Serve, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL, help="a built-in Laguna; weights are random")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = report_of(given.model, serve_all(given.model, Path(folder)), Path(folder))
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    for name, held in report["checks"].items():
        sys.stdout.write(f"{'held  ' if held else 'FAILED'}  {name}\n")
    for name, one in report["comparisons"].items():
        sys.stdout.write(f"{name}: {one['num_different']} of {one['num_words']} words differ\n")
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
