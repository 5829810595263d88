"""The repository of one of the demo's projects, which no longer has what a memory speaks of."""

import json
import os
import re
import shutil
import subprocess
from datetime import datetime, timedelta
from importlib.resources import files

from memtui.config import Paths
from memtui.demo import content
from memtui.paths import replacing

FOLDER = "repositories"
_PROJECT = "mech-fighters"
_STEPS = "-c init.defaultBranch=main init -q --template=", "fast-import --quiet", "reset -q --hard"


def make_repository(paths: Paths, end: datetime) -> None:
    """Make the repository if there is a git, and name it in a home without settings. Blocking.

    Args:
        paths: The demo's home.
        end: The moment at which the demo ends; the commits are some days older.
    """
    git, folder = shutil.which("git"), paths.data / FOLDER / _PROJECT
    if git is None:
        return
    folder.mkdir(parents=True, mode=0o700)

    def moment(days: re.Match[str]) -> str:
        return str(int((end - timedelta(days=int(days[1]))).timestamp()))

    stream = re.sub(r"\{(\d+)\}", moment, (files(content) / "repository.txt").read_text("utf-8"))
    # Neither the person's own settings of git nor a repository around this process takes part.
    env = {"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_GLOBAL": os.devnull,
           "GIT_CONFIG_NOSYSTEM": "1"}  # fmt: skip
    for step in _STEPS:  # a git that cannot do one leaves a repository that tells nothing
        subprocess.run(  # noqa: S603 - git itself, by the person's own path
            [git, *step.split()], input=stream.encode(), cwd=folder, env=env, check=False,
            capture_output=True,
        )  # fmt: skip
    if not paths.config_file.exists():
        with replacing(paths.config_file) as fresh:
            fresh.write_text(f"[workspaces]\n{_PROJECT} = {json.dumps(str(folder))}\n", "utf-8")
