"""The checks that every adapter must pass, ours or a stranger's."""

from __future__ import annotations

import pytest

from .change_checks import ChangeChecks
from .list_checks import ListChecks
from .read_checks import ReadChecks
from .write_checks import WriteChecks


@pytest.mark.asyncio
class AdapterContract(WriteChecks, ReadChecks, ListChecks, ChangeChecks):
    """Subclass it as `TestSomething`, override `open_adapter`, and run pytest.

    Each check opens the adapter anew over an empty folder and is skipped where the adapter's
    capabilities say that it does not apply. Example:

        class TestMine(AdapterContract):
            async def open_adapter(self, tmp_path: Path) -> Adapter:
                return await MyAdapter.open(self.context(tmp_path, url="http://127.0.0.1:9000"))
    """
