"""Makes the git repository that the example lane is about.

python examples/scale_add/repository.py start work       the incumbent and the lane's code, committed
python examples/scale_add/repository.py implement work   the candidate, committed
python examples/scale_add/repository.py commit work      whatever lies in the lane folder, committed
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
AUTHOR = ["-c", "user.name=Example", "-c", "user.email=example@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> None:
    """Run git in the repository."""
    subprocess.run(["git", *AUTHOR, "-C", str(folder), *words], check=True, stdout=subprocess.DEVNULL)


def main(what: str, folder: Path) -> None:
    """Take one of the three steps."""
    if what == "start":
        shutil.copytree(HERE / "source", folder, ignore=shutil.ignore_patterns("__pycache__"))
        git(folder, "init", "--quiet")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "The incumbent, and the code of its lane")
    elif what == "implement":
        shutil.copy(HERE / "candidate.py", folder / "scale_add" / "candidate.py")
        git(folder, "add", "scale_add")
        git(folder, "commit", "--quiet", "-m", "The candidate")
    else:
        git(folder, "add", "lane")
        git(folder, "commit", "--quiet", "-m", "The lane as it stands")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
