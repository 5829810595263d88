"""Two companies are not bound to one store, however it is named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memtui.contract import Conflict, Json
from memtui.service import Caller, MemoryService
from memtui.service.runtime import ServiceRuntime
from memtui.store import bindings
from tests.databases import ON_BOTH

OTHER = Caller(company_id="two", principal="user:ana", channel="test")


@pytest.fixture
async def two(service: MemoryService) -> MemoryService:
    await service.companies.add(OTHER, "Two")
    return service


async def clashes(
    service: MemoryService, caller: Caller, pairs: list[tuple[str, Json, Json]]
) -> Any:
    """Return of which pairs of configs, each of one provider, the second is refused elsewhere."""
    found = []
    for provider, mine, theirs in pairs:
        await service.bindings.add(caller, "mine", provider, mine)
        try:
            await service.bindings.add(OTHER, "theirs", provider, theirs)
        except Conflict as error:
            found.append("share no store" in str(error))
        else:
            await service.bindings.remove(OTHER, "theirs")
            found.append(False)
        await service.bindings.add(caller, "again", provider, theirs)
        await service.bindings.remove(caller, "again")
        await service.bindings.remove(caller, "mine")
    return found


async def test_folders_that_are_the_same_or_inside_each_other(
    two: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    own = tmp_path / "home" / "bindings" / caller.company_id / "default"

    def at(*names: str) -> Json:
        return {"path": str(tmp_path.joinpath(*names))}

    pairs = [
        ("vault", at("a"), at("a")),
        ("vault", at("a"), at("a", "b")),
        ("vault", at("a", "b"), at("a")),
        ("vault", at("a"), at("link")),
        ("vault", at("link", "b"), at("a", "x", "..", "b")),
        ("vault", at("c"), {"path": str(own / "vault")}),
        ("vault", at("a"), at("ab")),
        ("vault", {}, {}),
        ("memsearch", at("a"), at("link")),
    ]
    assert await clashes(two, caller, pairs) == [True] * 6 + [False] * 2 + [True]


async def test_servers_with_the_same_namespaces(two: MemoryService, caller: Caller) -> None:
    url = "http://localhost:9"

    def at(address: str, **templates: str | None) -> Json:
        none = {"project": None, "agent": None, "subject": None, "company": None}
        return {"url": address, "templates": {**none, **templates}}

    apart = {"project": "workspace:{company_id}-x-{project_id}"}
    pairs = [
        ("plugin-v1", {"url": url}, {"url": "http://127.0.0.1:9/"}),
        ("plugin-v1", {"url": url}, at(url, project="workspace:mine-{project_id}")),
        ("plugin-v1", at(url, company="org:one"), at("http://LOCALHOST:9", company="org:one")),
        (
            "plugin-v1",
            at(url, **apart),
            {**at(url), "namespaces": [f"workspace:{caller.company_id}-x-1"]},
        ),
        ("plugin-v1", at(url, company="org:one"), at(url, company="org:one2")),
        ("plugin-v1", at(url, **apart), at(url, **apart)),
        ("plugin-v1", {"url": url}, {"url": "http://localhost:10"}),
        ("plugin-v1", {"url": url}, {"url": f"{url}/other"}),
    ]
    assert await clashes(two, caller, pairs) == [True] * 4 + [False] * 4


async def test_fact_servers_and_databases(
    two: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.setenv("TOKEN", "t")
    monkeypatch.setenv("DATABASE", postgres_url)
    served = {"token_secret": "TOKEN", "subject_id": "ana", "url": "http://localhost:9"}
    pairs: list[tuple[str, Json, Json]] = [
        ("facts-http", served, served),
        ("facts-http", served, {**served, "url": "http://localhost:10"}),
        ("facts", {"url_secret": "DATABASE", "create": True}, {"url_secret": "DATABASE"}),
        ("facts", {}, {}),
    ]
    assert await clashes(two, caller, pairs) == [True, False, True, False]


async def test_a_binding_is_not_moved_into_anothers(
    two: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await two.bindings.add(caller, "mine", "vault", {"path": str(tmp_path / "a")})
    await two.bindings.add(OTHER, "theirs", "vault", {"path": str(tmp_path / "b")})
    with pytest.raises(Conflict, match="share no store"):
        await two.bindings.update(OTHER, "theirs", config={"path": str(tmp_path / "a" / "x")})
    await two.bindings.update(OTHER, "theirs", config={"path": str(tmp_path / "c")})
    await two.bindings.add(caller, "late", "vault", {"path": str(tmp_path / "b")})
    with pytest.raises(Conflict, match="share no store"):
        await two.undo(OTHER)
    assert not any(view.shared for view in await two.bindings.all(OTHER))


@ON_BOTH
async def test_two_companies_do_not_bind_one_folder_at_the_same_moment(
    two: MemoryService, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, configure = asyncio.Barrier(2), ServiceRuntime.configure

    async def together(core: ServiceRuntime, *args: Any, **options: Any) -> Any:
        """Both have looked at the bindings before one of them adds its own."""
        await both.wait()
        return await configure(core, *args, **options)

    config = {"path": str(tmp_path / "a")}
    with monkeypatch.context() as patch:
        patch.setattr(ServiceRuntime, "configure", together)
        ended = await asyncio.gather(
            *(two.bindings.add(one, "vault", "vault", config) for one in (caller, OTHER)),
            return_exceptions=True,
        )
    assert sorted(type(one).__name__ for one in ended) == ["BindingView", "Conflict"]
    late = next(
        one for one, end in zip((caller, OTHER), ended, strict=True) if isinstance(end, Conflict)
    )
    with pytest.raises(Conflict, match="share no store"):
        await two.bindings.add(late, "vault", "vault", config)


async def test_a_home_where_it_is_so_already_says_so(
    two: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await two.bindings.add(caller, "mine", "vault", {"path": str(tmp_path / "a")})
    await two.bindings.add(OTHER, "theirs", "vault", {"path": str(tmp_path / "b")})
    with two.analysis.database.write() as connection:
        bindings.update_binding(connection, "two/theirs", {"config": {"path": str(tmp_path / "a")}})
    assert {view.key: view.shared for view in await two.bindings.all(caller)} == {
        "default": False,
        "mine": True,
    }
    assert [view.shared for view in await two.bindings.all(OTHER)] == [True]


@pytest.mark.parametrize("name", ["aaa", "zzz"])
async def test_every_other_company_is_asked(
    two: MemoryService, caller: Caller, tmp_path: Path, name: str
) -> None:
    for company in ("mmm", name):
        await two.companies.add(OTHER.model_copy(update={"company_id": company}), company)
    third = OTHER.model_copy(update={"company_id": name})
    await two.bindings.add(third, "first", "vault", {"path": str(tmp_path / "other")})
    await two.bindings.add(third, "second", "vault", {"path": str(tmp_path / "a")})
    with pytest.raises(Conflict, match="share no store"):
        await two.bindings.add(caller, "mine", "vault", {"path": str(tmp_path / "a")})
