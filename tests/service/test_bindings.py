from __future__ import annotations

import asyncio
import re
import threading
from typing import Any, ClassVar

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    Adapter,
    BindingContext,
    Conflict,
    Denied,
    Health,
    Invalid,
    MemtuiError,
    NotFound,
    QueryRequest,
    Scope,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, Membership, MemoryService, Role, TargetView, open_service
from memtui.service.answers import Capture
from memtui.store import bindings as table
from memtui.store.details import Details
from tests.service.conftest import start
from tests.service.fake import FakeAdapter, FakeConfig


class BrokenAdapter(FakeAdapter):
    """Opens, and then breaks in every way that it is told to."""

    key: ClassVar[str] = "broken"
    on_open: ClassVar[Exception | None] = None
    on_health: ClassVar[Exception | None] = None
    on_close: ClassVar[Exception | None] = None
    closed: ClassVar[list[str]] = []
    opened: ClassVar[list[BindingContext]] = []

    @classmethod
    async def open(cls, context: BindingContext):
        cls.opened.append(context)
        if cls.on_open is not None:
            raise cls.on_open
        return cls(context)

    async def health(self) -> Health:
        if self.on_health is not None:
            raise self.on_health
        return Health(version="1")

    async def close(self) -> None:
        self.closed.append(self.context.binding_key)
        if self.on_close is not None:
            raise self.on_close


@pytest.fixture
def broken() -> type[BrokenAdapter]:
    BrokenAdapter.on_open = BrokenAdapter.on_health = BrokenAdapter.on_close = None
    BrokenAdapter.closed, BrokenAdapter.opened = [], []
    return BrokenAdapter


@pytest.fixture
async def service(paths: Paths, settings: Settings, caller: Caller, fake, broken):
    providers: dict[str, type[Adapter]] = {"fake": FakeAdapter, "broken": BrokenAdapter}
    opened = await open_service(paths, settings, providers=providers, first_company=False)
    await opened.companies.add(caller, "Acme", link_templates={"issue": "https://t/{issue_id}"})
    await opened.bindings.add(caller, "default", "fake", {"label": "one"})
    await opened.bindings.set_target(caller, "company", "acme", "default")
    yield opened
    await opened.close()


async def requests(service: MemoryService, caller: Caller) -> list[tuple[Details, str]]:
    page = await service.log.page(caller)
    assert {operation.operation_type for operation in page.operations} == {"configure"}
    return [(operation.request, operation.status) for operation in page.operations]


async def test_every_change_is_in_the_log(service: MemoryService, caller: Caller) -> None:
    await service.bindings.add(caller, "second", "fake", {}, read_only=True, enabled=False)
    await service.bindings.update(caller, "second", enabled=True, read_only=False)
    await service.bindings.update(caller, "second", config={"label": "two"})
    await service.bindings.set_target(caller, "project", "p", "second")
    await service.bindings.clear_target(caller, "project", "p")
    await service.bindings.remove(caller, "second")
    assert await requests(service, caller) == [
        ({"remove_binding": "second"}, "ok"),
        ({"clear_target": "project", "target_id": "p"}, "ok"),
        ({"set_target": "project", "target_id": "p", "key": "second"}, "ok"),
        ({"update_binding": "second", "config": ["label"]}, "ok"),
        ({"update_binding": "second", "enabled": True, "read_only": False}, "ok"),
        (
            {"add_binding": "second", "provider": "fake", "enabled": False, "read_only": True},
            "ok",
        ),
        ({"set_target": "company", "target_id": "acme", "key": "default"}, "ok"),
        (
            {"add_binding": "default", "provider": "fake", "enabled": True, "read_only": False},
            "ok",
        ),
        ({"add_company": "acme"}, "ok"),
    ]
    assert {o.principal for o in (await service.log.page(caller)).operations} == {"user:ana"}


async def test_a_binding_is_shown_with_all_of_it(service: MemoryService, caller: Caller) -> None:
    await service.bindings.add(caller, "second", "fake", {"restore": False}, read_only=True)
    await service.bindings.set_target(caller, "agent", "coding", "second")
    await service.bindings.set_target(caller, "project", "p", "second")
    first, second = await service.bindings.all(caller)
    assert (first.key, first.config, first.targets) == (
        "default",
        {"label": "one"},
        (TargetView(target_type="company", target_id="acme"),),
    )
    assert (second.provider_key, second.read_only, second.enabled) == ("fake", True, True)
    assert not second.capabilities.restore
    assert first.capabilities.restore
    assert [(t.target_type, t.target_id) for t in second.targets] == [
        ("agent", "coding"),
        ("project", "p"),
    ]
    company = await service.companies.get(caller)
    assert company.link_templates == {"issue": "https://t/{issue_id}"}
    assert [found.company_id for found in await service.companies.all()] == ["acme"]


async def test_a_companys_name_and_links_are_changed_and_come_back(
    service: MemoryService, caller: Caller
) -> None:
    before = await service.companies.get(caller)
    links = {"run": " https://r/{run_id} ", "issue": ""}
    changed = await service.companies.update(caller, name=" Acme & Sons ", link_templates=links)
    assert (changed.name, changed.link_templates) == ("Acme & Sons", {"run": "https://r/{run_id}"})
    assert await service.companies.get(caller) == changed
    await service.companies.update(caller, name="Acme")
    assert (await service.companies.get(caller)).link_templates == changed.link_templates
    for _ in range(2):
        [last, *_] = await service.undoable(caller)
        await service.undo(caller, last.operation.operation_id)
    assert await service.companies.get(caller) == before


@pytest.mark.parametrize(
    ("name", "kind", "template", "said"),
    [
        ("a\nb", "run", "", "1 to 200 printable characters"),
        (" ", "run", "", "1 to 200 printable characters"),
        ("A", "isue", "https://t", "the kinds are issue_comment"),
        ("A", "issue", "https://t/{isue_id}", "{isue_id} is not part of a source"),
        ("A", "issue", "https://t/{issue_id", "a brace is not closed"),
        ("A", "issue", "ftp://t/{issue_id}", "opens only as https://"),
        ("A", "issue", "https://bo:hunter2secret@t/{issue_id}", "holds a secret"),
    ],
)
async def test_what_does_not_fit_a_company_changes_nothing(
    service: MemoryService, caller: Caller, name: str, kind: str, template: str, said: str
) -> None:
    before = await service.companies.get(caller)
    with pytest.raises(Invalid, match=re.escape(said)):
        await service.companies.update(caller, name=name, link_templates={kind: template})
    assert await service.companies.get(caller) == before


async def test_a_target_moves_to_the_binding_that_is_set_last(
    service: MemoryService, caller: Caller
) -> None:
    await service.bindings.add(caller, "second", "fake", {})
    with pytest.raises(Invalid, match="is that of acme; name no other"):
        await service.bindings.set_target(caller, "company", "other", "second")
    await service.bindings.set_target(caller, "company", "", "second")
    resolved = await service.resolve(caller, Scope(company_id="acme"))
    assert resolved.binding_key == "second"
    assert [len(view.targets) for view in await service.bindings.all(caller)] == [0, 1]


async def test_a_removed_binding_takes_its_targets_and_leaves_the_memories(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    await service.write(caller, note)
    await service.bindings.remove(caller, "default")
    assert await service.bindings.all(caller) == []
    with pytest.raises(NotFound, match="No binding serves"):
        await service.resolve(caller, note.scope)
    await service.bindings.add(caller, "default", "fake", {})
    answer = await service.query(
        caller, QueryRequest(scope=note.scope, query="deploy", binding_key="default")
    )
    assert [snippet.text for snippet in answer.snippets] == [note.content]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s, c: s.bindings.add(c, "UPPER", "fake", {}), Invalid, "not a binding key"),
        (lambda s, c: s.bindings.add(c, "", "fake", {}), Invalid, "not a binding key"),
        (lambda s, c: s.bindings.add(c, "../up", "fake", {}), Invalid, "not a binding key"),
        (lambda s, c: s.bindings.add(c, "x" * 64, "fake", {}), Invalid, "not a binding key"),
        (lambda s, c: s.bindings.add(c, "a\n", "fake", {}), Invalid, "not a binding key"),
        (lambda s, c: s.bindings.add(c, "new", "nope", {}), Invalid, "no provider nope"),
        (lambda s, c: s.bindings.add(c, "new", "fake", {"lable": 1}), Invalid, "its keys are: lab"),
        (lambda s, c: s.bindings.add(c, "new", "fake", {"restore": "so"}), Invalid, "at restore"),
        (lambda s, c: s.bindings.add(c, "default", "fake", {}), Conflict, "already a binding"),
        (
            lambda s, c: s.bindings.update(c, "nope", enabled=False),
            NotFound,
            "the bindings are default",
        ),
        (lambda s, c: s.bindings.update(c, "default", config={"x": 1}), Invalid, "does not fit"),
        (lambda s, c: s.bindings.remove(c, "nope"), NotFound, "no binding nope"),
        (
            lambda s, c: s.bindings.set_target(c, "team", "t", "default"),
            Invalid,
            "'team' is not a kind of target",
        ),
        (
            lambda s, c: s.bindings.set_target(c, "project", "", "default"),
            Invalid,
            "printable characters",
        ),
        (lambda s, c: s.bindings.set_target(c, "agent", "a\x1b", "default"), Invalid, "printable"),
        (
            lambda s, c: s.bindings.set_target(c, "project", "p", "nope"),
            NotFound,
            "no binding nope",
        ),
        (lambda s, c: s.bindings.clear_target(c, "project", "p"), NotFound, "No binding is set"),
        (lambda s, c: s.companies.add(c, "Again"), Conflict, "already a company"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_logged_and_changes_nothing(
    service: MemoryService, caller: Caller, change, error: type[MemtuiError], message: str
) -> None:
    before = await service.bindings.all(caller)
    with pytest.raises(error, match=message):
        await change(service, caller)
    assert await service.bindings.all(caller) == before
    [operation] = (await service.log.page(caller, limit=1)).operations
    assert (operation.operation_type, operation.error_kind) == (
        "configure",
        error.__name__.lower(),
    )
    assert operation.status == ("conflict" if error is Conflict else "error")


async def test_a_company_id_is_a_slug(service: MemoryService) -> None:
    for company_id in ("Acme", "a b", "../x", "é"):
        caller = Caller(company_id=company_id, principal="p", channel="d")
        with pytest.raises(Invalid, match="not a company id"):
            await service.companies.add(caller, "Name")


@pytest.mark.parametrize(
    "config", [{"label": "ghp_" + "a1B2" * 9}, {"label": "https://ana:opensesame@host/"}]
)
async def test_a_config_that_holds_a_secret_is_refused(
    service: MemoryService, caller: Caller, config: dict[str, str]
) -> None:
    with pytest.raises(Invalid, match="holds a secret"):
        await service.bindings.add(caller, "new", "fake", config)
    with pytest.raises(Invalid, match="holds a secret"):
        await service.bindings.update(caller, "default", config=config)
    for operation in (await service.log.page(caller, limit=2)).operations:
        assert config["label"] not in operation.model_dump_json()


async def test_a_secret_that_got_into_a_config_is_not_shown(
    service: MemoryService, caller: Caller
) -> None:
    with service._runtime.database.write() as connection:
        row = table.binding(connection, "acme", "default")
        assert row is not None
        table.update_binding(connection, row.binding_id, {"config": {"password": "open sesame"}})
    assert (await service.bindings.all(caller))[0].config == {"password": "[REDACTED:PASSWORD]"}


@pytest.mark.parametrize(
    "change",
    [
        lambda s, c: s.companies.add(c.model_copy(update={"company_id": "new"}), "New"),
        lambda s, c: s.bindings.add(c, "new", "fake", {}),
        lambda s, c: s.bindings.update(c, "default", enabled=False),
        lambda s, c: s.bindings.remove(c, "default"),
        lambda s, c: s.bindings.set_target(c, "project", "p", "default"),
        lambda s, c: s.bindings.clear_target(c, "company", "acme"),
    ],
)
async def test_read_only_refuses_every_change_and_logs_it(
    paths: Paths, settings: Settings, caller: Caller, fake, change
) -> None:
    await (await start(paths, settings, caller)).close()
    service = await start(paths, settings.model_copy(update={"read_only": True}), caller)
    try:
        before = await service.bindings.all(caller)
        with pytest.raises(Denied, match="runs read-only"):
            await change(service, caller)
        assert await service.bindings.all(caller) == before
        assert [view.company_id for view in await service.companies.all()] == ["acme"]
        logged = [
            operation
            for company_id in ("acme", "new")
            for operation in (
                await service.log.page(caller.model_copy(update={"company_id": company_id}))
            ).operations
            if operation.status == "denied"
        ]
        assert [operation.operation_type for operation in logged] == ["configure"]
    finally:
        await service.close()


async def test_a_taken_key_leaves_the_open_adapter_alone(
    service: MemoryService, caller: Caller, broken
) -> None:
    await service.bindings.add(caller, "b", "broken", {"label": "first"})
    with pytest.raises(Conflict):
        await service.bindings.add(caller, "b", "broken", {"label": "second"})
    assert (len(broken.opened), broken.closed) == (1, [])


async def test_a_provider_that_does_not_open_is_not_bound(
    service: MemoryService, caller: Caller, broken
) -> None:
    broken.on_open = Unavailable("Nobody listens there.", sent=True)
    with pytest.raises(Unavailable, match="Nobody listens"):
        await service.bindings.add(caller, "b", "broken", {})
    assert [view.key for view in await service.bindings.all(caller)] == ["default"]


@pytest.mark.parametrize("error", [Unavailable("It is down."), KeyError("bug"), OSError("disk")])
@pytest.mark.parametrize("where", ["on_health", "on_open"])
async def test_the_health_of_a_broken_provider_is_down_and_never_raises(
    service: MemoryService, caller: Caller, broken, error: Exception, where: str
) -> None:
    await service.bindings.add(caller, "b", "broken", {})
    setattr(broken, where, error)
    if where == "on_open":
        await service.bindings.update(caller, "b", config={"label": "opens again"})
    for _ in range(4):
        found = await service.bindings.health(caller, "b")
        assert found.health.status == "down"
    assert found.breaker_open
    assert "failed 3 times in a row" in found.health.message
    assert (await service.bindings.health(caller, "default")).health.status == "ok"


async def test_health_says_what_there_is_to_know(
    service: MemoryService, caller: Caller, broken, scope: Scope
) -> None:
    await service.bindings.add(caller, "b", "broken", {})
    for _ in range(3):
        await service.query(caller, QueryRequest(scope=scope, query="x", binding_key="b"))
    found = await service.bindings.health(caller, "b")
    assert (found.key, found.health.version, found.breaker_open) == ("b", "1", False)
    logged = (await service.log.page(caller)).operations
    assert list(found.latencies_ms) == [
        operation.latency_ms for operation in reversed(logged) if operation.binding_key == "b"
    ]
    assert len(found.latencies_ms) == 4
    await service.bindings.update(caller, "b", enabled=False)
    assert (await service.bindings.health(caller, "b")).health.message == "disabled"
    with pytest.raises(NotFound):
        await service.bindings.health(caller, "nope")


async def test_a_provider_that_fails_to_close_keeps_nothing_open(
    paths: Paths, settings: Settings, caller: Caller, fake, broken, caplog
) -> None:
    service = await open_service(
        paths, settings, providers={"broken": BrokenAdapter}, first_company=False
    )
    await service.companies.add(caller, "Acme")
    for key in ("a", "b", "c"):
        await service.bindings.add(caller, key, "broken", {})
    broken.on_close = RuntimeError("stuck")
    await service.bindings.update(caller, "a", config={"label": "x"})
    await service.bindings.remove(caller, "b")
    await service.close()
    assert broken.closed == ["a", "b", "c"]
    assert "failed to close" in caplog.text


async def test_a_provider_that_is_slow_to_open_holds_up_no_other(
    service: MemoryService, caller: Caller, broken, scope: Scope, monkeypatch
) -> None:
    await service.bindings.add(caller, "b", "broken", {})
    await service.bindings.update(caller, "b", config={"label": "opens again"})
    opening, release = asyncio.Event(), asyncio.Event()
    plain = FakeAdapter.__dict__["open"].__func__

    async def slow(cls, context):
        opening.set()
        await release.wait()
        return await plain(cls, context)

    monkeypatch.setattr(BrokenAdapter, "open", classmethod(slow))
    request = QueryRequest(scope=scope, query="x", binding_key="b")
    waiting = asyncio.ensure_future(service.query(caller, request))
    await opening.wait()
    await service.bindings.update(caller, "default", config={})
    await service.query(caller, request.model_copy(update={"binding_key": "default"}))
    assert not waiting.done()
    release.set()
    await waiting


async def test_what_a_provider_can_do_is_learnt_again_when_it_opens_with_another_config(
    service: MemoryService, caller: Caller, scope: Scope
) -> None:
    [before] = await service.bindings.all(caller)
    await service.bindings.update(caller, "default", config={"restore": False})
    await service.query(caller, QueryRequest(scope=scope, query="x"))
    [after] = await service.bindings.all(caller)
    assert (before.capabilities.restore, after.capabilities.restore) == (True, False)
    assert after == before.model_copy(
        update={
            "config": {"restore": False},
            "capabilities": before.capabilities.model_copy(update={"restore": False}),
        }
    )


async def test_a_binding_that_is_opened_for_changes_can_be_changed_at_once(
    paths: Paths, settings: Settings, caller: Caller
) -> None:
    service = await open_service(paths, settings, first_company=False)
    await service.companies.add(caller, "Acme")

    async def writable() -> bool:
        [view] = await service.bindings.all(caller)
        return view.capabilities.writable

    try:
        await service.bindings.add(caller, "table", "facts", {}, read_only=True)
        assert not await writable()
        await service.bindings.update(caller, "table", read_only=False)
        assert await writable()
        closing = await service.bindings.update(caller, "table", read_only=True)
        await service.bindings.health(caller, closing.key)
        assert not await writable()
        await service.undo(caller)
        assert await writable()
        await service.companies.set_read_only(caller, read_only=True)
        await service.bindings.health(caller, "table")
        assert await writable()
    finally:
        await service.close()


class SecretConfig(FakeConfig):
    token_secret: str = "OURS"
    other_secret: str | None = None


async def test_the_secrets_of_a_config_are_there_without_blocking_the_loop(
    service: MemoryService, caller: Caller, broken, scope: Scope, monkeypatch
) -> None:
    threads: dict[str, int] = {}

    def get_password(_service: str, name: str) -> str:
        threads[name] = threading.get_ident()
        return f"the keyring's {name}"

    async def open_plain(cls, context: BindingContext):
        cls.opened.append(context)
        return cls(context.model_copy(update={"config": {}}))

    monkeypatch.setattr("keyring.get_password", get_password)
    monkeypatch.setattr(BrokenAdapter, "config_model", SecretConfig)
    monkeypatch.setattr(BrokenAdapter, "open", classmethod(open_plain))
    monkeypatch.setenv("IN_THE_ENVIRONMENT", "plain")
    await service.bindings.add(caller, "b", "broken", {"other_secret": "THEIRS"})
    secret = broken.opened[-1].secret
    assert (secret("OURS"), secret("THEIRS")) == ("the keyring's OURS", "the keyring's THEIRS")
    assert set(threads) == {"OURS", "THEIRS"}
    assert threading.get_ident() not in threads.values()
    assert secret("IN_THE_ENVIRONMENT") == "plain"
    assert (await service.bindings.all(caller))[-1].config == {"other_secret": "THEIRS"}
    for value in ("hunter2222", "AKIA" + "Q" * 16):
        with pytest.raises(Invalid, match="holds a secret"):
            await service.bindings.update(caller, "b", config={"other_secret": value})


async def test_a_read_only_company_opens_its_adapter_once(
    paths: Paths, settings: Settings, caller: Caller, fake, broken, scope: Scope
) -> None:
    service = await open_service(
        paths, settings, providers={"broken": BrokenAdapter}, first_company=False
    )
    try:
        await service.companies.add(caller, "Acme")
        await service.bindings.add(caller, "b", "broken", {})
        await service.companies.set_read_only(caller, read_only=True)
        broken.opened.clear()
        for _ in range(2):
            await service.query(caller, QueryRequest(scope=scope, query="x", binding_key="b"))
            assert (await service.bindings.health(caller, "b")).health.status == "ok"
        assert [context.read_only for context in broken.opened] == [True]
    finally:
        await service.close()


async def test_a_provider_that_cannot_say_what_it_starts_is_not_opened(
    service: MemoryService,
    caller: Caller,
    broken: type[BrokenAdapter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(broken, "starts", fails)
    with pytest.raises(Unavailable, match=r"broken failed unexpectedly \(ZeroDivisionError\)"):
        await service.bindings.add(caller, "b", "broken", {})
    assert not broken.opened


async def test_a_trial_opens_once_and_leaves_nothing(
    paths: Paths, service: MemoryService, caller: Caller, broken: type[BrokenAdapter]
) -> None:
    logged = (await service.log.page(caller)).total
    folder = paths.binding_dir("acme/new")
    for error in (None, Unavailable("It is down.")):
        broken.on_open = error
        for _ in range(4):  # more than what opens a breaker
            if error is None:
                found = await service.bindings.trial(caller, "new", "broken", {}, read_only=True)
                assert (found.version, found.records) == ("1", 0)
            else:
                with pytest.raises(Unavailable, match=r"^It is down\.$"):
                    await service.bindings.trial(caller, "new", "broken", {})
    assert broken.closed == ["new"] * 4
    assert broken.opened[0].read_only
    assert not any(context.data_dir.exists() for context in broken.opened)
    assert not folder.exists()
    with pytest.raises(Conflict, match="already a binding default"):
        await service.bindings.trial(caller, "default", "fake", {})
    with pytest.raises(NotFound):
        await service.bindings.trial(caller, "new", "fake", {}, configures=True)
    with pytest.raises(Invalid, match="Not A Key"):
        await service.bindings.trial(caller, "Not A Key", "fake", {})
    assert (await service.log.page(caller)).total == logged
    broken.on_open = None
    await service.bindings.add(caller, "new", "broken", {})
    folder.joinpath("kept").write_text("")
    await service.bindings.trial(caller, "new", "broken", {}, configures=True)
    assert broken.opened[-1].data_dir == folder


SWITCHES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"enabled": False}, {"enabled": False}), ({"read_only": True}, {"read_only": True}),
    ({"embeds": False}, {"embeds": False}),
    ({"capture": {Capture.POST_RUN: True}}, {"capture_post_run": True}),
    ({"capture": {Capture.COMMENTS: True, Capture.DOCUMENTS: True}},
     {"capture_comments": True, "capture_documents": True}),
    ({"read_only": True, "capture": {Capture.COMMENTS: False}},
     {"read_only": True, "capture_comments": False}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "changes"), SWITCHES)
async def test_a_switch_is_turned_logged_and_taken_back_alone(
    service: MemoryService, caller: Caller, given: dict[str, Any], changes: dict[str, Any]
) -> None:
    await service.bindings.add(caller, "beside", "fake", {})
    before = {one.key: one.model_dump() for one in await service.bindings.all(caller)}
    changed = await service.bindings.update(caller, "default", **given)
    done = (await service.log.page(caller, limit=1)).operations[0]
    assert done.request == {"update_binding": "default", **changes}
    assert (done.operation_type, done.binding_key, done.status) == ("configure", "default", "ok")
    for view in await service.bindings.all(caller):
        expected = before[view.key] | (changes if view.key == "default" else {})
        found = view.model_dump()
        assert {name: found[name] for name in expected if name != "health"} == {
            name: value for name, value in expected.items() if name != "health"
        }
        if view.key == "default":
            assert view == changed
    await service.undo(caller)
    again = {one.key: one.model_dump() for one in await service.bindings.all(caller)}
    for key, was in before.items():
        assert {name: again[key][name] for name in changes} == {n: was[n] for n in changes}


async def test_a_company_is_changed_logged_and_taken_back_alone(
    service: MemoryService, caller: Caller
) -> None:
    other = caller.model_copy(update={"company_id": "other"})
    links = {"issue": "https://t/{issue_id}", "run": "https://r/{run_id}"}
    await service.companies.add(other, "Other", link_templates=links)
    for name, request, view in (
        ({"link_templates": {"run": "", "activity": "https://a/{activity_id} "}},
         {"name": None, "links": ["activity", "run"]},
         {"link_templates": {"issue": links["issue"], "activity": "https://a/{activity_id}"}}),
        ({"name": " New "}, {"name": "New", "links": []}, {"name": "New"}),
        ({"name": "N", "link_templates": {"issue": ""}}, {"name": "N", "links": ["issue"]},
         {"name": "N", "link_templates": {"run": links["run"]}}),
    ):  # fmt: skip
        before = {one.company_id: one for one in await service.companies.all()}
        changed = await service.companies.update(other, **name)
        done = (await service.log.page(other, limit=1)).operations[0]
        assert done.request == {"update_company": "other", **request}
        assert changed == before["other"].model_copy(update=view)
        assert await service.companies.all() == [before["acme"], changed]
        await service.undo(other)
        assert await service.companies.get(other) == before["other"]
    for read_only in (True, False):
        changed = await service.companies.set_read_only(other, read_only=read_only)
        done = (await service.log.page(other, limit=1)).operations[0]
        assert (changed.read_only, done.request) == (read_only, {"set_read_only": read_only})
        assert not (await service.companies.get(caller)).read_only


async def test_who_may_enter_which_company(service: MemoryService, caller: Caller) -> None:
    for number, name in enumerate(("one", "two", "three")):
        there = caller.model_copy(update={"company_id": name})
        await service.companies.add(there, name.title())
        if number:
            await service.members.set(there, Membership(principal="user:ana", role=Role.OWNER))
        if number == 2:
            bea = Membership(principal="user:bea", role=Role.MEMBER, project_id="p")
            await service.members.set(there, bea)
    for principal, acts_for, expected in (
        (None, None, ["acme", "one", "two", "three"]),
        ("user:ana", None, ["acme", "one", "two", "three"]),
        ("user:bea", None, ["acme", "one", "three"]), ("user:eve", None, ["acme", "one"]),
        ("agent:bot", None, ["acme", "one"]), ("agent:bot", "user:bea", ["acme", "one", "three"]),
        ("agent:bot", "user:eve", ["acme", "one"]), ("user:eve", "user:bea", ["acme", "one"]),
    ):  # fmt: skip
        found = await service.companies.all(principal, acts_for)
        assert [one.company_id for one in found] == expected, (principal, acts_for)
