from __future__ import annotations

import pytest

from memtui.contract import Filter, Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService
from tests.databases import ON_BOTH

pytestmark = ON_BOTH

COMMENT = SourceRef(kind="issue_comment", company_id="acme", issue_id="ISS-1", comment_id="c1")
OTHER = SourceRef(kind="issue_comment", company_id="acme", issue_id="ISS-1", comment_id="c2")
BY_HAND = SourceRef(kind="manual_note", company_id="acme")


@pytest.mark.slow
async def test_what_wrote_is_listed_newest_first_sealed_or_not(
    service: MemoryService, caller: Caller, database_url: str
) -> None:
    del database_url
    hook = Caller(company_id="acme", principal="agent:x", channel="hook", acts_for="user:ana")

    async def write(who: Caller, source: SourceRef, run_id: str | None = None) -> None:
        scope = Scope(company_id="acme", agent_id="coding", run_id=run_id)
        await service.write(who, WriteRequest(scope=scope, source=source, content="a note"))

    await write(caller, BY_HAND)
    await write(hook, COMMENT, "run-1")
    await write(hook, BY_HAND, "run-1")
    expected = [
        ("manual_note", "run-1", 1),
        ("issue_comment", "run-1", 1),
        ("manual_note", None, 1),
    ]

    async def told(chosen: Filter | None = None, limit: int = 100) -> list[tuple[str, object, int]]:
        found = await service.log.sources(caller, chosen, limit=limit)
        assert all(one.first_at <= one.last_at and one.writes == one.records for one in found)
        return [(one.source.kind, one.run_id, one.records) for one in found]

    assert await told() == expected
    await service.analysis.seal(caller, everything=True)
    assert await told() == expected
    await write(caller, COMMENT)
    await write(hook, OTHER)
    expected = [("issue_comment", None, 1), ("issue_comment", None, 2), expected[0], expected[2]]
    assert await told() == expected
    assert await told(limit=2) == expected[:2]
    assert await told(Filter(channel="hook")) == [
        ("issue_comment", None, 1), ("manual_note", "run-1", 1), ("issue_comment", "run-1", 1)
    ]  # fmt: skip
    assert await told(Filter(source_kind=SourceKind.RUN)) == []
    [_, comment, *_] = await service.log.sources(caller)
    assert (comment.principal, comment.channel, comment.source) == ("user:ana", "test", COMMENT)
