"""What has to see everything reads on after the first page, however few a provider lists in one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    Invalid,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.pruning.candidates import PruneRules
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.pruning import PruneRequest
from memtui.service.home.survey import PurgeRequest

ANA = Caller(company_id="local", principal="user:ana", channel="test")
OF_ANA = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


@pytest.fixture
def few_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    browse: Any = VaultAdapter.browse

    async def few(adapter: VaultAdapter, request: BrowseRequest) -> BrowsePage:
        least = request.model_copy(update={"limit": min(request.limit, 2)})
        page: BrowsePage = await browse(adapter, least)
        return page

    monkeypatch.setattr(VaultAdapter, "browse", few)


def _fact(text: str) -> WriteRequest:
    return WriteRequest(scope=OF_ANA, source=SOURCE, content=text, kind="fact")


@pytest.fixture
async def service(paths: Paths, few_a_page: None) -> AsyncIterator[MemoryService]:
    """Five facts of a user, who may have no more."""
    opened = await open_service(paths, load_settings(paths, fact_max_count=5))
    for number in range(5):
        await opened.write(ANA, _fact(f"Fact number {number} of the five"))
    yield opened
    await opened.close()


async def test_a_prune_plan_sees_all(service: MemoryService) -> None:
    answer = await service.pruning.plan(
        ANA, PruneRequest(scope=OF_ANA, rules=PruneRules(unread_days=0))
    )
    assert len({one.record.text for one in answer.plan.candidates}) == 5


async def test_a_context_holds_all(service: MemoryService) -> None:
    answer = await service.context(ANA, ContextRequest(scope=OF_ANA))
    assert [f"number {number} " in answer.text for number in range(5)] == [True] * 5


async def test_no_more_facts_than_there_may_be(service: MemoryService) -> None:
    with pytest.raises(Invalid, match="5"):
        await service.write(ANA, _fact("One too many"))


async def test_a_purge_forgets_all(service: MemoryService) -> None:
    await service.purging.apply(ANA, PurgeRequest(subject_id="ana", forget=True))
    assert (await service.browse(ANA, BrowseRequest(scope=OF_ANA))).records == ()
