"""Where ranks run: whole physical cores, as many for each, and none at all where there are too few."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moegauge.adapters.devices import places
from moegauge.adapters.devices.places import Place, core_sets, numbers_text, places_for


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages of four physical cores; processor n + 8 is the second thread of processor n."""
    for processor in range(16):
        topology = tmp_path / f"cpu{processor}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{processor % 8 // 4}\n")
        (topology / "core_id").write_text(f"{processor % 4}\n")
    monkeypatch.setattr(places, "_PROCESSORS", tmp_path)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("usable", "num_ranks", "sets"),
    [
        (range(16), 1, [tuple(range(16))]),
        (range(16), 2, [(0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)]),
        (range(16), 3, [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13)]),
        (range(16), 8, [(n, n + 8) for n in range(8)]),
        (range(8), 2, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ([0, 8], 2, [(0,), (8,)]),
        ([5, 13, 6], 2, [(5, 13), (6,)]),
        ([0, 1, 2], 2, [(0,), (1,)]),
        ([0, 1, 2], 3, [(0,), (1,), (2,)]),
        ([0, 1, 2], 4, []),
        ([0], 2, []),
    ],
)
def test_ranks_get_whole_cores_of_one_package_where_there_are_enough(
    usable: range, num_ranks: int, sets: list[tuple[int, ...]]
) -> None:
    assert core_sets(usable, num_ranks) == sets


def test_processors_whose_cores_the_system_does_not_tell_are_cores_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_PROCESSORS", tmp_path)
    assert core_sets([0, 1, 2, 3], 2) == [(0, 1), (2, 3)]


def test_numbers_are_written_as_runs() -> None:
    assert numbers_text([8, 0, 1, 2, 3, 10]) == "0-3,8,10"
    assert (str(Place(cores=(0, 1))), str(Place(gpu="3")), str(Place())) == ("cores 0-1", "GPU 3", "an unbound process")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("usable", "found", "there"),
    [
        ({0, 1, 2}, (Place(cores=(0,)), Place(cores=(1,))), "3 cores that this process may use for 2 ranks"),
        ({5}, (), "1 core that this process may use for 2 ranks"),
    ],
)
def test_places_on_the_host_are_cores_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch, usable: set[int], found: tuple[Place, ...], there: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: usable)
    assert places_for(2, on_gpu=False) == (found, there)


def test_a_system_that_binds_no_process_has_no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert places_for(2, on_gpu=False) == ((), "a system that binds no process to cores")


@pytest.mark.parametrize(
    ("listed", "count", "found", "there"),
    [
        (None, 2, (Place(gpu="0", threads=6), Place(gpu="1", threads=6)), "2 visible GPUs for 2 ranks"),
        ("5, GPU-a,7", 3, (Place(gpu="5", threads=6), Place(gpu="GPU-a", threads=6)), "3 visible GPUs for 2 ranks"),
        ("5", 1, (), "1 visible GPU for 2 ranks"),
        ("", 0, (), "no visible GPUs for 2 ranks"),
    ],
)
def test_places_on_gpus_are_the_visible_ones_in_their_order_and_share_the_threads_of_the_host(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, count: int, found: tuple[Place, ...], there: str
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(os, "cpu_count", lambda: 13)
    if listed is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert places_for(2, on_gpu=True) == (found, there)


def test_a_rank_on_a_gpu_sees_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    Place(gpu="6").take()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6"


def test_a_rank_on_a_gpu_takes_its_share_of_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    Place(gpu="6", threads=8).take()
    assert os.environ["OMP_NUM_THREADS"] == "8"
