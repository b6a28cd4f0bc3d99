"""moegauge compare end to end: planted variants on a small captured model, through the command line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moegauge.cli.main import run
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.store import read_record, write_head
from moegauge.jobs.capture_import import import_serving
from moegauge.records.kernel_compare import CompareReport
from simulator import Recording

FAST = ["--blocks", "6", "--calls", "1", "--per-stratum", "1", "--max-rows", "4"]


def compared(capture: CaptureFolder, base: str, head: str, out: Path, *more: str) -> tuple[int, CompareReport]:
    sides = ["--base", base, "--head", head]
    status = run(["compare", str(capture.path), *sides, "--out", str(out), *FAST, *more])
    return status, read_record(out / "compare.json", CompareReport)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("last_bit", "WORDS_DIFFER"),
        ("batch_variant", "WORDS_DIFFER"),  # serving ran a token alone here
        ("unrepeatable", "HEAD_NOT_REPEATABLE"),
        ("writes_its_input", "INPUT_CHANGED"),
    ],
)
def test_a_wrong_head_is_named_for_what_is_wrong_and_never_timed(
    capture: CaptureFolder, tmp_path: Path, head: str, code: str
) -> None:
    status, report = compared(capture, "compare_variants:reference", f"compare_variants:{head}", tmp_path / "out")
    assert (status, report.result.reason.code) == (1, code)
    assert (report.raw.blocks, report.result.time) == ((), None)


def test_a_batch_variant_head_is_bit_exact_where_serving_ran_batches_and_fails_all_the_same(tmp_path: Path) -> None:
    batches = Recording(steps=Recording().steps[:2])
    capture = import_serving(batches.write(tmp_path / "bundle"), tmp_path / "capture")
    status, report = compared(capture, "compare_variants:reference", "compare_variants:batch_variant", tmp_path / "out")
    found = report.result.exactness
    assert (status, report.result.reason.code, found.bit_exact) == (1, "BATCH_INVARIANCE_LOST", True)
    assert (found.base_batch_invariant, found.head_batch_invariant, found.head_repeatable) == (True, False, True)


def test_a_head_of_twenty_times_the_work_is_worse(capture: CaptureFolder, tmp_path: Path) -> None:
    status, report = compared(capture, "compare_variants:reference", "compare_variants:twenty_times", tmp_path / "out")
    assert (status, report.result.reason.code, report.result.exactness.bit_exact) == (1, "HEAD_WORSE", True)


def test_a_head_of_a_twentieth_of_the_work_is_not_worse_and_verifies(capture: CaptureFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    status, report = compared(capture, "compare_variants:twenty_times", "compare_variants:reference", out)
    assert (status, report.result.reason.code, report.preregistered) == (0, "HEAD_NOT_WORSE", False)
    assert run(["verify", str(out)]) == 0


def test_a_changed_verdict_with_a_fresh_digest_is_found_by_verify(
    capture: CaptureFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = compared(capture, "compare_variants:reference", "compare_variants:twenty_times", tmp_path / "out")
    time = report.result.time
    assert time is not None
    better = msgspec.structs.replace(report.result, time=msgspec.structs.replace(time, ratio=0.5))
    forged = tmp_path / "forged"
    forged.mkdir()
    write_head(forged, "compare.json", msgspec.structs.replace(report, result=better))
    assert run(["verify", str(forged)]) == 1
    assert "compare.json result.time.ratio: recorded 0.5" in capsys.readouterr().out


def test_torch_moe_lies_inside_a_declared_bound_and_fails_without_one(capture: CaptureFolder, tmp_path: Path) -> None:
    sides = "compare_variants:twenty_times", "compare_variants:last_bit"
    status, report = compared(capture, *sides, tmp_path / "bound", "--bound", "0.02")
    assert (status, report.result.exactness.within_bound, report.result.exactness.bit_exact) == (0, True, False)
    status, report = compared(capture, *sides, tmp_path / "bits")
    assert (status, report.result.reason.code) == (1, "WORDS_DIFFER")


def test_an_output_that_is_not_finite_lies_inside_no_bound(capture: CaptureFolder, tmp_path: Path) -> None:
    status, report = compared(
        capture, "compare_variants:reference", "compare_variants:nan", tmp_path / "out", "--bound", "0.9"
    )
    assert (status, report.result.reason.code) == (1, "BEYOND_ERROR_BOUND")
    assert [bits.head.error_ratio for bits in report.raw.bits] == [None] * len(report.raw.bits)


@pytest.mark.parametrize(
    "words",
    [
        ["--base", "torch_moe", "--head", "compare_variants:half_precision"],
        ["--base", "torch_moe", "--head", "compare_variants:absent"],
        ["--base", "torch_moe", "--head", "no_such_module:f"],
        ["--base", "torch_moe", "--head", "vllm_triton_moe"],
        ["--base", "torch_moe", "--head", "torch_moe", "--blocks", "5"],
        ["--base", "torch_moe", "--head", "torch_moe", "--margin", "nan"],
        ["--base", "torch_moe", "--head", "torch_moe", "--max-rows", "0"],
    ],
)
def test_what_cannot_be_compared_exits_2_and_writes_nothing(
    capture: CaptureFolder, tmp_path: Path, words: list[str]
) -> None:
    assert run(["compare", str(capture.path), *words, "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
