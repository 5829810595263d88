"""The repository of one of the demo's projects, which no longer has what a memory speaks of."""

import json
import os
import shutil
import subprocess
import tomllib
from datetime import datetime, timedelta
from importlib.resources import files

from memtui.config import Paths
from memtui.demo import content
from memtui.paths import replacing

FOLDER = "repositories"
_PROJECT = "mech-fighters"


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
    # Neither the person's own settings of git nor a repository around this process takes part.
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_EMAIL": "demo@acme.example", "GIT_COMMITTER_EMAIL": "demo@acme.example",
    }  # fmt: skip

    def run(*words: str) -> None:
        subprocess.run([git, *words], cwd=folder, env=env, check=True, capture_output=True)  # noqa: S603

    commits = tomllib.loads((files(content) / "repository.toml").read_text("utf-8"))["commit"]
    try:
        run("-c", "init.defaultBranch=main", "init", "-q", "--template=")
        for commit in commits:
            for name, text in commit["files"].items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text, "utf-8")
                if not text:
                    (folder / name).unlink()
            env["GIT_AUTHOR_NAME"] = env["GIT_COMMITTER_NAME"] = commit["author"]
            moment = (end - timedelta(days=commit["days"])).isoformat()
            env["GIT_AUTHOR_DATE"] = env["GIT_COMMITTER_DATE"] = moment
            run("add", "-A")
            run("commit", "-qm", commit["message"])
    except subprocess.CalledProcessError:  # a git that cannot commit is as none
        shutil.rmtree(folder)
        return
    if not paths.config_file.exists():
        with replacing(paths.config_file) as fresh:
            fresh.write_text(f"[workspaces]\n{_PROJECT} = {json.dumps(str(folder))}\n", "utf-8")
