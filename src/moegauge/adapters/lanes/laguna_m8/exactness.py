"""Every kernel of the lane on the whole corpus, word by word against the host oracle.

    python -m moegauge.adapters.lanes.laguna_m8.exactness --device cuda --out FILE
    TRITON_INTERPRET=1 python -m moegauge.adapters.lanes.laguna_m8.exactness --device cpu --block 1024

Outputs are filled with a poison word before each launch, so a word that nobody wrote differs. Prints a table, writes it
as JSON where asked, and ends with status 1 where any word differs. This is a check of kernels, not a lane's verdict.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from moegauge.adapters.lanes.laguna_m8 import launch
from moegauge.adapters.lanes.laguna_m8.builds import Tile
from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.fixture import Fixture, FixtureSpec
from moegauge.lanes.laguna_m8.sequence import FINAL, NUM_ROWS, ROUTED, SCALED, TOP_K, gather_finalize, words_of
from moegauge.numerics.words import UInt16Array

POISON = 0x7FA5
BOUNDARY_OF = {"routed": ROUTED, "scaled": SCALED, "out": FINAL}

Outputs = dict[str, Tensor]


@dataclass
class Count:
    """What one kernel gave at one boundary.

    Attributes:
        num_words: words compared.
        num_different: words unlike the oracle's.
        first: fixture, index and both words of the first difference.
    """

    num_words: int = 0
    num_different: int = 0
    first: str | None = None
    fixtures: set[str] = field(default_factory=set)

    def join(self, other: "Count") -> None:
        """Take in what the same kernel gave on other, later fixtures."""
        self.num_words += other.num_words
        self.num_different += other.num_different
        self.first = self.first or other.first
        self.fixtures |= other.fixtures

    def add(self, fixture: str, found: UInt16Array, expected: UInt16Array) -> None:
        """Compare the words of one fixture."""
        different = np.argwhere(found != expected)
        self.num_words += expected.size
        self.num_different += len(different)
        self.fixtures.add(fixture)
        if len(different) and self.first is None:
            index = tuple(int(one) for one in different[0])
            self.first = f"{fixture} {list(index)}: 0x{expected[index]:04X} expected, 0x{found[index]:04X} found"


@dataclass(frozen=True)
class Inputs:
    """Tensors of a fixture on the device."""

    rows: Tensor
    weights: Tensor
    shared: Tensor
    route_map: Tensor


def run(device: str, specs: Sequence[FixtureSpec], block: int | None) -> dict[str, Count]:
    """Counts by ``<kernel> <boundary>``."""
    counts: dict[str, Count] = {}
    for spec in specs:
        fixture = spec.build()
        oracle = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
        inputs = _inputs(fixture, device)
        for kernel, call in _calls(block).items():
            outputs = {name: _poisoned(device) for name in BOUNDARY_OF}
            for name in call(inputs, outputs):
                count = counts.setdefault(f"{kernel} {BOUNDARY_OF[name]}", Count())
                count.add(spec.name, _words(outputs[name]), oracle[BOUNDARY_OF[name]])
    return counts


def run_in_processes(specs: Sequence[FixtureSpec], block: int | None) -> dict[str, Count]:
    """The same on the host, in a process for each processor, since the interpreter uses one."""
    num = len(os.sched_getaffinity(0))
    names = [one.name for one in specs]
    size = max(1, -(-len(names) // num))
    parts = [names[begin : begin + size] for begin in range(0, len(names), size)]
    counts: dict[str, Count] = {}
    with ProcessPoolExecutor(num, mp_context=get_context("spawn")) as pool:
        for part in pool.map(_part, parts, [block] * len(parts)):
            for name, count in part.items():
                counts.setdefault(name, Count()).join(count)
    return counts


def _part(names: Sequence[str], block: int | None) -> dict[str, Count]:
    torch.set_num_threads(1)
    wanted = set(names)
    return run("cpu", [one for one in corpus() if one.name in wanted], block)


def _calls(block: int | None) -> dict[str, Callable[[Inputs, Outputs], tuple[str, ...]]]:
    """Each launches one kernel (the second of the pair: two) and names the outputs that it wrote."""
    tile: dict[str, Any] = {} if block is None else {"tile": Tile(block, 4)}

    def gather(inputs: Inputs, outputs: Outputs) -> tuple[str, ...]:
        launch.moe_gather(outputs["routed"], inputs.rows, inputs.weights, inputs.route_map, **tile)
        return ("routed",)

    def gather_canonical(inputs: Inputs, outputs: Outputs) -> tuple[str, ...]:
        launch.moe_gather(outputs["routed"], inputs.rows, inputs.weights, **tile)
        return ("routed",)

    def pair(inputs: Inputs, outputs: Outputs) -> tuple[str, ...]:
        gather(inputs, outputs)
        launch.scale_add(outputs["out"], inputs.shared, outputs["routed"], **tile)
        return ("out",)

    def candidate(inputs: Inputs, outputs: Outputs) -> tuple[str, ...]:
        launch.gather_finalize(outputs["out"], inputs.rows, inputs.weights, inputs.shared, **tile)
        return ("out",)

    def diagnostic(inputs: Inputs, outputs: Outputs) -> tuple[str, ...]:
        launch.gather_finalize_diagnostic(
            **outputs, rows=inputs.rows, weights=inputs.weights, shared=inputs.shared, **tile
        )
        return ("routed", "scaled", "out")

    return {
        "moe_gather by map": gather,
        "moe_gather": gather_canonical,
        "moe_gather and scale_add": pair,
        "gather_finalize": candidate,
        "gather_finalize_diagnostic": diagnostic,
    }


def _inputs(fixture: Fixture, device: str) -> Inputs:
    return Inputs(
        rows=_bf16(fixture.rows, device),
        weights=torch.from_numpy(fixture.weights.view(np.float32).copy()).to(device),
        shared=_bf16(fixture.shared, device),
        route_map=torch.arange(NUM_ROWS, dtype=torch.int32, device=device).view(-1, TOP_K),
    )


def _bf16(words: UInt16Array, device: str) -> Tensor:
    return torch.from_numpy(words.copy()).view(torch.bfloat16).to(device)


def _poisoned(device: str) -> Tensor:
    return _bf16(np.full((8, 3072), POISON, dtype=np.uint16), device)


def _words(tensor: Tensor) -> UInt16Array:
    return np.asarray(tensor.cpu().view(torch.uint16).numpy())


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", required=True)
    parser.add_argument("--block", type=int, help="columns of a program; each kernel's own without it")
    parser.add_argument("--families", nargs="*", help="families of fixtures; all without it")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    specs = [one for one in corpus() if given.families is None or one.family in given.families]
    on_host = given.device == "cpu"
    counts = run_in_processes(specs, given.block) if on_host else run(given.device, specs, given.block)
    machine = torch.cuda.get_device_name() if given.device.startswith("cuda") else platform.machine()
    report = {
        "machine": machine,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "num_fixtures": len(specs),
        "kernels": {
            name: {"num_words": one.num_words, "num_different": one.num_different, "first": one.first}
            for name, one in counts.items()
        },
    }
    text = json.dumps(report, indent=1) + "\n"
    sys.stdout.write(text)
    if given.out is not None:
        given.out.write_text(text)
    return 1 if not counts or any(one.num_different for one in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
