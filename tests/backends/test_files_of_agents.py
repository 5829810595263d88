"""memsearch's logs, Codex's memories and instructions: edited beside what agents write there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Invalid,
    QueryRequest,
    Record,
)
from memtui.service.answers import ReviewRule, RuleAction, RuleTest
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends import one_binding
from tests.backends.one_binding import SCOPE, by_id
from tests.backends.test_codex_memory import MEMORY, RAW
from tests.backends.test_memsearch import EVERYTHING

AGENT = Caller(company_id="local", principal="agent:coding", channel="cli")

PROJECT = """\
Read this first.

# Web

See @docs/style.md and @~/.secrets.
<!-- for people only -->
Be kind.

## Tests

- Run pytest.
- Never mock.

## Tests

Twice.

### Deep

```sh
# no heading
```
"""
FILES: dict[str, dict[str, str]] = {
    "memsearch": {"2026-02-09.md": EVERYTHING, "team/ideas.md": "An idea.\n"},
    "codex-memory": {
        "memory_summary.md": "v1\n\n## User preferences\n- Prefers small commits.\n",
        "MEMORY.md": MEMORY,
        "raw_memories.md": RAW,
        "rollout_summaries/a.md": "thread_id: x\ncwd: /home/ann/app\n\nIt resumed.\n",
        "extensions/ad_hoc/notes/2026-01-01T00-00-00-a.md": "Remember the kettle.\n",
        "extensions/ad_hoc/instructions.md": "# Ad-hoc notes\n",
    },
    "instructions": {
        "CLAUDE.md": PROJECT,
        "AGENTS.md": "---\na: b\n---\n# All\r\n\r\nUse tabs.\r\n\r\n# Next\r\nNo tabs.\r\n",
        "docs/style.md": "Be plain.\n",
        ".claude/rules/api.md": "---\npaths: src/**\n---\nCheck input.\n",
        "sub/CLAUDE.md": "# Sub\nOnly here.\n",
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    place = tmp_path / "place"
    for name, text in FILES[request.node.callspec.params["provider"]].items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(text.encode())
    return place


async def bound(service: MemoryService, caller: Caller, provider: str, folder: Path) -> None:
    await service.bindings.add(caller, "it", provider, {"path": str(folder)})


listed = partial(by_id, key="it")
note = partial(one_binding.note, key="it")


def corrected(record: Record, text: str, **fields: Any) -> CorrectRequest:
    given = {"revision": record.revision, **fields}
    return CorrectRequest(binding_key="it", scope=SCOPE, handle=record.handle, text=text, **given)


forgetting = partial(one_binding.forgetting, key="it")


def content(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*.md")}


EACH = pytest.mark.parametrize("provider", [*FILES])


@EACH
async def test_an_undo_leaves_the_same_bytes_and_a_redo_the_change(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    await bound(service, caller, provider, folder)
    found = await listed(service, caller)
    changes: list[tuple[str, Callable[[], Any]]] = [
        ("write", partial(service.write, caller, note("We ship on Mondays.\n\nAlways."))),
        ("write", partial(service.write, caller, note("Titled.", title="A title"))),
    ]
    for name, one in found.items():
        correction = corrected(one, f"{one.text}\n- indeed")
        if one.text != one.title:
            changes.append((f"correct {name}", partial(service.correct, caller, correction)))
        changes.append((f"forget {name}", partial(service.forget, caller, forgetting(one))))
    before, done_count = content(folder), 0
    for what, change in changes:
        try:
            done = await change()
        except Invalid:
            assert content(folder) == before, what
            continue
        done_count += 1
        after, records = content(folder), await listed(service, caller)
        assert after != before, what
        undone = await service.undo(caller, done.operation_id)
        assert content(folder) == before, what
        assert {*await listed(service, caller)} == {*found}, what
        await service.undo(caller, undone.operation_id)
        assert content(folder) == after, what
        assert {*await listed(service, caller)} == {*records}, what
        await service.undo(caller)
        assert content(folder) == before, what
    assert done_count > len(found)


@EACH
async def test_only_the_text_of_a_record_changes(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    await bound(service, caller, provider, folder)
    old, new = {
        "memsearch": ("- first\n- and more", "- primo"),
        "codex-memory": ("- The journal is written before the rows. [Task 1]", "- After. [Task 1]"),
        "instructions": ("- Run pytest.\n- Never mock.", "- Run tox."),
    }[provider]
    found = await listed(service, caller)
    [it] = [one for one in found.values() if one.text == old]
    before = content(folder)
    await service.correct(caller, corrected(it, new))
    assert content(folder) == {
        name: text.replace(old.encode(), new.encode()) for name, text in before.items()
    }
    [now] = [one for one in (await listed(service, caller)).values() if one.text == new]
    assert (now.handle, now.source) == (it.handle, it.source)
    asked = QueryRequest(binding_key="it", scope=SCOPE, query=new)
    assert new in {one.text for one in (await service.query(caller, asked)).snippets}


@EACH
async def test_a_thousand_records(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    name, head, one = {
        "memsearch": (
            "2026-03-01.md",
            "",
            "### 10:{n:02}\n<!-- session:s turn:t{n} -->\n- said {n}\n\n",
        ),
        "codex-memory": ("MEMORY.md", "# Task Group: x\n\n", "## Part {n}\n- said {n}\n\n"),
        "instructions": ("AGENTS.md", "", "# Part {n}\n- said {n}\n\n"),
    }[provider]
    file = folder / name
    file.write_text(head + "".join(one.format(n=n) for n in range(1000)))
    await bound(service, caller, provider, folder)
    found: list[Record] = []
    cursor: str | None = None
    while True:
        page = await service.browse(
            caller, BrowseRequest(binding_key="it", scope=SCOPE, limit=1000, cursor=cursor)
        )
        found += page.records
        cursor = page.next_cursor
        if cursor is None:
            break
    said = [one for one in found if one.text.startswith("- said ") and one.text[-1].isdigit()]
    assert len(said) == 1000
    before = file.read_bytes()
    await service.forget(caller, forgetting(*said[::3]))
    left = {one.text for one in said} - {one.text for one in said[::3]}
    assert {line for line in file.read_text().split("\n") if line.startswith("- said")} == left
    await service.undo(caller)
    assert file.read_bytes() == before


@pytest.mark.parametrize("provider", ["codex-memory"])
async def test_what_codex_writes_anew_is_said_and_a_note_is_its_own_way(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    await bound(service, caller, provider, folder)
    found = await listed(service, caller)
    cautions = {one.kind: one.caution for one in found.values()}
    assert cautions.pop("note") is None
    assert {kind for kind, words in cautions.items() if "is lost then" in (words or "")} == {
        "raw memory", "rollout summary",
    }  # fmt: skip
    assert {kind for kind, words in cautions.items() if "word it anew" in (words or "")} == {
        "summary", "memory",
    }  # fmt: skip
    raw = found["rollout_summaries/a.md"]
    with pytest.raises(Conflict, match="is lost then"):
        await service.correct(caller, corrected(raw, "It broke.", revision=None))
    before = content(folder)
    written = await service.write(caller, note("Forget what you know of the importer."))
    [name] = content(folder).keys() - before.keys()
    assert name == written.handles[0].provider_record_id
    stamp, _, _ = name.rpartition("/")[2].removesuffix(".md").partition("-forget")
    assert len(stamp) == len("2026-01-01T00-00-00")
    assert (folder / name).read_text() == "Forget what you know of the importer."
    await service.undo(caller)
    assert content(folder) == before


INSTRUCTIONS = pytest.mark.parametrize("provider", ["instructions"])


@INSTRUCTIONS
async def test_an_agent_changes_no_instructions(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    await bound(service, caller, provider, folder)
    found = await listed(service, caller)
    it = found["sub/CLAUDE.md#Sub"]
    before = content(folder)
    done = await service.correct(caller, corrected(it, "Everywhere."))
    now = (await listed(service, caller))["sub/CLAUDE.md#Sub"]
    through_mcp = Caller(company_id="local", principal=caller.principal, channel="mcp")
    asked: list[Callable[[Caller], Any]] = [
        lambda who: service.write(who, note("Obey me.")),
        lambda who: service.correct(who, corrected(now, "Obey me.")),
        lambda who: service.forget(who, forgetting(now)),
        lambda who: service.undo(who, done.operation_id),
    ]
    after = content(folder)
    for rule in (
        None,
        ReviewRule(action=RuleAction.ACCEPT, test=RuleTest.AGENT, value="coding"),
        ReviewRule(action=RuleAction.HOLD, test=RuleTest.TEXT, value="something else"),
    ):
        if rule is not None:
            await service.review.add_rule(caller, "it", rule)
        for ask in asked:
            for who in (AGENT, through_mcp):
                with pytest.raises(Denied):
                    await ask(who)
                assert content(folder) == after
    await service.undo(caller, done.operation_id)
    assert content(folder) == before


@INSTRUCTIONS
async def test_what_an_agent_asks_for_may_wait_for_a_person(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    await bound(service, caller, provider, folder)
    await service.review.add_rule(
        caller, "it", ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    )
    before = content(folder)
    answer = await service.write(AGENT, note("Ship on Mondays.", title="Releases"))
    assert content(folder) == before
    assert answer.pending is not None
    await service.review.accept(caller, answer.pending.pending_id)
    assert content(folder)["CLAUDE.md"] == before["CLAUDE.md"] + b"# Releases\nShip on Mondays.\n"


@INSTRUCTIONS
async def test_comments_and_files_elsewhere_stay(
    service: MemoryService, caller: Caller, provider: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "shared.md").write_text("Shared.\n")
    (folder / "docs" / "style.md").write_text("Be plain.\n@../../shared.md\n")
    await bound(service, caller, provider, folder)
    found = await listed(service, caller)
    before = content(folder)
    with pytest.raises(Invalid, match="comment that agents do not see"):
        await service.correct(caller, corrected(found["CLAUDE.md#Web"], "Nothing."))
    [shared] = [one for one in found.values() if one.text == "Shared."]
    with pytest.raises(Invalid, match="out of"):
        await service.correct(caller, corrected(shared, "Mine."))
    assert content(folder) == before
    assert (tmp_path / "shared.md").read_text() == "Shared.\n"


@pytest.mark.parametrize("provider", ["memsearch"])
async def test_what_memsearch_appends_meanwhile_stays(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    file = folder / "2026-03-01.md"
    file.write_text("".join(f"### 09:0{n}\n<!-- turn:o{n} -->\n- ours {n}\n\n" for n in range(6)))
    await bound(service, caller, provider, folder)
    stop = threading.Event()

    def append() -> int:
        count = 0
        while not stop.is_set():
            with file.open("a") as log:  # as its hooks do
                log.write(f"### 10:00\n<!-- turn:t{count} -->\n- theirs {count}.\n\n")
            count += 1
            stop.wait(0.02)
        return count

    appending = asyncio.create_task(asyncio.to_thread(append))
    for n in range(6):
        it = (await listed(service, caller))[f"2026-03-01/o{n}"]
        await service.correct(caller, corrected(it, f"- changed {n}"))
    stop.set()
    count = await appending
    text = file.read_text()
    assert [n for n in range(count) if f"- theirs {n}.\n" not in text] == []
    assert [n for n in range(6) if f"- changed {n}\n" not in text] == []


@INSTRUCTIONS
async def test_a_new_section_goes_where_it_holds_for_all(
    service: MemoryService, caller: Caller, provider: str, folder: Path
) -> None:
    (folder / "CLAUDE.md").unlink()
    await bound(service, caller, provider, folder)
    before = content(folder)
    await service.write(caller, note("Ship on Fridays."))
    assert {one for one, text in content(folder).items() if text != before[one]} == {"AGENTS.md"}
    await service.undo(caller)
    assert content(folder) == before
    (folder / "AGENTS.md").unlink()
    before = content(folder)
    await service.write(caller, note("Ship on Mondays."))
    assert content(folder) == before | {"CLAUDE.md": b"# Note\nShip on Mondays."}
    await service.undo(caller)
    assert content(folder) == before
