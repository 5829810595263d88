"""What the client does with a server that lists memtui's own extensions, kept or not."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from memtui.contract import BrowseRequest

from .conftest import COMPANY, SCOPE, Open, Serve, handle
from .servers.loopback import Request, response

BOTH = "memtui.ids memtui.cursor memtui.future"
ROWS = [
    {"id": str(uuid.UUID(int=n)), "namespace": "workspace:web", "content": f"Row {n}.",
     "kind": "fact", "source": "user", "pin": False, "created_at": "2026-01-01T00:00:00Z"}
    for n in range(250)
]  # fmt: skip


class Extended:
    """Holds 250 rows and lists extensions; `endless` never stops giving cursors."""

    def __init__(self, extensions: str = BOTH, *, endless: bool = False) -> None:
        self.extensions = extensions
        self.endless = endless
        self.searches: list[dict[str, Any]] = []

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if request.method == "GET":
            body: dict[str, Any] = {"status": "ok", "version": "1", "capabilities": ["fts"]}
            listed = f"\r\nMemtui-Extensions: {self.extensions}\r\n".encode()
            writer.write(response(200, body).replace(b"\r\n", listed, 1))
        else:
            writer.write(response(200, self._search(request.json())))
        await writer.drain()
        return True

    def _search(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.searches.append(asked)
        if "ids" in asked:
            return {"memories": [row for row in ROWS if row["id"] in asked["ids"]]}
        if "cursor" not in asked:
            return {"memories": ROWS[: asked["limit"]]}
        start = int(asked["cursor"] or 0)
        page = {"memories": ROWS[start : start + 100]}
        if self.endless or start + 100 < len(ROWS):
            page["next_cursor"] = str(start + 100)  # type: ignore[assignment]  # JSON
        return page


async def test_a_list_is_read_to_its_end(serving: Serve, open_plugin: Open) -> None:
    server = Extended()
    adapter = await open_plugin(await serving(server), namespaces=["workspace:web"])
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=1000))
    assert (len(page.records), page.total, page.at_least) == (250, 250, False)
    assert [asked["cursor"] for asked in server.searches] == ["", "100", "200"]


async def test_a_list_without_an_end_is_left(serving: Serve, open_plugin: Open) -> None:
    server = Extended(endless=True)
    adapter = await open_plugin(await serving(server), namespaces=["workspace:web"])
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=1000))
    assert (len(page.records), page.at_least) == (250, True)


async def test_a_record_is_found_by_its_id_or_certainly_not_there(
    serving: Serve, open_plugin: Open
) -> None:
    server = Extended()
    adapter = await open_plugin(await serving(server))
    found = await adapter.get(handle(f"workspace:web/{ROWS[249]['id']}"), SCOPE)
    assert found is not None
    assert found.text == "Row 249."
    assert await adapter.get(handle(f"workspace:web/{uuid.uuid4()}"), SCOPE) is None
    assert await adapter.get(handle("workspace:web/flat-1"), SCOPE) is None
    assert all("ids" in asked for asked in server.searches)


async def test_extensions_are_no_capabilities(serving: Serve, open_plugin: Open) -> None:
    server = Extended("fts memtui.ids,memtui.cursor pin")
    adapter = await open_plugin(await serving(server), namespaces=["workspace:web"])
    assert not adapter.capabilities.pin
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=1000))
    assert page.at_least
    assert not any("cursor" in asked for asked in server.searches)
