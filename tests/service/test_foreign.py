"""Providers of other packages, installed as packages are: what they break is their own binding."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from textwrap import dedent

import pytest

from memtui.channels.cli.doctor import run_checks
from memtui.channels.cli.session import Invocation
from memtui.config import Paths, load_settings
from memtui.contract import (
    BrowseRequest,
    ForgetRequest,
    Invalid,
    MemtuiError,
    OperationStatus,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.impact import ImpactRequest

Install = Callable[..., None]
Start = Callable[[], Awaitable[MemoryService]]

CALLER = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local")
QUERY = QueryRequest(scope=SCOPE, query="tabs", binding_key="acme")
WRITE = WriteRequest(
    scope=SCOPE,
    source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
    content="likes tabs",
    binding_key="acme",
)

GOOD = """
    import asyncio, sys, time
    from pydantic import BaseModel
    from memtui.contract import *

    class Config(BaseModel):
        pass

    class Acme(Adapter):
        key = "acme"
        config_model = Config
        capabilities = Capabilities(browse=True, history=True, namespaces=True, watch=True)

        @classmethod
        async def open(cls, context):
            adapter = cls()
            adapter.held = {}
            adapter.changed = asyncio.Event()
            return adapter

        async def write(self, request):
            handle = RecordHandle(provider_key="acme", provider_record_id=str(len(self.held)))
            record = Record(handle=handle, text=request.content, scope=request.scope)
            self.held[handle] = record
            self.changed.set()
            return WriteReply(records=(handle,))

        async def query(self, request):
            return ContextBundle(snippets=tuple(Snippet(**dict(r)) for r in self.held.values()))

        async def get(self, handle, scope):
            return self.held.get(handle)

        async def forget(self, request):
            for handle in request.handles:
                self.held.pop(handle, None)
            return ForgetReply()

        async def browse(self, request):
            return BrowsePage(records=tuple(self.held.values()))

        async def watch(self):
            await self.changed.wait()
            yield list(self.held)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package `acme-memory` whose module is GOOD and what is given after it."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def write(
        more: str = "", *, before: str = "", package: str = "acme-memory", name: str = "acme"
    ) -> None:
        module = package.replace("-", "_")
        (site / f"{module}.py").write_text(
            dedent(before) + dedent(GOOD) + dedent(more), encoding="utf-8"
        )
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[memtui.providers]\n{name} = {module}:Acme\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return write


@pytest.fixture
def timeout_ms() -> int:
    return 10_000


@pytest.fixture
async def start(paths: Paths, timeout_ms: int) -> AsyncIterator[Start]:
    """Open the service, once the packages are there; closed at the end, whatever hangs."""
    async with AsyncExitStack() as stack:

        async def opened() -> MemoryService:
            settings = load_settings(paths, principal="user:ana", provider_timeout_ms=timeout_ms)
            service = await open_service(paths, settings)
            stack.push_async_callback(service.close)
            return service

        yield opened
        stack_closing = stack.pop_all()
    async with asyncio.timeout(20):
        await stack_closing.aclose()


async def add(service: MemoryService) -> None:
    await service.bindings.add(CALLER, "acme", "acme", {})


async def the_rest_serves(service: MemoryService) -> None:
    async with asyncio.timeout(20):
        page = await service.browse(CALLER, BrowseRequest(scope=SCOPE, binding_key="default"))
    assert page.total == 0


async def test_a_good_one_works(install: Install, start: Start) -> None:
    install()
    service = await start()
    await add(service)
    watching = aiter(service.watch(CALLER, "acme"))
    written = await service.write(CALLER, WRITE)
    assert [record.text for record in written.records] == ["likes tabs"]
    assert list(await anext(watching)) == list(written.handles)
    found = await service.query(CALLER, QUERY)
    assert [snippet.text for snippet in found.snippets] == ["likes tabs"]
    forgotten = await service.forget(
        CALLER, ForgetRequest(scope=SCOPE, handles=written.handles, binding_key="acme")
    )
    assert not forgotten.missing
    assert not forgotten.ghosts
    assert await service.bindings.provider_problems() == []


@pytest.mark.parametrize("reply", ["copy", "None"])
async def test_a_copy_without_some_records_is_read_where_its_adapter_runs(
    install: Install, start: Start, reply: str
) -> None:
    install(f"""
        async def without(self, record_ids):
            copy = Acme()
            copy.held = {{
                handle: record for handle, record in self.held.items()
                if handle.provider_record_id not in record_ids
            }}
            return {reply}
        Acme.without, Acme.capabilities = without, Capabilities(without=True)
    """)
    service = await start()
    await add(service)
    handles = (await service.write(CALLER, WRITE)).handles
    await service.query(CALLER, QUERY)
    found = await service.impact.of(CALLER, ImpactRequest(records={"acme": handles}))
    assert (found.asked, found.differ) == (1, reply == "copy")
    if reply == "None":
        [left] = found.untried
        assert "answered without with something else than an adapter" in left.sentence
    assert len((await service.query(CALLER, QUERY)).snippets) == 1


LONG = 10_000
OPENS = {
    ("time.sleep(600)", 500): "did not answer within 0.5 s",
    ("await asyncio.Event().wait()", 500): "did not answer within 0.5 s",
    ("asyncio.get_running_loop().call_soon(sys.exit); await asyncio.sleep(600)", 500): "0.5 s",
    ("sys.exit(3)", LONG): "failed unexpectedly",
    ("raise KeyboardInterrupt", LONG): "failed unexpectedly",
    ("raise BaseException('no')", LONG): "failed unexpectedly",
    ("raise asyncio.CancelledError", LONG): "failed unexpectedly",
    ("raise ValueError", LONG): "failed unexpectedly",
    ("return None", LONG): "answered open with something else than a Acme",
}


@pytest.mark.parametrize(("body", "timeout_ms"), OPENS)
async def test_opening_breaks_its_own_binding_alone(
    install: Install, start: Start, body: str, timeout_ms: int
) -> None:
    install(f"""
        async def open(cls, context):
            {body}
        Acme.open = classmethod(open)
    """)
    service = await start()
    with pytest.raises(Unavailable, match="acme") as caught:
        await add(service)
    assert OPENS[body, timeout_ms] in str(caught.value)
    await the_rest_serves(service)


@pytest.mark.parametrize(("body", "timeout_ms"), [("time.sleep(600)", 500), ("sys.exit(3)", LONG)])
async def test_capabilities_that_run_code_break_their_own_binding_alone(
    install: Install, start: Start, body: str
) -> None:
    install(f"""
        Acme.capabilities = property(lambda self: {body})
    """)
    service = await start()
    with pytest.raises(Unavailable, match="acme"):
        await add(service)
    await the_rest_serves(service)


@pytest.mark.parametrize(
    ("first", "timeout_ms"),
    [("import time; time.sleep(600)", 500), ("import sys; sys.exit(3)", LONG)],
)
async def test_importing_breaks_its_own_binding_alone(
    install: Install, start: Start, first: str, timeout_ms: int
) -> None:
    install(before=first + "\n", package=f"acme-{timeout_ms}")  # Python goes on importing a name
    service = await start()
    with pytest.raises(MemtuiError, match=f"remove the package acme-{timeout_ms}"):
        await add(service)
    assert len(await service.bindings.provider_problems()) == 1
    await the_rest_serves(service)


REPLIES = {
    "None": "ContextBundle",
    "[1, 2]": "ContextBundle",
    "ContextBundle.model_construct(snippets=(1,))": "snippets",
    "ContextBundle.model_construct(snippets=(Snippet.model_construct(text=3),))": "snippets",
    "ContextBundle.model_construct(usage='free')": "usage",
    "BrowsePage()": "ContextBundle",
}


@pytest.mark.parametrize("reply", REPLIES)
async def test_a_reply_of_a_wrong_type_names_the_package(
    install: Install, start: Start, reply: str
) -> None:
    install(f"""
        async def query(self, request):
            return {reply}
        Acme.query = query
    """)
    service = await start()
    await add(service)
    with pytest.raises(Unavailable, match="acme of the package acme-memory answered query") as e:
        await service.query(CALLER, QUERY)
    assert REPLIES[reply] in str(e.value)


@pytest.mark.parametrize(
    ("body", "timeout_ms"),
    [
        ("return 3", LONG),
        ("raise Conflict('no', current=3)", LONG),
        ("sys.exit(3)", LONG),
        ("time.sleep(600)", 500),
    ],
)
async def test_a_write_whose_end_is_not_known_is_logged_as_unknown(
    install: Install, start: Start, body: str
) -> None:
    install(f"""
        async def write(self, request):
            {body}
        Acme.write = write
    """)
    service = await start()
    await add(service)
    with pytest.raises(Unavailable, match="acme"):
        await service.write(CALLER, WRITE)
    [operation] = (await service.log.page(CALLER, limit=1)).operations
    assert operation.status is OperationStatus.UNKNOWN
    await the_rest_serves(service)


async def test_what_it_raises_of_the_contract_stays(install: Install, start: Start) -> None:
    install("""
        async def query(self, request):
            raise Denied("Ask your administrator.")
        Acme.query = query
    """)
    service = await start()
    await add(service)
    with pytest.raises(MemtuiError, match=r"^Ask your administrator\.$"):
        await service.query(CALLER, QUERY)


async def test_two_packages_of_one_provider_are_both_refused(
    install: Install, start: Start, paths: Paths
) -> None:
    install()
    install(package="other-memory")
    service = await start()
    with pytest.raises(Invalid, match="acme, by acme-memory and other-memory"):
        await add(service)
    problems = await service.bindings.provider_problems()
    assert [("acme-memory" in one, "other-memory" in one) for one in problems] == [(True, True)]
    checks = [check async for check in run_checks(Invocation(home=paths.data))]
    [broken] = [check for check in checks if check.name == "provider" and check.status != "ok"]
    assert broken.message == problems[0]


PROVIDERS = {
    "import sys; sys.exit(3)": "does not import (SystemExit: 3)",
    "raise RuntimeError('half\\ninstalled')": "does not import (RuntimeError: half installed)",
    "Acme = 3": "is not a memtui Adapter",
    "Acme.config_model = None": "has no config_model",
    "Config.model_json_schema = lambda: sys.exit(3)": "does not say what can be set (SystemExit",
}


@pytest.mark.parametrize("line", PROVIDERS)
async def test_a_broken_one_is_told_of_in_one_sentence(
    install: Install, start: Start, line: str
) -> None:
    install(line)
    service = await start()
    view = await service.bindings.provider_view("acme")
    assert not view.usable
    assert PROVIDERS[line] in (view.problem or "")
    assert "\n" not in (view.problem or "")
    assert (view.package, view.version, view.foreign) == ("acme-memory", "1.0", True)
    assert (await service.bindings.provider_view("vault")).usable


async def test_a_good_one_is_told_of_and_does_not_write_to_our_output(
    install: Install, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        """
        class Drawer(BaseModel):
            '''A drawer
            of acme.

            It has a lock.'''
            folder: Path
            '''Where it
            stands.'''
            token_secret: str | None = None
            rows: int = Field(default=5, ge=1, le=1_000)
            locked: bool = Field(default=True, description="Whether it is.")
            shape: Literal["deep", "flat"] = Field(default="flat", alias="form")
            sealed: bool | None = None
            labels: tuple[str, ...] = ()
            price: Decimal = Decimal(1)
            more: dict[str, int] = {}

        async def query(self, request):
            print("to a caller")
            return await asyncio.to_thread(lambda: print("in a thread") or ContextBundle())

        Acme.config_model = Drawer
        Acme.query = query
        print("at import")
        """,
        before="""
        from decimal import Decimal
        from pathlib import Path
        from typing import Literal
        from pydantic import Field
        """,
    )
    service = await start()
    view = await service.bindings.provider_view("acme")
    assert (view.opens, view.about, view.problem) == ("A drawer of acme.", "It has a lock.", None)
    assert view.capabilities is not None
    assert view.capabilities.watch
    told = {one.name: (one.kind, one.words, one.default, one.help) for one in view.config}
    assert told == {
        "folder": ("path", "path", None, "Where it stands."),
        "token_secret": ("secret", "name of a secret", None, ""),
        "rows": ("whole", "whole number, 1 or more, 1,000 at most", 5, ""),
        "locked": ("switch", "yes or no", True, "Whether it is."),
        "form": ("choice", "one of deep, flat", "flat", ""),
        "sealed": ("choice", "yes or no", None, ""),
        "labels": ("list", "list of texts", [], ""),
        "price": ("number", "number", "1", ""),
        "more": ("json", "JSON object", {}, ""),
    }
    assert [one.name for one in view.config if one.required] == ["folder"]
    added = await service.bindings.add(CALLER, "acme", "acme", {"folder": "/", "form": "deep"})
    assert added.config == {"folder": "/", "form": "deep"}
    await service.query(CALLER, QUERY)
    print("ours")
    out, err = capsys.readouterr()
    assert out == "ours\n"
    assert err == "at import\nto a caller\nin a thread\n"


async def test_a_package_that_takes_the_name_of_ours(install: Install, start: Start) -> None:
    install(name="vault")
    service = await start()
    await service.bindings.add(CALLER, "second", "vault", {})
    [problem] = await service.bindings.provider_problems()
    assert problem.startswith("The package acme-memory registers a provider vault too")
    view = await service.bindings.provider_view("vault")
    assert (view.package, view.usable, view.problem) == ("memtui", True, problem)


async def test_a_class_of_another_key_is_refused(install: Install, start: Start) -> None:
    install("Acme.key = 'other'")
    service = await start()
    with pytest.raises(Invalid, match="acme of the package acme-memory calls itself 'other'"):
        await add(service)
    assert len(await service.bindings.provider_problems()) == 1
