"""Files of tuned configurations: what is read of them, and that the vLLM runner runs with what they say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from fake_vllm import FOUND, HEURISTIC, Vllm
from moegauge import errors
from moegauge.adapters.runners.kernel_config import DEFAULT, KernelConfig, config_bytes, read_kernel_config
from moegauge.adapters.runners.registry import make_runner, make_trials
from moegauge.adapters.runners.work import ModelSpec, RunCondition, Work
from moegauge.evidence.digest import record_digest
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode

SMALL = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}
LARGE = SMALL | {"BLOCK_SIZE_M": 128, "GROUP_SIZE_M": 16, "num_warps": 8}


def written(folder: Path, content: object) -> Path:
    path = folder / "tuned.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# the file


def test_the_digest_is_that_of_the_files_bytes_and_the_version_of_triton_is_no_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, {"triton_version": "3.4.0", "16": SMALL, "4096": LARGE})
    config = read_kernel_config(path)
    assert config.by_rows == {16: SMALL, 4096: LARGE}
    assert config.digest == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize(("rows", "block"), [(1, 128), (20, 128), (21, 16), (24, 16), (28, 16), (29, 64), (9999, 64)])
def test_the_nearest_number_of_rows_is_taken_and_the_earlier_one_of_two_as_near(
    tmp_path: Path, rows: int, block: int
) -> None:
    # 20 is as near to 16 as to 24, and 28 to 24 and 32; the file has 16 before 24 before 32.
    entries = {"16": SMALL | {"BLOCK_SIZE_M": 128}, "24": SMALL, "32": SMALL | {"BLOCK_SIZE_M": 64}}
    assert read_kernel_config(written(tmp_path, entries)).of_rows(rows)["BLOCK_SIZE_M"] == block


def test_of_two_as_near_the_order_of_the_file_decides_and_not_the_size(tmp_path: Path) -> None:
    entries = {"24": SMALL, "16": LARGE}
    assert read_kernel_config(written(tmp_path, entries)).of_rows(20) == SMALL


def test_what_is_taken_can_be_changed_without_changing_the_next(tmp_path: Path) -> None:
    config = read_kernel_config(written(tmp_path, {"16": SMALL}))
    config.of_rows(16).clear()
    assert config.of_rows(16) == SMALL


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "Expecting property name"),
        ([SMALL], "a JSON list"),
        ({}, "no configuration"),
        ({"triton_version": "3.4.0"}, "no configuration"),
        ({"many": SMALL}, "the key 'many'"),
        ({"-1": SMALL}, "the key '-1'"),
        ({"016": SMALL}, "the key '016'"),
        ({"16": 4}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL | {"num_warps": "4"}}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL | {"num_warps": True}}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL | {"num_warps": 4.0}}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL, "32": {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1}}, "no BLOCK_SIZE_N, BLOCK_SIZE_K for 32 rows"),
    ],
)
def test_a_file_of_something_else_is_malformed(tmp_path: Path, content: object, found: str) -> None:
    with pytest.raises(errors.MalformedFile, match=found):
        read_kernel_config(written(tmp_path, content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFile, match=r"nowhere\.json"):
        read_kernel_config(tmp_path / "nowhere.json")


def test_a_file_that_is_written_is_read_as_it_was_with_the_smallest_number_of_rows_first(tmp_path: Path) -> None:
    data = config_bytes({4096: LARGE, 16: SMALL})
    assert list(json.loads(data)) == ["16", "4096"]
    assert read_kernel_config(written(tmp_path, data.decode())).by_rows == {16: SMALL, 4096: LARGE}


def test_the_word_default_is_no_file() -> None:
    assert read_kernel_config(Path("default")) is DEFAULT


@pytest.mark.parametrize("name", ["torch_moe", "vllm_cpu_moe"])
def test_a_runner_whose_kernel_has_no_configurations_refuses_them(name: str) -> None:
    with pytest.raises(errors.MisuseError, match="--kernel-config"):
        make_runner(name, MODEL, KernelConfig({16: SMALL}, "sha256:00"))


# the runner, with a stand-in of vLLM on the host

MODEL = ModelSpec(
    shape=ModelShape(hidden_size=16, intermediate_size=8, num_experts=4, top_k=2),
    num_local_experts=4,
    numeric_format="float32",
    layers=(0,),
    num_weight_sets=1,
    seed=0,
)


def work(rows: int) -> Work:
    ids = np.array([[0, 1], [2, 3]] * (rows // 2), dtype=np.int32)
    return Work(iteration=0, layer=0, rank=0, topk_ids=ids, topk_weights=None, expert_map=None)


GIVEN = KernelConfig({4: SMALL, 64: LARGE}, "sha256:" + "1" * 64)
WARM = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="warm")


def test_each_call_is_launched_with_the_configuration_of_its_rows_and_nothing_stays_set(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL, GIVEN)
    assert all(runner.check(work(rows)).passed for rows in (4, 64, 6))
    assert vllm.launched == [SMALL, LARGE, SMALL]
    assert vllm.setting is None


def test_without_a_file_vllm_takes_what_it_finds_whatever_another_call_left_set(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL)
    vllm.setting = LARGE
    assert runner.check(work(4)).passed
    assert vllm.launched == [FOUND]
    assert runner.kernel_config_digest(work(4)) == record_digest(FOUND)


def test_rows_record_the_digest_of_the_file_and_of_the_configuration_that_was_taken(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL, GIVEN)
    assert runner.facts(WARM, [work(4)])["kernel_config"] == "sha256:" + "1" * 64
    assert runner.kernel_config_digest(work(4)) == record_digest(SMALL)
    assert runner.kernel_config_digest(work(64)) == record_digest(LARGE)
    assert "kernel_config" not in make_runner("vllm_triton_moe", MODEL).facts(WARM, [work(4)])


def test_the_heuristic_is_run_where_it_was_asked_for_whatever_vllm_would_find(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL, DEFAULT)
    assert runner.check(work(4)).passed
    assert vllm.launched == [HEURISTIC]
    assert runner.kernel_config_digest(work(4)) == record_digest(HEURISTIC)
    assert runner.facts(WARM, [work(4)])["kernel_config"] == "default"
    assert vllm.asked == [(4, 4, 8, 16, 2, None, None)] * 2  # rows, experts, width, hidden size, top_k, format, blocks


# trials


def test_a_trial_is_launched_with_its_own_configuration_and_checked_on_states_of_its_draw(vllm: Vllm) -> None:
    trials = make_trials("vllm_triton_moe", MODEL)
    assert trials.check(work(4), LARGE, draw=1).passed
    assert trials.check(work(4), SMALL, draw=1).passed
    assert vllm.launched == [LARGE, SMALL]
    assert (trials.found(4), trials.heuristic(4)) == (FOUND, HEURISTIC)
    assert trials.file_name() == "E=4,N=8,device_name=Simulated_GPU.json"


def test_a_configuration_that_does_not_fit_the_device_fails_like_any_kernel(vllm: Vllm) -> None:
    import triton  # noqa: PLC0415 - loaded by this test only

    trials = make_trials("vllm_triton_moe", MODEL)
    vllm.fails[128] = triton.OutOfResources(300_000, 232_448, "shared memory")
    with pytest.raises(RuntimeError, match=r"OutOfResources: .*shared memory"):
        trials.check(work(4), LARGE, draw=1)
    assert trials.check(work(4), SMALL, draw=1).passed


def test_trials_of_one_configuration_are_compiled_in_one_process(vllm: Vllm) -> None:
    from moegauge.adapters.runners.triton_trials import _shares  # noqa: PLC0415 - needs the stand-in

    dealt = _shares([(work(4), SMALL), (work(4), LARGE), (work(6), SMALL)], 3)
    assert [[(len(one.topk_ids), config) for one, config in share] for share in dealt] == [
        [(4, SMALL), (6, SMALL)],
        [(4, LARGE)],
    ]


@pytest.mark.parametrize("name", ["torch_moe", "vllm_cpu_moe"])
def test_a_kernel_without_configurations_is_not_tuned(name: str) -> None:
    with pytest.raises(errors.MisuseError, match="--kind"):
        make_trials(name, MODEL)
