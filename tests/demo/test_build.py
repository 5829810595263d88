"""The whole demo, as the service shows it."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from memtui.config import Settings
from memtui.contract import (
    BrowseRequest,
    Filter,
    OperationStatus,
    OperationType,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
)
from memtui.demo.content import load
from memtui.pruning.candidates import Reason
from memtui.service import MemoryService, Operation, open_service
from memtui.service.context.pruning import PruneRequest
from memtui.store.details import DETAILS
from tests.demo.conftest import CALLER
from tests.demos import END, Built, build_in

pytestmark = pytest.mark.slow

COMPANY = Scope(company_id="acme")


_whole_log: list[Operation] = []


async def _log(service: MemoryService, **chosen: object) -> Sequence[Operation]:
    """Return the operations with these values; the log is read once for all tests."""
    narrowed = Filter(until=END + timedelta(seconds=1), internal=True)
    before: int | None = None
    while not _whole_log or before is not None:
        page = await service.log.page(CALLER, narrowed, limit=1000, before=before)
        _whole_log.extend(page.operations)
        before = page.next_before
    wanted = chosen.items()
    return [one for one in _whole_log if all(getattr(one, name) == it for name, it in wanted)]


async def test_every_operation_says_what_its_type_may_say(service: MemoryService) -> None:
    seen: defaultdict[OperationType, set[str]] = defaultdict(set)
    for one in await _log(service):
        seen[one.operation_type] |= one.request.keys()
    assert len(seen) > 10
    assert not {kind: more for kind, names in seen.items() if (more := names - names_of(kind))}


def names_of(kind: OperationType) -> set[str]:
    return set(DETAILS[kind].__annotations__)


async def _records(service: MemoryService, key: str = "default") -> Sequence[Record]:
    request = BrowseRequest(scope=COMPANY, binding_key=key, limit=1000)
    return (await service.browse(CALLER, request)).records


def _kept(home: Path) -> dict[str, bytes]:
    """Return every file that holds memories; indexes and locks are derived."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in (home / "bindings").rglob("*")
        if path.is_file() and path.suffix != ".lock"
        if {"index", "made_folders"}.isdisjoint(path.parts)
    }


@pytest.mark.usefixtures("short_story")
async def test_two_homes_get_the_same_demo(tmp_path: Path) -> None:
    made = [await asyncio.to_thread(build_in, tmp_path / name) for name in ("one", "other")]
    of_the_place = {"home", "commands"}
    one, other = (each.summary.model_dump(exclude=of_the_place) for each in made)
    assert one == other
    assert one["operations"] > 50
    assert _kept(made[0].paths.data) == _kept(made[1].paths.data) != {}
    newest = []
    for each in made:
        opened = await open_service(each.paths, Settings(), clock=lambda: END)
        # Each log's salts are its own, and so are the commitments and digests made with them.
        kept = {"digest", "previous_digest", "salt", "salts", "absent"}
        page = await opened.log.page(CALLER, limit=1_000)
        newest.append([one.model_dump(exclude=kept) for one in page.operations])
        await opened.close()
    assert newest[0] == newest[1] != []


async def test_the_summary_says_what_is_there(built: Built, service: MemoryService) -> None:
    summary = built.summary
    assert 3_000 <= summary.operations <= 4_000
    assert 350 <= summary.records <= 500
    assert summary.runs == 400
    assert summary.made_until == END
    page = await service.log.page(CALLER, limit=1)
    assert page.total >= summary.operations
    assert [view.company_id for view in await service.companies.all()] == ["acme"]


async def test_every_type_and_status_is_in_the_log(service: MemoryService) -> None:
    log = await _log(service)
    # Nobody is there to stop anything while the demo is made, and no binding holds writes back.
    assert {one.status for one in log} == set(OperationStatus) - {
        OperationStatus.CANCELLED,
        OperationStatus.PENDING,
    }
    unused = {
        OperationType.FEEDBACK,
        OperationType.PROFILE,
        OperationType.NAMESPACES,
        OperationType.CHECK,
        OperationType.SEAL,
        OperationType.PURGE,
        OperationType.REPAIR,
        OperationType.REVIEW,
        OperationType.EMBED,
        OperationType.GAP,
    }
    assert {one.operation_type for one in log} >= set(OperationType) - unused
    assert {one.source.kind for one in log if one.source} == set(SourceKind)
    assert [one.seq for one in log] == list(range(len(log), 0, -1))
    assert log[0].started_at == END
    assert max(one.started_at for one in log) == END
    assert min(one.started_at for one in log) == END - timedelta(days=60)


async def test_usage_is_priced_and_unpriced(service: MemoryService) -> None:
    log = await _log(service, binding_key="research-kb")
    assert any(one.cost_usd for one in log)
    assert any(one.unpriced for one in log)
    usage = [usage for one in log for usage in one.usage]
    assert all(
        any(getattr(one, field) for one in usage)
        for field in ("input_tokens", "output_tokens", "embedding_tokens")
    )


async def test_something_of_everything_goes_wrong(service: MemoryService) -> None:
    kinds = Counter(one.error_kind for one in await _log(service) if one.error_kind)
    assert set(kinds) >= {"unavailable", "notfound", "invalid", "denied", "conflict", "unsupported"}
    [unknown] = await _log(service, status=OperationStatus.UNKNOWN)
    assert (await service.check_outcome(CALLER, unknown.operation_id)).happened
    ghosts = [one for one in await _log(service) if any(handle.ghost for handle in one.handles)]
    assert [one.operation_type for one in ghosts] == [OperationType.FORGET]
    empty = [
        one
        for one in await _log(service, operation_type=OperationType.QUERY)
        if one.status is OperationStatus.OK and one.result_count == 0
    ]
    assert len(empty) > 50


async def test_undone_records_are_back(service: MemoryService) -> None:
    undone = await _log(service, operation_type=OperationType.UNDO)
    assert len(undone) == 3
    texts = [record.text for record in await _records(service)]
    assert any(text.startswith("1. Say in the channel that you are on it.") for text in texts)


async def test_the_deploy_branch_is_the_first_hit(service: MemoryService) -> None:
    for scope in (COMPANY, COMPANY.model_copy(update={"project_id": "mech-fighters"})):
        answer = await service.query(CALLER, QueryRequest(scope=scope, query="deploy branch"))
        first = answer.snippets[0]
        assert first.text == "deploy_branch: release"
        assert first.source is not None
        assert first.source.kind is SourceKind.ISSUE_COMMENT
        assert first.source.issue_id == "ISS-31"


async def test_the_deploy_branch_was_another_one(service: MemoryService) -> None:
    scope = COMPANY.model_copy(update={"project_id": "mech-fighters"})
    request = QueryRequest(scope=scope, query="deploy branch", as_of=END - timedelta(days=40))
    assert (await service.query(CALLER, request)).snippets[0].text == "deploy_branch: main"
    [fact] = [one for one in await _records(service) if one.text == "deploy_branch: release"]
    history = await service.history(CALLER, fact.handle, scope)
    assert [version.text for version in history.versions] == [
        "deploy_branch: release",
        "deploy_branch: main",
    ]


async def test_poison_is_kept_exactly_and_secrets_are_not(service: MemoryService) -> None:
    stored = {
        record.text
        for key in ("default", "research-kb")
        for record in await _records(service, key)
        if "untrusted" in record.tags
    }
    poison = load().poison
    assert len(stored) == len(poison)
    assert {one.whole for one in poison if not one.redacted} <= stored
    [secret] = stored - {one.whole for one in poison}
    assert "AKIA" not in secret
    assert "[REDACTED:" in secret


async def test_records_are_of_every_sort(service: MemoryService) -> None:
    records = await _records(service)
    assert {record.source.kind for record in records if record.source} == set(SourceKind)
    assert {record.kind for record in records} >= {"note", "fact", "guidance", "reference"}
    assert any(record.pinned for record in records)
    assert any(record.expires_at for record in records)
    assert any(record.scope.subject_id for record in records)
    assert sum(len(record.text) > 500 for record in records) > 5
    texts = Counter(record.text for record in records)
    assert max(texts.values()) > 1
    ids = [record.handle.provider_record_id for record in records]
    read = await service.log.retrieval_stats(CALLER, "default", ids)
    assert 10 < len(set(ids) - set(read)) < len(ids) / 2


async def test_bindings_are_of_every_sort(service: MemoryService) -> None:
    views = {view.key: view for view in await service.bindings.all(CALLER)}
    assert set(views) == {"default", "research-kb", "handbook", "trial-kb"}
    assert views["handbook"].read_only
    assert not views["trial-kb"].enabled
    hosted = {(target.target_type, target.target_id) for target in views["research-kb"].targets}
    assert hosted == {("project", "docs-site"), ("agent", "scout")}
    for key in ("default", "research-kb", "handbook"):
        health = (await service.bindings.health(CALLER, key)).health
        assert (health.status, health.problems) == ("ok", ())


async def test_a_review_finds_what_is_left_over_for_the_reason_it_has(
    service: MemoryService,
) -> None:
    found = await service.pruning.everything(CALLER, PruneRequest(scope=COMPANY))
    candidates = [one for plan in found.plans.values() for one in plan.candidates]
    reasons: dict[str, set[str]] = defaultdict(set)
    for one in candidates:
        reasons[one.record.text].add(one.reason.value)
        if one.survivor is not None:
            [kept] = [
                item.record.text
                for plan in found.plans.values()
                for item in plan.items
                if item.record.handle == one.survivor
            ]
            reasons[kept].add(one.reason.value)
    leftovers = [one for one in load().leftovers if one.why != Reason.EXPIRED]
    redacted = {one.text for one in leftovers if one.why == Reason.REDACTED}
    assert not redacted & reasons.keys()
    for left in leftovers:
        assert left.text in redacted or left.why in reasons[left.text], left.text
    # A vault lists nothing that has expired, and the service lets no secret or long fact in.
    never = {Reason.EXPIRED, Reason.HOLDS_SECRET, Reason.TOO_LONG, Reason.SAME_MEANING}
    never.add(Reason.CONTRADICTED)  # a key stands once, unless another program writes it
    never.add(Reason.LEAST_WORTH)  # of a plan to a budget
    never.add(Reason.DID_NOT_HELP)  # nobody in it says of a result whether it helped
    never |= {Reason.REFERS_TO_GONE, Reason.SOURCE_CHANGED}  # its company has no repository
    never.add(Reason.SAID_ELSEWHERE)  # no two of its bindings say the same of one owner
    assert {one.reason for one in candidates} >= set(Reason) - never
