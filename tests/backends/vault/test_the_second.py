"""What holds of the first holds of the second: file, folder, twin, owner, alias and version."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    ForgetRequest,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    TagCount,
    WriteRequest,
)

from .conftest import COMPANY, SCOPE, SOURCE, Open, ask, contents, fact, note, put, upsert

NOW = datetime(2026, 6, 1, tzinfo=UTC)
API = Scope(company_id="acme", project_id="api")
ANA = Scope(company_id="acme", subject_id="ana")
OTHER = SourceRef(kind=SourceKind.RUN, company_id="acme", run_id="r-9")


async def test_each_of_several_twins_has_its_own_history(open_vault: Open, root: Path) -> None:
    others = "- Likes tea\n- Likes tea\n"
    put(root, "projects/web/facts.md", f"- port: 1\n- port: 1\n- port: 1\n{others}")
    adapter = await open_vault()
    path = "projects/web/facts.md#"
    names = [f"{path}/port", f"{path}/port-2", f"{path}/port-3"]
    twins = [RecordHandle(provider_key="vault", provider_record_id=name) for name in names]
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=twins[1], tags=("second",)))
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(twins[0],)))
    assert await adapter.get(twins[0], SCOPE) is None
    for handle, tags in zip(twins[1:], (("second",), ()), strict=True):
        record = await adapter.get(handle, SCOPE)
        assert record is not None
        assert (record.text, record.tags) == ("port: 1", tags)
    assert (root / "projects/web/facts.md").read_text() == f"- port: 1\n- port: 1\n{others}"
    again = await fact(adapter, "port: 1")
    assert again not in twins, "it would inherit the history of another"
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=tuple(twins[1:])))
    left = await adapter.history(again, SCOPE)
    assert [one.valid_to for one in left] == [None]
    for handle in twins:
        [past] = await adapter.history(handle, SCOPE)
        assert past.valid_to is not None


async def test_each_version_has_its_own_author_and_source(open_vault: Open) -> None:
    now = [NOW]
    adapter = await open_vault(now=lambda: now[0])
    it = await upsert(adapter, "port: 1", created_by="user:ana")
    now[0] += timedelta(days=1)
    await upsert(adapter, "port: 2", created_by="agent:coding", source=OTHER)
    now[0] += timedelta(days=1)
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="port: 3"))
    now[0] += timedelta(days=1)
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, pinned=True, created_by="user:cy"))
    told = [(one.text, one.created_by, one.valid_from) for one in await adapter.history(it, SCOPE)]
    day = timedelta(days=1)
    assert told == [
        ("port: 3", None, NOW + 2 * day), ("port: 2", "agent:coding", NOW + day),
        ("port: 1", "user:ana", NOW),
    ]  # fmt: skip
    sources = [one.source and one.source.kind for one in await adapter.history(it, SCOPE)]
    assert sources[1:] == [SourceKind.RUN, SourceKind.ISSUE_COMMENT]
    record = await adapter.get(it, SCOPE)
    assert record is not None
    assert (record.created_at, record.updated_at, record.pinned) == (NOW, NOW + 3 * day, True)


async def test_undo_of_several_leaves_no_folder_of_any(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    await note(adapter, "The first of the vault.")
    before, folders = contents(root), sorted(root.rglob("*/"))
    undone: list[Snapshot] = []
    for number, scope in enumerate((API, ANA, Scope(company_id="acme", agent_id="coding"))):
        for kind in ("note", "fact"):
            text = f"key_{number}: {kind}"
            reply = await adapter.write(
                WriteRequest(scope=scope, source=SOURCE, content=text, kind=kind)
            )
            undone += reply.before or [Snapshot(handle=reply.records[0], record=None)]
    handles = tuple(one.handle for one in undone)
    taken = await adapter.snapshot(handles, COMPANY)
    assert (await adapter.forget(ForgetRequest(scope=COMPANY, handles=handles))).missing == ()
    assert await ask(adapter, "key_0 key_1 key_2", scope=COMPANY) == []
    await adapter.restore(taken, COMPANY)
    texts = {f"key_{number}: {kind}" for number in range(3) for kind in ("note", "fact")}
    assert texts == set(await ask(adapter, "key_0 key_1 key_2", scope=COMPANY))
    await adapter.restore(undone, COMPANY)
    assert contents(root) == before
    assert sorted(root.rglob("*/")) == folders
    assert await ask(adapter, "key_0 key_1 key_2", scope=COMPANY) == []


async def test_tags_and_folders_are_counted_of_each_owner_that_one_sees(open_vault: Open) -> None:
    now = [NOW]
    adapter = await open_vault(now=lambda: now[0])
    given: list[tuple[Scope, dict[str, Any]]] = [
        (SCOPE, {"tags": ("a", "b")}), (SCOPE, {"tags": ("A",)}), (API, {"tags": ("a",)}),
        (ANA, {"tags": ("b", "c")}), (SCOPE, {"tags": ("a",), "expires_at": NOW + timedelta(1)}),
    ]  # fmt: skip
    for number, (scope, fields) in enumerate(given):
        await note(adapter, f"Text {number}", scope=scope, **fields)
    for number, scope in enumerate((SCOPE, API, ANA)):
        await fact(adapter, f"key_{number}: 1", scope=scope, tags=("f",))

    async def counted(scope: Scope) -> dict[tuple[str, str | None], int]:
        found: list[TagCount] = list(await adapter.tags(scope))
        return {
            (one.tag.lower(), one.scope.project_id or one.scope.subject_id): one.records
            for one in found
        }

    web = {("a", "web"): 3, ("b", "web"): 1, ("f", "web"): 1}
    api, ana = (
        {("a", "api"): 1, ("f", "api"): 1},
        {("b", "ana"): 1, ("c", "ana"): 1, ("f", "ana"): 1},
    )
    assert await counted(SCOPE) == web
    assert await counted(COMPANY) == web | api | ana
    names = {one.name: one.records for one in await adapter.namespaces()}
    assert names == {"project:api": 2, "project:web": 4, "user:ana": 2}
    now[0] = NOW + timedelta(1)
    assert await counted(SCOPE) == web | {("a", "web"): 2}
    names = {one.name: one.records for one in await adapter.namespaces()}
    assert names == {"project:api": 2, "project:web": 3, "user:ana": 2}
    assert (await adapter.health()).records == 7
    versions = await adapter.versions(API)
    assert [one.text for one in versions if one.kind == "fact"] == ["key_1: 1"]
    every = sorted(one.text for one in await adapter.versions(COMPANY) if one.kind == "fact")
    assert every == ["key_0: 1", "key_1: 1", "key_2: 1"]


async def test_each_alias_and_each_link_counts(open_vault: Open, root: Path) -> None:
    front = "---\naliases: [First, Second, Third]\n---\n"
    put(root, "projects/web/memory/hub.md", f"{front}The hub.\n")
    lines = ["[[First]] and [[second|words]]", "[[Third#part]]", "[[hub]]"]
    for number, line in enumerate(lines):
        put(root, f"projects/web/memory/{number}.md", f"Text.\n\n{line}\n")
    ends = NOW + timedelta(days=1)
    put(root, "projects/web/memory/late.md", f"---\nexpires: {ends}\n---\n[[hub]]\n")
    put(root, "projects/web/memory/to.md", "[[late]] and [[nobody]]\n")
    now = [ends - timedelta(microseconds=1)]
    adapter = await open_vault(now=lambda: now[0])
    ids = ["projects/web/memory/hub.md", "projects/web/memory/0.md"]
    handles = [RecordHandle(provider_key="vault", provider_record_id=one) for one in ids]
    found = await adapter.links(handles, SCOPE)
    back = [one.handle for one in found[ids[0]].backlinks if one.handle]
    names = ["0.md", "0.md", "1.md", "2.md", "late.md"]
    assert sorted(one.provider_record_id.rpartition("/")[2] for one in back) == names
    going = [(one.target, one.words, one.handle) for one in found[ids[1]].links]
    assert going == [("First", None, handles[0]), ("second", "words", handles[0])]
    late, to = (
        RecordHandle(provider_key="vault", provider_record_id=f"projects/web/memory/{name}.md")
        for name in ("late", "to")
    )
    for moment, end, count in ((now[0], late, 5), (ends, None, 4)):
        now[0] = moment
        leads = (await adapter.links([to], SCOPE))[to.provider_record_id].links
        assert [one.handle for one in leads] == [end, None], "what has expired is not there"
        assert len((await adapter.links(handles, SCOPE))[ids[0]].backlinks) == count


async def test_problems_are_told_to_who_sees_their_folder_alone(
    open_vault: Open, root: Path
) -> None:
    for owner in ("projects/web", "projects/api", "users/ana"):
        for number in (1, 2):
            put(root, f"{owner}/memory/{number}.md", "---\nsubject_id: [half\n---\nText.\n")
    adapter = await open_vault()
    for scope, owners in ((SCOPE, {"web"}), (API, {"api"}), (ANA, {"ana"}),
                          (COMPANY, {"web", "api", "ana"})):  # fmt: skip
        told = await adapter.problems(scope)
        assert len(told) == 2 * len(owners)
        whose = {one.scope and (one.scope.project_id or one.scope.subject_id) for one in told}
        assert whose == owners
    health = await adapter.health()
    assert (health.status, len(health.problems)) == ("degraded", 6)
    put(root, "projects/web/memory/2.md", "Text.\n")
    assert await ask(adapter, "text") == ["Text."]
    assert len(await adapter.problems(SCOPE)) == 1


async def test_what_hands_change_in_either_file_of_facts_is_seen(
    open_vault: Open, root: Path
) -> None:
    adapter = await open_vault()
    handles = [await fact(adapter, f"key_{n}: 1", tags=("old",)) for n in (1, 2)]
    history = root / "projects/web/facts.history.jsonl"
    for other in (adapter, await open_vault(data="elsewhere")):
        history.write_text(history.read_text().replace('"old"', '"new"', 1))
        page = await other.browse(BrowseRequest(scope=SCOPE, sort="title"))
        tags = [one.tags for one in page.records]
        assert tags == ([("new",), ("old",)] if other is adapter else [("new",), ("new",)])
    facts = root / "projects/web/facts.md"
    facts.write_text(facts.read_text().replace("key_2: 1", "key_2: 2"))
    assert sorted(await ask(adapter, "key_1 key_2")) == ["key_1: 1", "key_2: 2"]
    past = await adapter.history(handles[1], SCOPE)
    assert [one.text for one in past] == ["key_2: 2", "key_2: 1"]
