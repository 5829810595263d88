"""Precision and recall of finding memories that refer to what is gone.

Usage: python -m benchmarks.still_true [--part held-out] [--package FOLDER] [--wrong]

It judges the 100 memories about this repository in `benchmarks/data/still_true.jsonl` as of the
commit `AS_OF`. With `--package`, it also judges the 100 about ten successive releases of
streamlink: pip downloads their sources into FOLDER, unless they are there, and they are committed
one after the other. `--wrong` names each wrong answer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memtui.provider_kit.files.git_past import GitPast, Gone
from memtui.pruning.still_true import StillTrue

ROOT = Path(__file__).parents[1]
AS_OF = "a220b3805b0e37062c1b65589838d4b709eb10db"
PACKAGE = "streamlink"
RELEASES = (
    "5.1.0", "5.1.1", "5.1.2", "5.2.1", "5.3.0", "5.3.1", "5.4.0", "5.5.0", "5.5.1", "6.0.0"
)  # fmt: skip
_SAME = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.example",
         "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.example"}  # fmt: skip


def git(folder: Path, *words: str, **more: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | _SAME | more, check=True,
        capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def this_repository(folder: Path) -> None:
    """Check this repository out as of `AS_OF`."""
    git(folder, "init", "-q")
    git(folder, "fetch", "-q", str(ROOT), AS_OF)
    git(folder, "checkout", "-q", "-b", "main", AS_OF)


def releases(folder: Path, downloads: Path) -> dict[str, str]:
    """Commit the releases one after the other; return the commit of each."""
    git(folder, "init", "-q", "-b", "main")
    commits = {}
    for day, release in enumerate(RELEASES, 1):
        archive = downloads / f"{PACKAGE}-{release}.tar.gz"
        if not archive.exists():
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
                 "-d", str(downloads), f"{PACKAGE}=={release}"], check=True,
            )  # fmt: skip
        git(folder, "rm", "-rqf", "--ignore-unmatch", ".")
        with tarfile.open(archive) as opened:
            for member in opened.getmembers():
                member.name = member.name.partition("/")[2]
                if member.name:
                    opened.extract(member, folder, filter="data")
        git(folder, "add", "-A", "-f")
        at = f"2023-01-{day:02}T00:00:00Z"
        git(folder, "commit", "-qm", f"Release {release}", GIT_AUTHOR_DATE=at,
            GIT_COMMITTER_DATE=at)  # fmt: skip
        commits[release] = git(folder, "rev-parse", "HEAD")
    return commits


def judge(
    folder: Path, rows: Sequence[dict[str, Any]], commits: dict[str, str]
) -> list[list[Gone]]:
    """Return what is gone of each memory, as if it was written right after its commit."""
    texts = {}
    for place, row in enumerate(rows):
        at = git(folder, "log", "-1", "--format=%ct", commits.get(row["as_of"], row["as_of"]))
        texts[place] = row["text"], datetime.fromtimestamp(int(at), UTC)
    with TemporaryDirectory() as own:
        found = StillTrue(GitPast(folder, Path(own))).gone(texts)
    return [found.get(place, []) for place in range(len(rows))]


def report(
    name: str, rows: Sequence[dict[str, Any]], found: Sequence[list[Gone]],
    commits: dict[str, str], *, wrong: bool,
) -> None:  # fmt: skip
    """Print precision and recall of some memories, and how many commits are the labelled ones."""
    right = told = named = 0
    for row, gone in zip(rows, found, strict=True):
        is_gone = row["state"] == "gone"
        right += is_gone and bool(gone)
        told += bool(gone)
        expected = {commits.get(one, one)[:12] for one in row.get("gone", {}).values()}
        named += is_gone and any(one.commit[:12] in expected for one in gone)
        if wrong and is_gone != bool(gone):
            print(f"    {row['state']}: {row['text']} {[one.words for one in gone]}")
    gone_rows = sum(row["state"] == "gone" for row in rows)
    print(
        f"  {name:24} {len(rows):4} memories, {gone_rows:3} gone: precision "
        f"{right / told if told else 1:.3f}, recall {right / gone_rows if gone_rows else 1:.3f}, "
        f"the commit right of {named} of {right}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("development", "held-out"), help="only this half")
    parser.add_argument("--package", type=Path, help="the folder of the package's sources")
    parser.add_argument("--small", action="store_true", help="only the first ten memories")
    parser.add_argument("--wrong", action="store_true", help="name each wrong answer")
    chosen = parser.parse_args()
    lines = (ROOT / "benchmarks/data/still_true.jsonl").read_text("utf-8").splitlines()
    every = [json.loads(line) for line in lines]
    all_rows: list[dict[str, Any]] = []
    all_found: list[list[Gone]] = []
    all_commits: dict[str, str] = {}
    for of in ("memtui", "package") if chosen.package else ("memtui",):
        with TemporaryDirectory() as name:
            commits: dict[str, str] = {}
            if of == "package":
                commits = releases(Path(name), chosen.package)
            else:
                this_repository(Path(name))
            rows = [one for one in every if one["of"] == of][: 10 if chosen.small else None]
            began = time.perf_counter()
            found = judge(Path(name), rows, commits)
            print(f"{of}: {time.perf_counter() - began:.1f} s")
        all_rows += rows
        all_found += found
        all_commits |= commits
        for part in ("development", "held-out"):
            some = [place for place, row in enumerate(rows) if row["part"] == part]
            if chosen.part in {None, part}:
                report(part, [rows[one] for one in some], [found[one] for one in some], commits,
                       wrong=chosen.wrong)  # fmt: skip
    for part in ("development", "held-out"):
        some = [place for place, row in enumerate(all_rows) if row["part"] == part]
        if chosen.part in {None, part}:
            report(f"all, {part}", [all_rows[one] for one in some],
                   [all_found[one] for one in some], all_commits, wrong=False)  # fmt: skip


if __name__ == "__main__":
    main()
