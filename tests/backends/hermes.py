"""Runs Hermes's own memory modules, from the registry's package without its dependencies."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
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


_FORKS = """
import json, os, sys, traceback
import tools.memory_tool, plugins.memory.holographic.store
for name, module in [*sys.modules.items()]:
    if (getattr(module, "__file__", None) or "").startswith(os.getcwd()):
        del sys.modules[name]
for line in sys.stdin:
    home, lines = json.loads(line)
    if (child := os.fork()) == 0:
        os.environ["HERMES_HOME"], names = home, {"out": None}
        try:
            exec(lines, names)
            said = {"out": names["out"]}
        except BaseException:
            said = {"error": traceback.format_exc()}
        print("", json.dumps(said), sep="\\n", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("ANSWERED", flush=True)
"""
"""Runs lines in a process each, in which is imported only what Hermes's own modules import."""
_ONE_AT_A_TIME = Lock()


@cache
def _forking() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _FORKS], text=True, encoding="utf-8",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=package(),
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def run_hermes(home: Path, lines: str) -> Any:
    """Run lines beside Hermes's modules; returns what they leave in `out`."""
    told, heard = _forking().stdin, _forking().stdout
    assert told is not None
    assert heard is not None
    with _ONE_AT_A_TIME:
        told.write(json.dumps([str(home), lines]) + "\n")
        told.flush()
        said = ""
        while (line := heard.readline()) != "ANSWERED\n":
            assert line, "the process beside Hermes has ended"
            said = line
    answer = json.loads(said)
    assert "error" not in answer, answer["error"]
    return answer["out"]


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
