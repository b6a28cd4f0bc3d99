"""Profilers' files: a real one of an H200, and every file that is no evidence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from lane_builder import registration
from moegauge import errors
from moegauge.adapters.counters import columns
from moegauge.adapters.counters.ncu import read_ncu, write_ncu
from moegauge.adapters.counters.readers import READERS, WRITERS
from moegauge.adapters.counters.torch_profiler import profile_bytes, read_torch_profile
from moegauge.adapters.counters.unitrace import read_unitrace
from moegauge.gate.counters import CounterTable, counter_failures
from moegauge.gate.simulation import drifted

PROFILES = Path(__file__).parent / "profiles"
METRICS = (
    "dram__bytes_read.sum",
    "gpu__time_duration.sum",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__sass_inst_executed_op_local.sum",
)


def ncu(name: str) -> bytes:
    return (PROFILES / f"ncu-h200-{name}.csv").read_bytes()


def test_a_real_profile_is_read_exactly() -> None:
    table = read_ncu(ncu("incumbent"), METRICS, where="f")
    assert table.kernels == ("gather_k", "scale_add_k") * 5
    assert table.metrics["dram__bytes_read.sum"][:2] == (497_152, 100_864)  # written "497,152"
    assert table.metrics[METRICS[2]][:2] == (Fraction("37.21"), Fraction("30.50"))
    assert (table.units["dram__bytes_read.sum"], table.units["gpu__time_duration.sum"]) == ("byte", "ns")


def test_the_counters_of_a_real_pair_under_registered_rules() -> None:
    """One launch reads less than two; its share of active cycles lies above the weighted mean of the two."""
    protocol = registration(
        subjects__0__incumbent={"description": "", "kernels": ["gather_k", "scale_add_k"], "launches_per_cycle": 2},
        subjects__0__candidate={"description": "", "kernels": ["fused_k"], "launches_per_cycle": 1},
        counters={
            "reader": "ncu",
            "cache_control": "all",
            "discarded_cycles": 1,
            "num_cycles": 4,
            "quantities": [
                {"name": "read", "metrics": [METRICS[0]], "unit": "byte", "over_launches": "sum_per_cycle"},
                {
                    "name": "active",
                    "metrics": [METRICS[2]],
                    "unit": "%",
                    "over_launches": "weighted_mean",
                    "weight": METRICS[1],
                },
            ],
            "rules": [
                {"quantity": "read", "rule": "at_most_ratio", "limit": "1.02"},
                {"quantity": "active", "rule": "at_most_fall", "limit": "0.5"},
            ],
            "zero_metrics": [METRICS[3]],
        },
    )
    wanted = protocol.counters.metric_names()
    left, right = (read_ncu(ncu(name), wanted, where=name) for name in ("incumbent", "candidate"))
    figures, reasons = counter_failures(
        protocol.counters, protocol.subjects[0], {"a1": left, "b1": right, "b2": right, "a2": left}
    )
    assert reasons == []
    read = figures[0]
    # by hand: launches 2 to 9 are 4 x gather and 4 x scale_add; the candidate's are its launches 1 to 4
    assert Fraction(read.incumbent) == Fraction(497_152 * 3 + 497_408 + 101_120 * 4, 4)
    assert Fraction(read.candidate) == Fraction(546_304 + 546_048 + 545_792 * 2, 4)
    share = (
        Fraction("36.34") * 2592 + Fraction("34.46") * 2496 + Fraction("33.01") * 2624 + Fraction("34.54") * 2528
        + Fraction("35.58") * 2592 + Fraction("30.46") * 2240 + Fraction("39.56") * 3104 + Fraction("32.47") * 2464
    ) / (2592 + 2496 + 2624 + 2528 + 2592 + 2240 + 3104 + 2464)  # fmt: skip
    assert Fraction(figures[3].incumbent) == share


# --- ncu, refused -----------------------------------------------------------------------------------------------------


def refused(action: Callable[[], object], kind: type[errors.EvidenceError], *words: str) -> None:
    with pytest.raises(kind) as caught:
        action()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def edited(old: str, new: str, count: int = -1) -> bytes:
    data = ncu("candidate").decode()
    assert old in data
    return data.replace(old, new, count).encode()


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", errors.MissingFile, "The profiler wrote nothing"),
        (b"\xff\xfe", errors.MalformedFile, "text in UTF-8"),
        (b"==PROF== Connected to process 1\n", errors.Incomplete, "No kernel was profiled"),
        (b"==ERROR== Failed to access the counters\n", errors.MalformedFile, "ncu failed; its message says why"),
        (edited('"Kernel Name"', '"Function Name"'), errors.MalformedFile, "one column 'Kernel Name'"),
        (edited('"ID"', '"Metric Name"'), errors.MalformedFile, "Run ncu with --csv --page raw"),
        (edited('"CC"', '"ID"'), errors.MalformedFile, "2 among"),
        (edited('"3","1192"', '"2","1192"'), errors.Inconsistent, "Launches are missing or out of order"),
        (edited('"3","1192"', '"4","1192"'), errors.Inconsistent, "the next after 2"),
        (edited('"3","1192"', '"x","1192"'), errors.MalformedFile, "a launch number"),
        (edited('"546,304"', '"546.304,0"', 1), errors.MalformedFile, "Run the profiler with the C locale"),
        (edited('"546,304"', '"fast"', 1), errors.MalformedFile, "'fast'"),
        (ncu("candidate")[:-30], errors.MalformedFile, "CSV"),
    ],
)
def test_a_file_of_ncu_that_is_no_evidence_is_refused(
    data: bytes, kind: type[errors.EvidenceError], words: str
) -> None:
    refused(lambda: read_ncu(data, METRICS, where="f"), kind, words)


def test_a_row_that_was_cut_between_columns_is_refused() -> None:
    lines = ncu("candidate").decode().splitlines()
    lines[-1] = lines[-1].rsplit(",", 3)[0]
    refused(lambda: read_ncu("\n".join(lines).encode(), METRICS, where="f"), errors.MalformedFile, "columns")


def test_a_file_without_its_row_of_units_is_refused() -> None:
    lines = [line for line in ncu("candidate").decode().splitlines() if not line.startswith('"",')]
    refused(lambda: read_ncu("\n".join(lines).encode(), METRICS, where="f"), errors.MalformedFile, "a row of units")


def test_a_file_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_BYTES", 10)
    refused(lambda: read_ncu(ncu("candidate"), METRICS, where="f"), errors.LimitExceeded, "at most 10 bytes")


def test_more_launches_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_LAUNCHES", 3)
    refused(lambda: read_ncu(ncu("candidate"), METRICS, where="f"), errors.LimitExceeded, "at most 3 launches")


def test_an_empty_cell_is_no_value_and_never_0() -> None:
    table = read_ncu(edited('"546,304"', '"n/a"', 1), METRICS, where="f")
    assert table.metrics["dram__bytes_read.sum"][0] is None


def test_a_metric_that_is_not_there_is_no_column() -> None:
    assert "no__such.sum" not in read_ncu(ncu("candidate"), (*METRICS, "no__such.sum"), where="f").metrics


# --- unitrace ---------------------------------------------------------------------------------------------------------

KERNEL = "moe::Gather<bf16, 10, 8>[SIMD32 {8; 1; 1} {256; 1; 1}]"
UNITRACE = f"""=== Device #0 Metrics ===

Kernel, GlobalInstanceId, GpuTime[ns], XVE_STALL[%], GPU_MEMORY_BYTE_READ[bytes]
"{KERNEL}", 7, 2700, 41.5, 497152
"{KERNEL}", 9, 2650, 40.25, 497152

=== Kernel Properties ===
Kernel, Compiled, SIMD, Spill Memory Per Thread
"{KERNEL}", AOT, 32, 0
"""


def test_unitrace_metrics_have_their_units_and_properties_are_the_same_in_every_launch() -> None:
    table = read_unitrace(UNITRACE.encode(), ("XVE_STALL", "Spill Memory Per Thread"), where="f")
    assert table.kernels == (KERNEL, KERNEL)
    assert table.metrics["XVE_STALL"] == (Fraction("41.5"), Fraction("40.25"))
    assert table.metrics["Spill Memory Per Thread"] == (0, 0)
    assert table.units["XVE_STALL"] == "%"


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ("Kernel, GlobalInstanceId", "Name, GlobalInstanceId", errors.Incomplete, "one table that begins Kernel"),
        ('", 9, 2650', '", 7, 2650', errors.Inconsistent, "Launches are missing or out of order"),
        (", 40.25, 497152", ", 40.25", errors.MalformedFile, "5 columns"),
        ("40.25", "40%", errors.MalformedFile, "a decimal number"),
    ],
)
def test_a_file_of_unitrace_that_is_no_evidence_is_refused(
    old: str, new: str, kind: type[errors.EvidenceError], words: str
) -> None:
    data = UNITRACE.replace(old, new).encode()
    refused(lambda: read_unitrace(data, ("XVE_STALL",), where="f"), kind, words)


def test_a_file_with_two_processes_is_refused() -> None:
    refused(lambda: read_unitrace((UNITRACE * 2).encode(), (), where="f"), errors.Incomplete, "found 2")


# --- torch, and all three ---------------------------------------------------------------------------------------------


def test_a_torch_profile_keeps_order_and_absence() -> None:
    data = profile_bytes([("aten::mul", {"bytes": 4}), ("aten::add", {})], {"bytes": "byte"})
    table = read_torch_profile(data, ("bytes",), where="f")
    assert (table.kernels, table.metrics["bytes"]) == (("aten::mul", "aten::add"), (Fraction(4), None))


def test_a_torch_profile_that_was_cut_is_refused() -> None:
    data = profile_bytes([("aten::mul", {"bytes": 4})], {})
    refused(lambda: read_torch_profile(data[:-20], (), where="f"), errors.MalformedFile, "The file is cut")


@pytest.mark.parametrize("name", sorted(READERS))
def test_what_a_rehearsal_writes_is_read_back_and_a_drifted_format_is_refused(name: str) -> None:
    table = CounterTable(("k, one", "two"), {"m": (Fraction(3), Fraction(5))}, {"m": "byte"})
    data = WRITERS[name](table)
    found = READERS[name](data, ("m",), where="f")
    assert (found.kernels, found.metrics, found.units["m"]) == (table.kernels, table.metrics, "byte")
    refused(lambda: READERS[name](drifted(data), ("m",), where="f"), errors.EvidenceError)


def test_a_fraction_is_written_as_a_decimal_that_ncu_could_have_written() -> None:
    table = CounterTable(("k",), {"m": (Fraction(1, 4),)}, {"m": ""})
    assert read_ncu(write_ncu(table), ("m",), where="f").metrics["m"] == (Fraction("0.25"),)
