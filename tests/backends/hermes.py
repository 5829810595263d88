"""Runs Hermes's own memory modules, from the registry's package without its dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

VERSION = "0.19.0"
CACHE = user_cache_path("memtui-tests") / f"hermes-agent-{VERSION}"
FACTS = "from plugins.memory.holographic.store import MemoryStore\ns = MemoryStore()\n"
"""Opens the store of facts in Hermes's home as `s`."""


@cache
def package() -> Path:
    """Return the package, fetched once into the cache of the person who tests."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{CACHE}.lock"):
        if not (CACHE / "tools" / "memory_tool.py").exists():
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
            done = subprocess.run(
                [*install, str(CACHE), f"hermes-agent=={VERSION}"], capture_output=True, check=False
            )
            if done.returncode:
                pytest.skip(f"hermes-agent {VERSION} cannot be fetched here")
    return CACHE


def run_hermes(home: Path, lines: str) -> Any:
    """Run lines beside Hermes's modules; returns what they leave in `out`."""
    script = f"import json; out = None\n{lines}\nprint(json.dumps(out))"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True,
        check=False, cwd=package(), env=os.environ | {"HERMES_HOME": str(home)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@cache
def _no_facts() -> bytes:
    with TemporaryDirectory() as home:
        run_hermes(Path(home), f"{FACTS}s.close()")
        return (Path(home) / "memory_store.db").read_bytes()


@contextmanager
def hermes_facts(path: str) -> Iterator[None]:
    """Make Hermes's store of facts at a path, empty."""
    Path(path).write_bytes(_no_facts())
    yield
