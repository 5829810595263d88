"""memtui's part of a memory's metadata as other programs damage it: nobody knows its owner."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.contract import Adapter, BrowseRequest, QueryRequest, Record, Scope

DAMAGED: tuple[object, ...] = (
    None,
    [1],
    "",
    '{"ids": {"subject_id": "an',
    {"ids": {"subject_id": 7}},
    {"ids": {"person": "ana"}},
    {"ids": "ana", "version": 2},
    {"ids": {"subject_id": "ana"}, "expires_at": "soon"},
)
WHOLE: tuple[object, ...] = (
    {"ids": {"subject_id": "ana"}, "of_a_later_version": True},
    '{"ids": {"subject_id": "ana"}}',
)


async def hidden(adapter: Adapter, word: str) -> Sequence[Record]:
    """Return what is shown of memories with a word; every damaged one is left out and counted."""
    everybody = Scope(company_id="acme")
    page = await adapter.browse(BrowseRequest(scope=everybody, limit=1000))
    assert page.at_least
    [said] = [one for one in page.unread if "could not be read" in one]
    assert said.startswith(f"{len(DAMAGED)} memories")
    assert "remove memtui from its metadata" in said
    assert await adapter.problems(everybody) == []
    found = await adapter.query(QueryRequest(scope=everybody, query=word))
    [problem] = await adapter.problems(everybody)
    assert problem.message.startswith(f"{len(DAMAGED)} memories")
    texts = sorted(one.text for one in page.records)
    assert sorted(one.text for one in found.snippets) == texts
    return page.records
