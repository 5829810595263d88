from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.backends.vault import VaultAdapter
from memtui.backends.vault.files import VaultFolder
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Record,
    RecordHandle,
    Snapshot,
)

from .conftest import SCOPE, Open, ask, contents, fact, put, upsert

PATH = "projects/web/facts.md"
HISTORY = "projects/web/facts.history.jsonl"
HAND = """---
tags: [facts]
---
# Project Facts

Intro.

## Project
- deploy_branch: main
  - since the last outage
- test_command: pytest\t
- twice
- twice

## Stats
* total: 47
* Reviewed by people
"""


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(hours=1)
        return self.now


def handle(name: str) -> RecordHandle:
    return RecordHandle(provider_key="vault", provider_record_id=f"{PATH}#{name}")


async def everything(adapter: VaultAdapter) -> list[Record]:
    page = await adapter.browse(BrowseRequest(scope=SCOPE, limit=1000))
    return sorted(page.records, key=lambda record: record.location.line if record.location else 0)


async def got(adapter: VaultAdapter, it: RecordHandle) -> Record:
    record = await adapter.get(it, SCOPE)
    assert record is not None
    return record


async def test_facts_written_by_hand(open_vault: Open, root: Path) -> None:
    put(root, PATH, HAND)
    adapter = await open_vault()
    records = await everything(adapter)
    assert [(r.topic, r.text) for r in records] == [
        ("Project", "deploy_branch: main"),
        ("Project", "test_command: pytest"),
        ("Project", "twice"),
        ("Project", "twice"),
        ("Stats", "total: 47"),
        ("Stats", "Reviewed by people"),
    ]
    first = records[0]
    assert first.handle == handle("Project/deploy_branch")
    assert first.location is not None
    assert first.location.line == 9
    assert first.metadata == {
        "entry_type": "kv", "key": "deploy_branch", "value": "main",
        "details": "  - since the last outage\n",
    }  # fmt: skip
    assert first.created_at is None
    assert first.source is None
    assert first.updated_at is not None
    ids = [record.handle.provider_record_id for record in records]
    assert len(set(ids)) == 6
    assert ids[3] == f"{ids[2]}-2"
    assert records[5].metadata == {"entry_type": "fact"}


async def test_the_life_of_a_fact(open_vault: Open, root: Path) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    it = await upsert(adapter, "deploy_branch: main", topic="Project", created_by="user:ana")
    assert (root / PATH).read_text() == "# Facts\n\n## Project\n- deploy_branch: main\n"
    between = clock.now
    assert await upsert(adapter, "deploy_branch: release", topic="Project") == it
    record = await got(adapter, it)
    assert record.text == "deploy_branch: release"
    assert record.metadata["entry_type"] == "temporal"
    assert record.created_by == "user:ana"
    versions = await adapter.history(it, SCOPE)
    assert [v.text for v in versions] == ["deploy_branch: release", "deploy_branch: main"]
    assert versions[0].valid_from == versions[1].valid_to
    assert await ask(adapter, "deploy branch", as_of=between) == ["deploy_branch: main"]
    assert await ask(adapter, "main") == []
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(it,)))
    assert (root / PATH).read_text() == "# Facts\n\n## Project\n"
    gone = await adapter.history(it, SCOPE)
    assert [v.text for v in gone] == ["deploy_branch: release", "deploy_branch: main"]
    assert gone[0].valid_to is not None
    assert await ask(adapter, "deploy branch", as_of=between) == ["deploy_branch: main"]
    assert await upsert(adapter, "deploy_branch: main", topic="Project") == it
    assert len(await adapter.history(it, SCOPE)) == 3


async def test_an_edit_leaves_the_rest_of_the_file(open_vault: Open, root: Path) -> None:
    put(root, PATH, HAND.replace("\n", "\r\n"))
    adapter = await open_vault()
    records = await everything(adapter)
    change = CorrectRequest(scope=SCOPE, handle=records[0].handle, text="deploy_branch: release")
    await adapter.correct(change)
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=records[3].handle, text="once"))
    await fact(adapter, "coverage: 91", topic="Stats")
    await fact(adapter, "no heading", tags=("t",))
    assert (root / PATH).read_bytes().decode() == (
        HAND.replace("branch: main", "branch: release")
        .replace("- twice\n\n", "- once\n\n")
        .replace("by people\n", "by people\n* coverage: 91\n")
        .replace("Intro.\n", "Intro.\n\n- no heading\n")
        .replace("\n", "\r\n")
    )
    assert (await got(adapter, records[3].handle)).text == "once"
    tagged = CorrectRequest(scope=SCOPE, handle=records[4].handle, pinned=True, tags=("n", "facts"))
    before = (root / PATH).read_bytes()
    await adapter.correct(tagged)
    assert (root / PATH).read_bytes() == before
    record = await got(adapter, records[4].handle)
    assert (record.pinned, record.tags, record.created_at) == (True, ("n", "facts"), None)


async def test_a_value_changed_by_hand(open_vault: Open, root: Path) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    it = await upsert(adapter, "deploy_branch: main", topic="Project", created_by="user:ana")
    path = root / PATH
    edited = datetime(2026, 5, 1, tzinfo=UTC)
    path.write_text(path.read_text().replace("main", "release"))
    os.utime(path, (edited.timestamp(),) * 2)
    history = (root / HISTORY).read_bytes()
    record = await got(adapter, it)
    assert (record.text, record.valid_from) == ("deploy_branch: release", edited)
    assert record.source is None or record.source.issue_id == "I-1"
    versions = await adapter.history(it, SCOPE)
    assert [(v.text, v.valid_to) for v in versions] == [
        ("deploy_branch: release", None),
        ("deploy_branch: main", edited),
    ]
    assert versions[0].created_by is None
    assert (root / HISTORY).read_bytes() == history
    assert await ask(adapter, "deploy", as_of=edited - timedelta(days=1)) == ["deploy_branch: main"]
    await fact(adapter, "something else")
    assert [(v.text, v.valid_to) for v in await adapter.history(it, SCOPE)] == [
        ("deploy_branch: release", None),
        ("deploy_branch: main", edited),
    ]


async def test_a_stale_fact_is_a_conflict(open_vault: Open, root: Path) -> None:
    put(root, PATH, HAND)
    adapter = await open_vault()
    it = handle("Project/deploy_branch")
    seen = (await got(adapter, it)).revision
    put(root, PATH, HAND.replace("main", "by-hand"))
    change = CorrectRequest(scope=SCOPE, handle=it, text="deploy_branch: tool", revision=seen)
    with pytest.raises(Conflict) as caught:
        await adapter.correct(change)
    assert caught.value.current is not None
    assert caught.value.current.text == "deploy_branch: by-hand"
    taken = CorrectRequest(scope=SCOPE, handle=handle("Stats/total"), text="total: 1")
    await adapter.correct(taken)
    with pytest.raises(Conflict):
        await adapter.correct(
            CorrectRequest(
                scope=SCOPE, handle=handle("Project/test_command"), text="deploy_branch: x"
            )
        )


@pytest.mark.parametrize(
    ("content", "topic"), [("two\nlines", None), (" ", None), ("x", "a\nb"), ("x", "# y #")]
)
async def test_what_cannot_be_a_fact(
    open_vault: Open, root: Path, content: str, topic: str | None
) -> None:
    adapter = await open_vault()
    with pytest.raises(Invalid):
        await fact(adapter, content, topic=topic)
    assert contents(root) == {}


async def test_a_broken_history_line_is_a_problem_and_stays(open_vault: Open, root: Path) -> None:
    put(root, PATH, HAND)
    broken = '{"fact": 3\n\nnot json\n{"fact": "x", "text": "y", "source": {"kind": "odd"}}\n'
    put(root, HISTORY, broken)
    adapter = await open_vault()
    problems = (await adapter.health()).problems
    assert [p.location.line for p in problems if p.location] == [1, 3, 4]
    await upsert(adapter, "deploy_branch: release", topic="Project")
    assert (root / HISTORY).read_text().startswith(broken)
    assert len((await adapter.health()).problems) == 3


async def test_metadata_of_facts(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    past = datetime(2020, 1, 1, tzinfo=UTC)
    it = await fact(
        adapter, "likes: tea", tags=("drink",), metadata={"n": [1]}, created_at=past,
        scope=SCOPE.model_copy(update={"agent_id": "coding", "run_id": "r"}),
    )  # fmt: skip
    record = await got(adapter, it)
    assert (record.created_at, record.tags, record.metadata["n"]) == (past, ("drink",), [1])
    assert (record.scope.agent_id, record.scope.run_id) == ("coding", "r")
    assert record.source is not None
    assert record.source.company_id == "acme"
    line = json.loads((root / HISTORY).read_text())
    assert line["source"] == {"kind": "issue_comment", "issue_id": "I-1", "comment_id": "c"}
    await fact(adapter, "old: news", expires_at=past)
    assert await ask(adapter, "news") == []
    assert "- old: news" in (root / PATH).read_text()


async def test_hashed_names_survive_edits(open_vault: Open) -> None:
    adapter = await open_vault()
    first = await fact(adapter, "likes tea")
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=first, text="likes coffee"))
    second = await fact(adapter, "likes tea")
    assert second != first
    await adapter.sync()
    assert (await got(adapter, first)).text == "likes coffee"
    assert (await got(adapter, second)).text == "likes tea"


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "twin", "upsert", "correct", "forget", "pin"]),
        st.integers(0, 7),
        st.sampled_from([None, "Project", "Stats", "New"]),
    ),
    min_size=1,
    max_size=6,
)
starts = st.sampled_from([None, "", HAND, HAND.rstrip("\n"), HAND.replace("\n", "\r\n"), "- a: 1"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=starts, plan=steps, order=st.randoms(use_true_random=False))
async def test_every_undo_leaves_every_byte(
    open_vault: Open,
    root: Path,
    start: str | None,
    plan: list[tuple[str, int, str | None]],
    order: Random,
) -> None:  # fmt: skip
    for path in contents(root):
        (root / path).unlink()
    if start is not None:
        put(root, PATH, start)
    adapter = await open_vault()
    try:
        await _undo_all(adapter, root, plan)
        records = await everything(adapter)
        before = contents(root)
        handles = [record.handle for record in records]
        taken = list(await adapter.snapshot(handles, SCOPE))
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=tuple(handles)))
        assert await everything(adapter) == []
        order.shuffle(taken)
        await adapter.restore(taken, SCOPE)
        assert contents(root) == before
    finally:
        await adapter.close()


async def _undo_all(
    adapter: VaultAdapter, root: Path, plan: list[tuple[str, int, str | None]]
) -> None:
    undo: list[tuple[dict[str, bytes], list[Snapshot]]] = []
    for number, (what, which, topic) in enumerate(plan):
        before = contents(root)
        handles = [record.handle for record in await everything(adapter)]
        chosen = handles[which % len(handles)] if handles else None
        if what in {"add", "twin"} or chosen is None:
            text = "twice" if what == "twin" else f"key{which}: {number}"
            it = await fact(adapter, text, topic=topic)
            undo.append((before, [Snapshot(handle=it, record=None)]))
            continue
        taken = list(await adapter.snapshot([chosen], SCOPE))
        if what == "forget":
            await adapter.forget(ForgetRequest(scope=SCOPE, handles=(chosen,)))
        elif what == "pin":
            await adapter.correct(CorrectRequest(scope=SCOPE, handle=chosen, pinned=True))
        else:
            text = f"plain {number}" if what == "correct" else f"key{number}x: {which}"
            await adapter.correct(CorrectRequest(scope=SCOPE, handle=chosen, text=text))
        undo.append((before, taken))
    for before, taken in reversed(undo):
        await adapter.restore(taken, SCOPE)
        assert contents(root) == before


async def test_of_two_that_say_the_same_one_is_forgotten(open_vault: Open, root: Path) -> None:
    put(root, PATH, HAND)
    adapter = await open_vault()
    records = await everything(adapter)
    first, second = records[2].handle, records[3].handle
    taken = await adapter.snapshot([first, second], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(first,)))
    assert await adapter.get(first, SCOPE) is None
    assert await adapter.get(second, SCOPE) is not None
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(second,)))
    await adapter.restore(taken[1:], SCOPE)
    assert await adapter.get(first, SCOPE) is None
    await adapter.restore(taken[:1], SCOPE)
    assert contents(root) == {PATH: HAND.encode()}
    other = CorrectRequest(scope=SCOPE, handle=handle("Stats/total"), text="total: 48")
    await adapter.correct(other)
    with pytest.raises(Conflict):
        await adapter.correct(
            CorrectRequest(scope=SCOPE, handle=handle("Project/test_command"), text="twice")
        )


@contextmanager
def killed_before_facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End what is done at the write of the facts file."""

    class Killed(BaseException):
        pass

    whole = VaultFolder.replace

    def cut(folder: VaultFolder, path: str, content: str) -> None:
        if path == PATH:
            raise Killed
        whole(folder, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(VaultFolder, "replace", cut)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize("before", ["", HAND])
async def test_a_crash_while_a_fact_is_added_leaves_no_trace(
    open_vault: Open, root: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    if before:
        put(root, PATH, before)
    held = [entry.text for entry in await everything(await open_vault())]
    mine = SCOPE.model_copy(update={"agent_id": "coding"})
    with killed_before_facts(monkeypatch):
        await fact(await open_vault(), "uses: SQLite", scope=mine)
    opened = await open_vault(data="another index")
    assert [entry.text for entry in await everything(opened)] == held
    it = await fact(opened, "uses: SQLite", scope=mine)
    [stored] = [one for one in await everything(opened) if one.text == "uses: SQLite"]
    assert stored.scope.agent_id == "coding"
    assert len(await everything(opened)) == len(held) + 1
    assert [one.text for one in await opened.history(it, SCOPE)] == ["uses: SQLite"]


async def test_a_crash_while_a_window_is_written_is_completed(
    open_vault: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    begin, end = now - timedelta(days=1), now + timedelta(days=1)
    it = await upsert(await open_vault(), "branch: main", valid_from=now - timedelta(days=9))
    with killed_before_facts(monkeypatch):
        await upsert(await open_vault(), "branch: frozen", valid_from=begin, valid_to=end)
    opened = await open_vault()
    assert [one.text for one in await everything(opened)] == ["branch: frozen"]
    assert (root / PATH).read_text() == "# Facts\n\n- branch: frozen\n"
    taken = await opened.history(it, SCOPE)
    assert [one.valid_to for one in taken] == [None, end, begin]


async def test_a_fact_whose_new_file_is_removed_by_hand_keeps_its_past(
    open_vault: Open, root: Path
) -> None:
    adapter = await open_vault()
    it = await fact(adapter, "uses: SQLite")
    (root / PATH).unlink()
    assert [one.text for one in await adapter.history(it, SCOPE)] == ["uses: SQLite"]


async def test_a_history_line_with_a_moment_outside_of_all_calendars_is_a_problem(
    open_vault: Open, root: Path
) -> None:
    put(root, "projects/web/facts.md", "- a: 1\n")
    line = '{"fact": "/a", "text": "a: 1", "created_at": "0001-01-01T00:00:00+14:00"}\n'
    put(root, "projects/web/facts.history.jsonl", line)
    adapter = await open_vault()
    assert (await adapter.health()).problems[0].message.endswith("outside of the years 1 to 9999.")
    assert await adapter.get(handle("/a"), SCOPE) is not None


async def test_a_files_tags_hold_for_its_facts(open_vault: Open, root: Path) -> None:
    front = "---\ntags: [facts, auto-updated]\n---\n"
    path = put(root, PATH, f"{front}# Facts\n\n- region: eu\n")
    adapter = await open_vault()
    it = handle("/region")
    first = await got(adapter, it)
    assert first.tags == ("facts", "auto-updated")
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, tags=("own", *first.tags)))
    with pytest.raises(Invalid, match="facts is in the frontmatter"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, tags=("auto-updated",)))
    await upsert(adapter, "zone: a", tags=("facts", "mine"))
    by_tag = BrowseRequest(scope=SCOPE, sort="title", filter=Filter(tag="facts"))
    page = await adapter.browse(by_tag)
    assert [record.tags for record in page.records] == [
        ("own", "facts", "auto-updated"),
        ("mine", "facts", "auto-updated"),
    ]
    assert '"facts"' not in (root / HISTORY).read_text()
    seen = (await got(adapter, it)).revision
    path.write_text(path.read_text().replace("[facts, auto-updated]", "auto"))
    await adapter.sync()
    assert (await adapter.browse(by_tag)).records == ()
    record = await got(adapter, it)
    assert (record.tags, record.revision == seen) == (("own", "auto"), False)
