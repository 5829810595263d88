"""The provider that `docs/providers-howto.md` shows passes the checks, in SQLite and PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from memtui.contract import Adapter
from memtui.provider_kit.tables import TablesAdapter
from memtui.testing import AdapterContract

_TABLE = (
    "CREATE TABLE IF NOT EXISTS entries "
    "(id text PRIMARY KEY, body text, project text, written text)"
)
_IMPORTS = """
from __future__ import annotations
from datetime import datetime
from uuid import uuid4
from memtui.contract import CorrectRequest, Json, Scope, WriteRequest
from memtui.provider_kit import read_moment
from memtui.provider_kit.rows import Row
from memtui.provider_kit.tables import TablesAdapter, TablesConfig
"""


def _shown() -> type[TablesAdapter]:  # type: ignore[type-arg]
    page = (Path(__file__).parents[3] / "docs" / "providers-howto.md").read_text("utf-8")
    [code] = re.findall(r"```python\n(class JournalAdapter.*?)```", page, re.DOTALL)
    module = ModuleType("journal")
    exec(_IMPORTS + code, vars(module))
    found: type[TablesAdapter] = module.JournalAdapter  # type: ignore[type-arg]
    return found


JOURNAL = _shown()


class TestSqlite(AdapterContract):
    capabilities = JOURNAL.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        path = tmp_path / "journal.db"
        with closing(sqlite3.connect(path)) as lite:
            lite.execute(_TABLE)
        return await JOURNAL.open(self.context(tmp_path, path=str(path)))


class TestPostgres(AdapterContract):
    capabilities = JOURNAL.capabilities

    @pytest.fixture(autouse=True)
    def _table(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(_TABLE)
        self._url = postgres_url

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await JOURNAL.open(self.context(tmp_path, url=self._url))
