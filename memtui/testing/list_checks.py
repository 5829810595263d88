"""Browsing: everything once, in order, and only what was asked for."""

# ruff: noqa: S101  # an assertion is what a check is made of
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memtui.contract import Adapter, BrowseRequest, Filter, MemtuiError, Record, SourceKind

from .kit import Kit, day, need, need_exact

_SORTS = [
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "title",
    "-title",
    "size",
    "-size",
]


class ListChecks(Kit):
    """Checks of `browse`."""

    async def _fill(self, adapter: Adapter, number: int) -> list[str]:
        handles = [
            await self.write(
                adapter,
                f"Record {index} {'long ' * (index % 3)}",
                title=f"Title {index % 4}",
                created_at=day(index % 5),
            )
            for index in range(number)
        ]
        return [handle.provider_record_id for handle in handles]

    async def _pages(self, adapter: Adapter, sort: str, limit: int) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: str | None = None
        while True:
            request = BrowseRequest(scope=self.scope(), sort=sort, cursor=cursor, limit=limit)
            page = await adapter.browse(request)
            assert len(page.records) <= limit, "a page is longer than its limit"
            pages.append([record.handle.provider_record_id for record in page.records])
            cursor = page.next_cursor
            if cursor is None:
                return pages
            assert len(pages) < 1000, "the cursor never ends"

    async def test_pages_cover_everything_once(self, adapter: Adapter) -> None:
        """Small pages hold each record exactly once, in the order of one large page."""
        need_exact(adapter)
        need(adapter, "browse")
        ids = await self._fill(adapter, 11)
        for sort in _SORTS:
            shown = [one for page in await self._pages(adapter, sort, 3) for one in page]
            assert sorted(shown) == sorted(ids), f"pages by {sort} miss or repeat records"
            whole = [one for page in await self._pages(adapter, sort, 1000) for one in page]
            assert shown == whole, f"small pages by {sort} are in another order than a large one"

    async def test_order(self, adapter: Adapter) -> None:
        """Records come in the order that was asked for."""
        need_exact(adapter)
        need(adapter, "browse")
        await self._fill(adapter, 7)
        orders: dict[str, Callable[[Record], Any]] = {
            "created_at": lambda record: record.created_at,
            "title": lambda record: record.title,
            "size": lambda record: len(record.text),
        }
        for sort, of in orders.items():
            page = await adapter.browse(BrowseRequest(scope=self.scope(), sort=sort))
            values = [of(record) for record in page.records]
            if None not in values:
                assert values == sorted(values), f"records are not in the order of {sort}"
            page = await adapter.browse(BrowseRequest(scope=self.scope(), sort=f"-{sort}"))
            values = [of(record) for record in page.records]
            if None not in values:
                assert values == sorted(values, reverse=True), f"records are not by -{sort}"

    async def test_total(self, adapter: Adapter) -> None:
        """A total, where one is given, is of all pages, not of one."""
        need_exact(adapter)
        need(adapter, "browse")
        await self._fill(adapter, 5)
        page = await adapter.browse(BrowseRequest(scope=self.scope(), limit=2))
        assert page.next_cursor is not None, "more follows, and there is no cursor"
        if page.total is not None and not page.at_least:
            assert page.total == 5, "the total is not the number of records"

    async def test_cursor_survives_an_insert(self, adapter: Adapter) -> None:
        """A record written between two pages makes no other record appear twice or vanish."""
        need_exact(adapter)
        need(adapter, "browse")
        ids = await self._fill(adapter, 6)
        request = BrowseRequest(scope=self.scope(), sort="-created_at", limit=3)
        first = await adapter.browse(request)
        await self.write(adapter, "Newest of all.", created_at=day(1000))
        rest = await adapter.browse(request.model_copy(update={"cursor": first.next_cursor}))
        shown = [r.handle.provider_record_id for r in (*first.records, *rest.records)]
        assert sorted(shown) == sorted(ids), "an insert shifted the pages"

    async def test_foreign_cursor(self, adapter: Adapter) -> None:
        """A cursor that cannot be read is an error of the contract."""
        need(adapter, "browse")
        with pytest.raises(MemtuiError):
            await adapter.browse(BrowseRequest(scope=self.scope(), cursor="?? not a cursor ??"))

    async def test_filters(self, adapter: Adapter) -> None:
        """Each filter returns what matches and nothing else, for every field that is kept."""
        need_exact(adapter)
        need(adapter, "browse")
        handle = await self.write(
            adapter,
            "The Wanted Record speaks of Lynxes.",
            scope=self.scope(agent_id="coder", issue_id="I-1", run_id="r-1", subject_id="ana"),
            source=self.source(SourceKind.RUN, run_id="r-1"),
            topic="cats",
            tags=("wild", "rare"),
            kind="guidance",
            created_at=day(100),
        )
        await self.write(adapter, "Another record of the sea.", created_at=day(50))
        record = await self.read(adapter, handle)
        kept = {
            "agent_id": record.scope.agent_id,
            "issue_id": record.scope.issue_id,
            "run_id": record.scope.run_id,
            "subject_id": record.scope.subject_id,
            "source_kind": record.source.kind if record.source else None,
            "topic": record.topic,
            "kind": record.kind if record.kind == "guidance" else None,
            "tag": record.tags[0] if record.tags else None,
            "text": "lynxes WANTED",
            "fuzzy": ("lnx", "SPEKAS"),
            "since": day(99) if record.created_at == day(100) else None,
        }
        for name, value in kept.items():
            if value is not None:
                ids = await self.listed(adapter, **{name: value})
                assert ids == [handle.provider_record_id], f"the filter by {name} is not applied"
        if kept["since"] is not None:
            ids = await self.listed(adapter, until=day(100))
            assert handle.provider_record_id not in ids, "until must be exclusive"
            assert len(ids) == 1, "until hides an older record"
            ids = await self.listed(adapter, since=day(100))
            assert ids == [handle.provider_record_id], "since must be inclusive"

    async def test_filter_by_project(self, adapter: Adapter) -> None:
        """Browsing one project shows no other."""
        need_exact(adapter)
        need(adapter, "browse")
        handle = await self.write(adapter, "In apollo.")
        await self.write(adapter, "In gemini.", scope=self.scope(project_id="gemini"))
        ids = await self.listed(adapter)
        assert ids == [handle.provider_record_id], "browse of a project shows another's records"
        everything = BrowseRequest(
            scope=self.scope().model_copy(update={"project_id": None}),
            filter=Filter(project_id="apollo"),
        )
        page = await adapter.browse(everything)
        assert [r.handle for r in page.records] == [handle], "the filter by project is not applied"
