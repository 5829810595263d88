"""A fact that comes from an issue is marked once a hook captured something of it later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import CorrectRequest, Record, Scope, SourceRef, WriteRequest
from memtui.pruning.candidates import Reason
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.pruning import PruneRequest

ANA = Caller(company_id="local", principal="user:ana", channel="test")
HOOK = ANA.model_copy(update={"channel": "hook"})
WEB = Scope(company_id="local", project_id="web")
ISSUE = {"kind": "issue", "issue_id": "ISS-12"}
COMMENT = {"kind": "issue_comment", "issue_id": "ISS-12", "comment_id": "2"}
NEXT = {"kind": "issue_comment", "issue_id": "ISS-12", "comment_id": "3"}
PLAN = {"kind": "issue_document", "issue_id": "ISS-12", "document_key": "plan"}


class Clock:
    """A day passes at every look."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(days=1)
        return self.now


@pytest.fixture
async def service(paths: Paths) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, load_settings(paths), clock=Clock())
    templates = {"issue": "https://tracker.example/i/{issue_id}"}
    await opened.companies.update(ANA, link_templates=templates)
    yield opened
    await opened.close()


async def wrote(
    service: MemoryService, text: str, source: dict[str, str], *, kind: str = "fact",
    caller: Caller = ANA, scope: Scope = WEB,
) -> Record:  # fmt: skip
    request = WriteRequest(
        scope=scope, source=SourceRef(company_id="local", **source), content=text, kind=kind
    )
    [record] = (await service.write(caller, request)).records
    return record


async def captured(
    service: MemoryService, text: str, source: dict[str, str], scope: Scope = WEB
) -> Record:
    return await wrote(service, text, source, kind="note", caller=HOOK, scope=scope)


async def changed(service: MemoryService) -> dict[str, str]:
    """Return the sentences on the facts whose source has changed, by text."""
    request = PruneRequest(scope=Scope(company_id="local"), kind=None)
    [plan] = (await service.pruning.everything(ANA, request)).plans.values()
    return {one.record.text: one.sentence for one in plan.candidates
            if one.reason is Reason.SOURCE_CHANGED}  # fmt: skip


async def test_an_issue_changes_with_whatever_is_captured_of_it(service: MemoryService) -> None:
    await captured(service, "We deploy on Mondays.", COMMENT)
    await wrote(service, "Deploys are on Mondays", ISSUE)
    await wrote(service, "Deploys start at nine", ISSUE)
    await wrote(service, "The plan is a page", PLAN)
    await wrote(service, "The team is on issue 12", ISSUE, kind="note")
    assert not await changed(service)  # another fact of the issue is no change of it
    await captured(service, "Fridays, rather.", NEXT)
    found = await changed(service)
    assert [*found] == ["Deploys are on Mondays", "Deploys start at nine"]
    assert (
        "Its source, issue ISS-12, has changed: comment 3 of issue ISS-12 was captured"
        in found["Deploys are on Mondays"]
    )
    await wrote(service, "Deploys are on Fridays", ISSUE)
    assert len(await changed(service)) == 2


async def test_a_comment_changes_when_it_is_captured_again(service: MemoryService) -> None:
    first = await captured(service, "We deploy on Mondays.", COMMENT)
    await wrote(service, "Deploys are on Mondays", COMMENT)
    await captured(service, "Another comment.", NEXT)
    assert not await changed(service)
    request = CorrectRequest(
        scope=WEB, handle=first.handle, text="We deploy on Fridays.",
        source=SourceRef(company_id="local", **COMMENT),
    )  # fmt: skip
    await service.correct(ANA, request)
    assert not await changed(service)  # a person corrected the memory, not the comment
    current = (await service.get(ANA, first.handle, WEB)).record
    assert current is not None
    again = request.model_copy(update={"text": "We deploy on Sundays.",
                                       "revision": current.revision})  # fmt: skip
    await service.correct(HOOK, again)
    [sentence] = (await changed(service)).values()
    assert sentence.startswith("Its source, comment 2 of issue ISS-12, was captured again on 2026")


async def test_the_same_text_once_more_changes_nothing(service: MemoryService) -> None:
    await wrote(service, "Deploys are on Mondays", COMMENT)
    await captured(service, "We deploy on Mondays.", COMMENT)  # first of all, so not again
    assert not await changed(service)
    await wrote(service, "Deploys are of ISS-12", ISSUE)
    await captured(service, "We deploy on Mondays.", COMMENT)  # as into another binding
    assert not await changed(service)
    await captured(service, "We deploy on Fridays.", COMMENT)
    found = await changed(service)
    assert [*found] == ["Deploys are on Mondays", "Deploys are of ISS-12"]
    assert "issue ISS-12, has changed: comment 2 of" in found["Deploys are of ISS-12"]


async def test_an_address_names_an_issue_by_the_link_template(service: MemoryService) -> None:
    for text, url in {
        "Deploys are on Mondays": "https://tracker.example/i/ISS-12#top",
        "Deploys are slow": "https://tracker.example/i/ISS-120",
        "Deploys are long": "https://elsewhere.example/i/ISS-12",
    }.items():
        await wrote(service, text, {"kind": "external_document", "external_ref": url})
    await captured(service, "Fridays, rather.", NEXT)
    assert [*await changed(service)] == ["Deploys are on Mondays"]


async def test_what_is_captured_for_others_changes_nothing(service: MemoryService) -> None:
    await wrote(service, "Deploys are on Mondays", ISSUE)
    for owner in ({"subject_id": "mei"}, {"project_id": "games"}):
        await captured(service, "Fridays, rather.", NEXT, Scope(company_id="local", **owner))
        assert not await changed(service)


async def test_the_risk_is_kept_found_again_and_dismissed(service: MemoryService) -> None:
    fact = await wrote(service, "Deploys are on Mondays", ISSUE)
    assert not (await service.risks.check(ANA)).risky
    await captured(service, "Fridays, rather.", NEXT)
    [risky] = (await service.risks.check(ANA)).risky
    assert risky.severity == "outdated"
    await service.risks.dismiss(ANA, "default", fact.handle.provider_record_id)
    assert not await changed(service)
    assert (await service.risks.check(ANA)).figures.risky == 0
