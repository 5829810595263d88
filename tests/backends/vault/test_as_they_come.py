"""Notes as people have them: with properties that nobody can read, and with nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Json,
    QueryRequest,
)

from .conftest import COMPANY, Open, ask, contents, put

BROKEN = {
    "template": "year: {{date:YYYY}}",
    "links": "family: [[Smith]]  [[Jones]]",
    "at": "title: @handle says hi",
    "colon": "title: 50% off: now",
    "no space": "key:value",
    "twice": "duplicate: 1\nduplicate: 2",
    "twice below": "a:\n  b: 1\n  b: 2",
    "unclosed list": "tags: [a, b",
    "unclosed quote": 'title: "a',
    "tab": "a:\n\tb: 1",
    "indented": "a: 1\n  b: 2",
    "list": "- a\n- b",
    "words": "just words",
    "percent": "a: %x",
    "backtick": "a: `x`",
    "star": "globs: *.ts",
    "unknown type": "a: !foo bar",
    "alias": "a: *b",
    "bomb": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{two}: &{two} [{','.join([f'*{one}'] * 9)}]\n" for one, two in pairwise("abcdefg")
    ),
    "deep": "a: " + "[" * 80 + "]" * 80,
    "huge": "a: " + "x" * 70_000,
    "nul": "a: \0",
    "moment": "a: !!timestamp soon",
    "key": "? [a]\n: b",
}  # fmt: skip
READ: dict[str, tuple[str, Json]] = {
    "impossible date": ("date: 2024-13-45", {"date": "2024-13-45"}),
    "another date": ("day: 2024-02-30T25:00:00Z", {"day": "2024-02-30T25:00:00Z"}),
    "comment": ("# comment only", {}),
    "nothing": ("", {}),
    "crlf": ("version: 1.10\r\nok: No\r", {"version": "1.10", "ok": "No"}),
    "numbers": ("a: 7\nb: 0.5\nc: 010", {"a": 7, "b": 0.5, "c": "010"}),
    "tags as a map": ("tags: {a: 1}", {"tags": {"a": 1}}),
    "title as a list": ("title: [a, 1.10]", {"title": ["a", "1.10"]}),
    "metadata as text": ("metadata: x", {"metadata": "x"}),
    "merge": ("a: &x {b: 1}\nc:\n  <<: *x", {"a": {"b": 1}, "c": {"<<": {"b": 1}}}),
    "odd keys": ("1.10: a\ntrue: b\n~: c", {"1.10": "a", "true": "b", "~": "c"}),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_notes_that_cannot_be_read_whole(open_vault: Open, root: Path, newline: str) -> None:
    for number, front in enumerate(BROKEN.values()):
        content = f"---\n{front}\n---\nBody quokka{number}.\n".replace("\n", newline)
        put(root, f"{number}.md", content)
    put(root, "open.md", "---\na: 1\n\nBody quokkaopen.\n")
    put(root, "rule.md", "---\n")
    before = contents(root)
    adapter = await open_vault()
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=100))
    assert len(page.records) == len(BROKEN) + 2
    told = {
        one.location.path: one.message for one in await adapter.problems(COMPANY) if one.location
    }
    for record in page.records:
        path = record.handle.provider_record_id
        assert record.problem == told[str(root / path)]
        word = f"quokka{path.removesuffix('.md')}"
        assert path == "rule.md" or await ask(adapter, word, scope=COMPANY) == [record.text]
        for change in (
            CorrectRequest(scope=COMPANY, handle=record.handle, text="Mended?"),
            CorrectRequest(scope=COMPANY, handle=record.handle, tags=("a",)),
        ):
            with pytest.raises(Invalid, match="Fix the file by hand first"):
                await adapter.correct(change)
        reply = await adapter.forget(ForgetRequest(scope=COMPANY, handles=(record.handle,)))
        assert "Fix the file by hand first" in reply.refused[path]
    assert contents(root) == before
    put(root, "3.md", "---\ntitle: '50% off: now'\n---\nBody quokka3.\n")
    [record] = [
        one
        for one in (await adapter.browse(BrowseRequest(scope=COMPANY, limit=100))).records
        if one.title == "50% off: now"
    ]
    assert record.problem is None
    await adapter.correct(CorrectRequest(scope=COMPANY, handle=record.handle, tags=("a",)))


@pytest.mark.parametrize("name", READ)
async def test_properties_that_nobody_needs(open_vault: Open, root: Path, name: str) -> None:
    front, metadata = READ[name]
    path = put(root, "a.md", f"\ufeff---\n{front}\n---\nBody.\n")
    before = path.read_bytes()
    adapter = await open_vault()
    [record] = (await adapter.browse(BrowseRequest(scope=COMPANY))).records
    assert (record.metadata, record.problem) == (metadata, None)
    assert await adapter.problems(COMPANY) == []
    if name in {"tags as a map", "merge"}:
        return
    await adapter.correct(CorrectRequest(scope=COMPANY, handle=record.handle, pinned=True))
    assert path.read_bytes().replace(b"pinned: true\n", b"", 1) == before


@pytest.mark.parametrize(
    ("front", "change"),
    [
        ("tags: {a: 1}", {"tags": ("b",)}),
        ("topic: [a, b]", {"topic": "b"}),
        ("pinned: [[Link]]", {"pinned": True}),
        ("expires: next week", {"expires_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ],
)
async def test_a_property_that_says_something_else_is_not_overwritten(
    open_vault: Open, root: Path, front: str, change: Json
) -> None:
    path = put(root, "a.md", f"---\n{front}\n---\nBody.\n")
    before = path.read_bytes()
    adapter = await open_vault()
    [record] = (await adapter.browse(BrowseRequest(scope=COMPANY))).records
    with pytest.raises(Invalid, match="change it in its file"):
        await adapter.correct(CorrectRequest(scope=COMPANY, handle=record.handle, **change))
    assert path.read_bytes() == before


async def test_an_expiry_that_is_no_date_is_told(open_vault: Open, root: Path) -> None:
    put(root, "a.md", "---\nexpires: 2024-02-30\ncreated: last spring\n---\nBody.\n")
    adapter = await open_vault()
    [record] = (await adapter.browse(BrowseRequest(scope=COMPANY))).records
    assert (record.expires_at, record.problem) == (None, None)
    assert record.metadata == {"expires": "2024-02-30", "created": "last spring"}
    assert [one.message for one in await adapter.problems(COMPANY)] == [
        "The note's created is no date: last spring.",
        "The note's expires is no date: 2024-02-30.",
    ]


async def ids(adapter: VaultAdapter, query: str) -> list[str]:
    found = await adapter.query(QueryRequest(scope=COMPANY, query=query))
    return [one.handle.provider_record_id for one in found.snippets]


async def test_notes_without_a_body(open_vault: Open, root: Path) -> None:
    put(root, "Catan.md", "---\ntype: []\nrating: 7\n---\n\n")
    put(
        root,
        "title.md",
        "---\ntitle: Boards\nsummary: All quoll\naliases: [OT]\ntags: [idea]\n---\n",
    )
    put(root, "empty.md", "")
    put(root, "blank.md", "\n \n")
    put(root, "2024-05-01-day.md", "---\n---")
    names = ["Catan", "title", "empty", "blank", "2024-05-01-day"]
    put(root, "index.md", " ".join(f"[[{one}]]" for one in [*names, "nowhere", "OT", "Boards"]))
    adapter = await open_vault()
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=100))
    there = {one.handle.provider_record_id: one for one in page.records}
    assert {one.title for one in there.values()} == {*names, "Boards", "index"} - {"title"}
    assert there["Catan.md"].metadata == {"type": [], "rating": 7}
    for word in ("Boards", "quoll", "OT", "idea"):
        assert "title.md" in await ids(adapter, word)
    links = (await adapter.links([there["index.md"].handle], COMPANY))["index.md"].links
    leads = {one.target: one.handle and one.handle.provider_record_id for one in links}
    assert leads == {one: f"{one}.md" for one in names} | {
        "nowhere": None, "OT": "title.md", "Boards": "title.md",
    }  # fmt: skip
    await adapter.correct(
        CorrectRequest(scope=COMPANY, handle=there["Catan.md"].handle, tags=("game",))
    )
    text = (root / "Catan.md").read_text()
    assert text == "---\ntype: []\nrating: 7\ntags: [game]\n---\n\n"


async def test_tags_do_not_differ_by_case(open_vault: Open, root: Path) -> None:
    put(
        root,
        "a.md",
        "---\ntags: [Idea, Élan/vital]\ncreated: 2024-01-02\n---\nAn #idea and #IDEA.\n",
    )
    put(root, "b.md", "---\ntags: [idea, IDEA/big]\ncreated: 2024-01-01\n---\nAnother.\n")
    adapter = await open_vault()
    counted = {one.tag: one.records for one in await adapter.tags(COMPANY)}
    assert counted == {"idea": 2, "IDEA/big": 1, "Élan/vital": 1}
    for tag, number in {"IDEA": 2, "idea/BIG": 1, "élan": 1, "ÉLAN/VITAL": 1, "ide": 0}.items():
        page = await adapter.browse(BrowseRequest(scope=COMPANY, filter=Filter(tag=tag)))
        assert page.total == number, tag
        found = await adapter.query(
            QueryRequest(scope=COMPANY, query="idea another", filter=Filter(tag=tag))
        )
        assert len(found.snippets) == number
    a = (await adapter.browse(BrowseRequest(scope=COMPANY, sort="created_at"))).records[1]
    assert a.tags == ("Idea", "Élan/vital")
    for tags in ("Idea", "Élan/vital", "IDEA"), ("idea", "élan/vital", "new"):
        await adapter.correct(CorrectRequest(scope=COMPANY, handle=a.handle, tags=tags))
    assert (root / "a.md").read_text().startswith('---\ntags: [idea, "élan/vital", new]\n')
    with pytest.raises(Invalid, match="#idea"):
        await adapter.correct(CorrectRequest(scope=COMPANY, handle=a.handle, tags=("new",)))
