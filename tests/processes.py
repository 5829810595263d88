"""Processes of their own for tests, which do not each import everything again."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

_LOADED = [
    "alembic.command",
    "memtui.backends.vault",
    "psycopg",
    "tests.journeys.writer",
    "tests.store.test_database",
    "tests.store.test_log",
]


def prepared_processes() -> ForkServerContext:
    """Return what starts processes in which the modules of such tests are loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context
