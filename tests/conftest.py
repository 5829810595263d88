"""How tests run: what a process of them prepares, which are slow, and who runs which."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import ssl
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from _pytest.unraisableexception import gc_collect_iterations_key

_SLOW = (
    "tests/analytics/test_dashboard", "tests/analytics/test_hot", "tests/analytics/test_reading",
    "tests/analytics/test_stats", "tests/backends/mcp/", "tests/backends/mem0/",
    "tests/backends/milvus/", "tests/backends/plugin_v1/", "tests/backends/facts_http/",
    "tests/backends/hindsight/", "tests/backends/mcp_memory_service/", "tests/backends/tables/",
    "tests/backends/test_every_writable", "tests/backends/test_gemini",
    "tests/backends/test_hermes", "tests/backends/test_letta", "tests/backends/vault/test_search",
    "tests/backends/vault/test_vectors", "tests/backends/files/test_git", "tests/model/",
    "tests/service/test_as_of", "tests/service/test_foreign",
    "tests/conformance/", "tests/demo/", "tests/channels/", "tests/journeys/", "tests/migration/",
    "tests/screens/", "tests/testing/", "tests/service/test_backup",
    "tests/service/test_object_store", "tests/service/test_purge",
    "tests/service/test_read_only_medium", "tests/service/test_repair",
    "tests/service/test_visibility", "tests/service/test_whole_log", "tests/service/usecases/",
    "tests/analytics/test_audit", "tests/analytics/test_ceiling",
    "tests/analytics/test_export", "tests/analytics/test_seal", "tests/test_app",
    "tests/test_layers",
)  # fmt: skip

_FIXTURES = [f"tests.{name}" for name in
             ("databases", "demos", "headless", "homes", "node", "rights")]  # fmt: skip
pytest.register_assert_rewrite(*_FIXTURES)  # a folder's own conftest may import one before


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the process.

    Each HTTP client would read all certificates anew, each request look for a module that is not
    there, and each process compile what it imports. For the many objects of an app, Python would
    look for garbage all the time, an eighth of what a test of a screen took, and pytest five times
    at the end, where once finds all. No duration is asserted. And ctrl+c is to reach what tests
    start: a shell's background jobs begin with it ignored.
    """
    gc.set_threshold(1_000_000, 10, 10)
    config.stash[gc_collect_iterations_key] = 1
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    _write_to_memory()
    if hasattr(config, "workerinput"):
        _have_own_temporary_folder()
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        return
    for name in _FIXTURES:
        config.pluginmanager.import_plugin(name)
    import hypothesis

    for profile, examples in (("thorough", 250), ("any machine", 25)):
        hypothesis.settings.register_profile(profile, deadline=None, max_examples=examples)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))
    ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]
    if find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # its handlers get in the way of a test's forks
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _write_to_memory() -> None:
    """Let what nobody keeps not wait for the disk, where memory has room for it as a file system.

    That wait was a third of the time of a test that changes memories.
    """
    memory = Path("/dev/shm")  # pytest and tempfile make folders of their own below
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK | os.X_OK):
        return
    runs_files = not os.statvfs(memory).f_flag & os.ST_NOEXEC
    if runs_files and shutil.disk_usage(memory).free > 4 << 30:
        os.environ["TMPDIR"] = str(memory)
        tempfile.tempdir = None  # to be found anew


def _have_own_temporary_folder() -> None:
    """Keep the processes of a run apart: each removes what killed ones left there."""
    own = tempfile.mkdtemp(prefix="w-")
    os.environ["TMPDIR"], tempfile.tempdir = own, None
    atexit.register(shutil.rmtree, own, ignore_errors=True)


def pytest_collection_finish() -> None:
    """Let the collections of garbage not walk over every module and test that there is."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # a module complains of what is there at the very end


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Let the fast part not even import what would be deselected."""
    if config.getoption("markexpr") != "not slow":
        return None
    below = collection_path.relative_to(config.rootpath).as_posix()
    return True if f"{below}/".startswith(_SLOW) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what opens an app, a server or a process, or fills a whole archive."""
    for item in items:
        if item.nodeid.startswith(_SLOW) or _runs_on_postgresql(item):
            item.add_marker(pytest.mark.slow)


def _runs_on_postgresql(item: Any) -> bool:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return "postgres_server" in item.fixturenames or "postgresql" in parameters.values()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a test after the length of a long text, as its name goes through every process."""
    return f"{argname}{len(val)}" if isinstance(val, str | bytes) and len(val) > 200 else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole modules, whose fixtures it makes once; who is done helps the rest."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("MEMTUI_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MEMTUI_HELPER_IDLE_S", "0")  # no test leaves a process behind
