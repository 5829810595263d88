from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memtui.config import Paths, Settings
from memtui.contract import Denied, Invalid, NotFound, QueryRequest, Scope
from memtui.service import Caller, MemoryService
from tests.service.conftest import start

EVERYTHING = Scope(company_id="acme", project_id="p", agent_id="coding")


@pytest.fixture
async def routed(
    paths: Paths, settings: Settings, caller: Caller, fake
) -> AsyncIterator[MemoryService]:
    service = await start(paths, settings, caller)
    for key in ("by-key", "by-project", "by-agent"):
        await service.bindings.add(caller, key, "fake", {})
    await service.bindings.set_target(caller, "project", "p", "by-project")
    await service.bindings.set_target(caller, "agent", "coding", "by-agent")
    yield service
    await service.close()


@pytest.mark.parametrize(
    ("scope", "key", "expected"),
    [
        (EVERYTHING, "by-key", ("by-key", "because you chose it")),
        (EVERYTHING, None, ("by-project", "for the project p")),
        (EVERYTHING.model_copy(update={"project_id": "q"}), None,
         ("by-agent", "for the agent coding")),
        (Scope(company_id="acme", project_id="q", agent_id="other"), None,
         ("default", "company default")),
        (Scope(company_id="acme"), None, ("default", "company default")),
    ],
)  # fmt: skip
async def test_the_narrowest_rule_wins_and_says_why(
    routed: MemoryService, caller: Caller, scope: Scope, key: str | None, expected: tuple[str, str]
) -> None:
    found = await routed.resolve(caller, scope, key)
    assert (found.binding_key, found.reason) == expected
    answer = await routed.query(caller, QueryRequest(scope=scope, query="x", binding_key=key))
    assert (answer.binding_key, answer.bindings[0].binding_reason) == expected
    assert (
        answer.operation_id == (await routed.log.page(caller, limit=1)).operations[0].operation_id
    )


async def test_a_project_named_like_an_agent_takes_only_its_own_rule(
    routed: MemoryService, caller: Caller
) -> None:
    found = await routed.resolve(caller, Scope(company_id="acme", project_id="coding"))
    assert found.reason == "company default"


async def test_a_cleared_rule_falls_back_to_the_next(routed: MemoryService, caller: Caller) -> None:
    for expected in ("by-project", "by-agent", "default"):
        assert (await routed.resolve(caller, EVERYTHING)).binding_key == expected
        if expected != "default":
            rules = {"by-project": ("project", "p"), "by-agent": ("agent", "coding")}
            await routed.bindings.clear_target(caller, *rules[expected])
    await routed.bindings.clear_target(caller, "company", "acme")
    with pytest.raises(NotFound, match="No binding serves acme"):
        await routed.resolve(caller, EVERYTHING)


async def test_a_disabled_binding_is_refused_rather_than_passed_over(
    routed: MemoryService, caller: Caller
) -> None:
    await routed.bindings.update(caller, "by-project", enabled=False)
    with pytest.raises(Denied, match="by-project is disabled"):
        await routed.resolve(caller, EVERYTHING)
    with pytest.raises(Denied, match="by-project is disabled"):
        await routed.query(caller, QueryRequest(scope=EVERYTHING, query="x"))
    assert (await routed.log.page(caller, limit=1)).operations[0].status == "denied"


async def test_what_does_not_exist_is_said(routed: MemoryService, caller: Caller) -> None:
    with pytest.raises(NotFound, match="no binding nope in acme"):
        await routed.resolve(caller, EVERYTHING, "nope")
    ghost = Caller(company_id="ghost", principal="p", channel="d")
    with pytest.raises(NotFound, match="no company ghost"):
        await routed.resolve(ghost, Scope(company_id="ghost"))
    with pytest.raises(Denied, match="another company than yours"):
        await routed.resolve(ghost, EVERYTHING)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent_id", ""),
        ("project_id", "a\x1b[31m"),
        ("issue_id", "a\nb"),
        ("run_id", "\u202eevil"),
        ("subject_id", "\x00"),
        ("project_id", "x" * 201),
    ],
)
async def test_an_id_that_cannot_be_shown_is_refused_and_the_refusal_logged(
    routed: MemoryService, caller: Caller, field: str, value: str
) -> None:
    scope = Scope.model_validate({"company_id": "acme", field: value})
    with pytest.raises(Invalid, match=f"The {field} of the scope"):
        await routed.query(caller, QueryRequest(scope=scope, query="x"))
    operation = (await routed.log.page(caller, limit=1)).operations[0]
    assert (operation.status, operation.error_kind) == ("error", "invalid")
    assert getattr(operation.scope, field) == value
