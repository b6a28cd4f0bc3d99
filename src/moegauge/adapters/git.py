"""What git says of a source repository. Read only: nothing here changes a repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from moegauge import errors
from moegauge.records.lane import SourceState


def source_state(name: str, path: Path, *, starting_commit: str, lane: Path) -> SourceState:
    """State of a repository, the lane's own folder left out.

    Raises:
        MissingFile: no repository, or no such commit.
    """
    leave_out = _leave_out(path, lane)
    changed = _git(path, "diff", "--name-only", "-z", starting_commit, "HEAD", "--", ".", *leave_out)
    return SourceState(
        name=name,
        commit=source_commit(path, lane=lane),
        changed_paths=tuple(sorted(one for one in changed.split("\0") if one)),
        uncommitted=uncommitted(path, lane=lane),
    )


def source_commit(path: Path, *, lane: Path) -> str:
    """The last commit that changed anything outside the lane's folder: a packet's commit leaves it as it is."""
    commit = _git(path, "log", "-1", "--format=%H", "--", ":/", *_leave_out(path, lane)).strip()
    if not commit:
        raise errors.MissingFile(
            where=str(path), expected="a commit", found="none", remedy="Commit the sources; a lane freezes commits."
        )
    return commit


def uncommitted(path: Path, *, lane: Path) -> tuple[str, ...]:
    """Files that differ from the commit or are not tracked."""
    found = _git(path, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--", ":/", *_leave_out(path, lane))
    return tuple(sorted(one[3:] for one in found.split("\0") if len(one) > 3))


def head(path: Path) -> str:
    """The commit that is checked out."""
    return _git(path, "rev-parse", "HEAD").strip()


def refuse_uncommitted(file: Path) -> None:
    """Refuse a file that git does not hold as it is.

    Raises:
        MisuseError: not in a repository, not tracked, or changed.
    """
    found = _run(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    same = _run(file.parent, "diff", "--quiet", "HEAD", "--", file.name)
    if found.returncode == 0 and same.returncode == 0:
        return
    raise errors.MisuseError(
        where=str(file),
        expected="a packet that is committed to git",
        found="one that is not tracked, or differs from its commit",
        remedy=f"git add {file.name} && git commit, then run; no device was touched.",
    )


def _leave_out(path: Path, lane: Path) -> list[str]:
    """The pathspec that leaves the lane's folder out, where it lies inside the repository."""
    top = Path(_git(path, "rev-parse", "--show-toplevel").strip()).resolve()
    inside = lane.resolve()
    return [f":(top,exclude){inside.relative_to(top).as_posix()}"] if top in inside.parents else []


def _git(path: Path, *arguments: str) -> str:
    done = _run(path, *arguments)
    if done.returncode:
        raise errors.MissingFile(
            where=str(path),
            expected=f"a git repository in which 'git {' '.join(arguments[:2])}' works",
            found=done.stderr.strip() or f"status {done.returncode}",
            remedy="Check the source's path and starting commit in the registration.",
        )
    return done.stdout


def _run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if not path.is_dir():
        raise errors.MissingFile(
            where=str(path), expected="a folder", found="nothing", remedy="Check the source's path."
        )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(  # noqa: S603 - fixed words, and paths of the registration
            ["git", "-C", str(path), *arguments],  # noqa: S607 - git of the user's own PATH
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"},
        )
    except FileNotFoundError as error:
        raise errors.MissingFile(
            where="git", expected="git on the PATH", found="none", remedy="Install git; a lane freezes commits."
        ) from error
