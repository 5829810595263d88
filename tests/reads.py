"""How often a record counts as read, asked of every place that says so."""

from __future__ import annotations

from memtui.contract import BrowseRequest, Filter, Record, Scope, Use, UseTest
from memtui.pruning.candidates import PruneRules, Reason
from memtui.pruning.insights import InsightKind
from memtui.service import Caller, MemoryService
from memtui.service.context.pruning import PruneRequest


async def reads_of(
    service: MemoryService, caller: Caller, record: Record, key: str = "default"
) -> int:
    """Return how often the only record, of the binding `key`, counts as read.

    It fails where two places say otherwise.
    """
    record_id, place = record.handle.provider_record_id, Scope(company_id=record.scope.company_id)
    stats = await service.log.retrieval_stats(caller, key, [record_id])
    times = stats[record_id].count if stats else 0
    story = await service.log.provenance(caller, key, record.handle)
    assert story.retrieval_count == times

    at_once = PruneRequest(scope=place, kind=None, rules=PruneRules(unread_days=0))
    found = await service.pruning.everything(caller, at_once)
    reasons = {one.reason for one in found.plans[key].candidates}
    assert (Reason.NEVER_READ in reasons) is (times == 0)
    insights = {one.kind for one in found.insights}
    assert (InsightKind.NEVER_READ in insights) is (times == 0)

    never = Filter(uses=(UseTest(use=Use.READ),))
    page = await service.browse(caller, BrowseRequest(scope=place, binding_key=key, filter=never))
    assert [one.handle for one in page.records] == [record.handle] * (times == 0)
    return times
