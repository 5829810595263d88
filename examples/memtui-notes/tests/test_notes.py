"""The provider passes what every provider must, and tells what is wrong with its file."""

import sqlite3
from pathlib import Path

import pytest
from memtui_notes import NotesAdapter

from memtui.contract import Adapter, Unavailable, Unsupported
from memtui.testing import AdapterContract


class TestNotes(AdapterContract):
    capabilities = NotesAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await NotesAdapter.open(self.context(tmp_path, path=str(tmp_path / "notes.db")))

    async def test_a_file_that_is_no_database_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "notes.db").write_text("This is no database, and long enough to be read." * 9)
        with pytest.raises(Unavailable, match="cannot be used"):
            await self.open_adapter(tmp_path)

    async def test_a_row_of_somebody_else_is_told(self, tmp_path: Path) -> None:
        adapter = await self.open_adapter(tmp_path)
        with sqlite3.connect(tmp_path / "notes.db") as database:
            database.execute("INSERT INTO notes VALUES ('a', '{}')")
        database.close()
        with pytest.raises(Unavailable, match="did not write; take the row out"):
            await self.found(adapter, "anything")

    async def test_a_read_only_binding_makes_and_changes_nothing(self, tmp_path: Path) -> None:
        context = self.context(tmp_path, path=str(tmp_path / "notes.db"))
        read_only = context.model_copy(update={"read_only": True})
        with pytest.raises(Unavailable):
            await NotesAdapter.open(read_only)
        assert not (tmp_path / "notes.db").exists()
        handle = await self.write(await NotesAdapter.open(context), "kept")
        adapter = await NotesAdapter.open(read_only)
        assert not adapter.capabilities.writable
        with pytest.raises(Unsupported):
            await self.forget(adapter, handle)
        assert (await self.read(adapter, handle)).text == "kept"
