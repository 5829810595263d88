"""Wikilinks and inline tags as Obsidian reads them, and what they lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.backends.vault.layout import handle_of
from memtui.backends.vault.markdown import Wikilink, marks_of
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Links,
    Scope,
)

from .conftest import COMPANY, SCOPE, Open, fact, note, put


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (
            "#deploy on #Friday/late, #ünï-cödé_1 and (#not)",
            ["deploy", "Friday/late", "ünï-cödé_1"],
        ),
        ("# Heading\n## Another\n#tag", ["tag"]),
        ("#1 #12/3 #1a #a1", ["1a", "a1"]),
        ("http://x.org/#here [x](#there) C# a#b ##c \\#d", []),
        ("`#code` ``a ` #b`` #kept", ["kept"]),
        (
            "```\n#code\n```\n#kept\n~~~ text\n#code\n~~~\n> ```\n> #code\n> ```\n#too",
            ["kept", "too"],
        ),
        ("```\n#never closed", []),
        ("`only a tick, no code: #kept\n\n` #too", ["kept", "too"]),
        ("<!-- #hidden --> #kept %%#hidden%% #too 100%% #last", ["kept", "too", "last"]),
        ("#same, #same. #ends! #a/ #", ["same", "ends", "a"]),
        ("#标签 #🎯", ["标签", "🎯"]),
    ],
)
def test_inline_tags_are_those_that_obsidian_reads(text: str, tags: list[str]) -> None:
    assert list(marks_of(text).tags) == tags


def link(target: str, heading: str = "", words: str = "", line: int = 0, rel: str = "") -> Wikilink:
    return Wikilink(target, heading or None, words or None, line, rel or None)


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("See [[A note]] and\n[[folder/b.md|words]]",
         [link("A note"), link("folder/b.md", words="words", line=1)]),
        ("[[a#Part one]] [[a#b#c|d]] [[#here]] [[a#^block]]",
         [link("a", "Part one"), link("a", "b#c", "d"), link("a", "^block")]),
        ("| [[in a\\|table]] |", [link("in a", words="table")]),
        ("![[photo.png]] ![[photo.jpg|200]] [[paper.PDF]] ![[embedded]]", [link("embedded")]),
        ("`[[code]]` \\[[escaped]] [[two\nlines]] [[]] [[ ]] [[a[b]] <!-- [[hidden]] -->", []),
        ("- depends on [[Deploy]] (since May)\n- see [[A]] and [[B]]",
         [link("Deploy", rel="depends on"), link("A", line=1), link("B", line=1)]),
    ],
)  # fmt: skip
def test_links_are_those_that_obsidian_reads(text: str, links: list[Wikilink]) -> None:
    assert list(marks_of(text).links) == links


async def links_of(adapter: VaultAdapter, path: str, scope: Scope = COMPANY) -> Links:
    return (await adapter.links([handle_of(path)], scope)).get(path, Links())


async def ends(adapter: VaultAdapter, path: str, scope: Scope = COMPANY) -> list[str | None]:
    """Return where the links of a note lead."""
    found = (await links_of(adapter, path, scope)).links
    return [one.handle.provider_record_id if one.handle else None for one in found]


async def back(adapter: VaultAdapter, path: str, scope: Scope = COMPANY) -> list[str]:
    found = (await links_of(adapter, path, scope)).backlinks
    return [one.handle.provider_record_id for one in found if one.handle]


async def test_a_link_leads_where_obsidian_leads(open_vault: Open, root: Path) -> None:
    web, other = "projects/web/notes", "projects/other/notes"
    put(root, f"{web}/Deploy.md", "---\naliases: [Roll out]\n---\n\n# Shipping/it\n")
    put(root, f"{other}/deploy.md", "The other one.")
    put(
        root,
        f"{other}/deep/from.md",
        "[[Deploy]] [[../deploy]] [[./none]] [[/projects/web/notes/deploy]]",
    )
    put(
        root,
        f"{web}/from.md",
        "[[DEPLOY]] [[roll out]] [[shipping/IT]] [[notes/deploy.md#x|y]] [[No]]",
    )
    adapter = await open_vault()
    assert await ends(adapter, f"{web}/from.md") == [
        f"{web}/Deploy.md",
        f"{web}/Deploy.md",
        f"{web}/Deploy.md",
        f"{web}/Deploy.md",
        None,
    ]
    assert await ends(adapter, f"{other}/deep/from.md") == [
        f"{web}/Deploy.md",  # of two outside of its folder, the one with the shortest path
        f"{other}/deploy.md",
        None,
        f"{web}/Deploy.md",
    ]
    assert await back(adapter, f"{web}/Deploy.md") == [
        f"{other}/deep/from.md",
        f"{other}/deep/from.md",
        *[f"{web}/from.md"] * 4,
    ]
    [aliased] = [one for one in (await links_of(adapter, f"{web}/from.md")).links if one.words]
    assert (aliased.target, aliased.title) == ("notes/deploy.md#x", "Shipping/it")
    assert aliased.location is not None
    assert aliased.location.path == str(root / web / "from.md")


async def test_links_follow_what_changes(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    here = await note(adapter, "About [[Later]].\n\n#tagged", title="Here", tags=("own",))
    await fact(adapter, "deploys: see [[here]] #ops")
    path = here.provider_record_id
    assert await ends(adapter, path) == [None]
    assert await back(adapter, path) == ["projects/web/facts.md#/deploys"]

    put(root, "system/memory/later.md", "It is there now, see [[Here]].")
    assert await ends(adapter, path) == ["system/memory/later.md"]
    put(root, "system/memory/later.md", "It links no more.")
    assert await back(adapter, path) == ["projects/web/facts.md#/deploys"]
    (root / "system/memory/later.md").rename(root / "system/memory/sooner.md")
    assert await ends(adapter, path) == [None]
    await adapter.forget(
        ForgetRequest(scope=SCOPE, handles=(handle_of("projects/web/facts.md#/deploys"),))
    )
    assert await back(adapter, path) == []
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=here, text="About [[sooner]]."))
    assert await ends(adapter, path) == ["system/memory/sooner.md"]


async def test_of_a_hub_the_first_links_are_told(open_vault: Open, root: Path) -> None:
    put(root, "system/memory/hub.md", "The hub.")
    put(root, "system/memory/spokes.md", "[[hub]] " * 501)
    adapter = await open_vault()
    found = await links_of(adapter, "system/memory/hub.md")
    assert (len(found.backlinks), found.backlinks_capped) == (500, True)
    assert not (await links_of(adapter, "system/memory/spokes.md")).backlinks_capped


async def test_a_scope_sees_no_links_of_others(open_vault: Open, root: Path) -> None:
    put(root, "projects/web/notes/a.md", "[[b]] [[c]]")
    put(root, "projects/other/notes/b.md", "Secret [[a]].")
    put(root, "system/memory/c.md", "For all: [[a]].")
    adapter = await open_vault()
    path = "projects/web/notes/a.md"
    assert await ends(adapter, path) == ["projects/other/notes/b.md", "system/memory/c.md"]
    assert await ends(adapter, path, SCOPE) == [None, "system/memory/c.md"]
    assert await back(adapter, path, SCOPE) == ["system/memory/c.md"]
    assert all(one.title is None for one in (await links_of(adapter, path, SCOPE)).links[:1])


async def test_inline_tags_join_those_of_the_frontmatter(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    noted = await note(adapter, "On #deploy days.", tags=("own", "deploy"))
    known = await fact(adapter, "deploys: on Thursdays #ops/cron")
    page = await adapter.browse(BrowseRequest(scope=SCOPE, filter=Filter(tag="ops/cron")))
    assert [one.handle for one in page.records] == [known]
    odd = await note(adapter, "Odd.", tags=('a"b\\c\n', "é/ü"))
    for tag in ('a"b\\c\n', "é"):
        page = await adapter.browse(BrowseRequest(scope=SCOPE, filter=Filter(tag=tag)))
        assert [one.handle for one in page.records] == [odd]
    record = await adapter.get(noted, SCOPE)
    assert record is not None
    assert record.tags == ("own", "deploy")

    await adapter.correct(CorrectRequest(scope=SCOPE, handle=known, tags=("ops/cron", "new")))
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=known, text="deploys: on Fridays"))
    changed = await adapter.get(known, SCOPE)
    assert changed is not None
    assert changed.tags == ("new",), "a tag of the old text was kept beside the new one"
    before = (root / noted.provider_record_id).read_bytes()
    with pytest.raises(Invalid, match="#deploy is in the record's text"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=noted, tags=("own",)))
    assert (root / noted.provider_record_id).read_bytes() == before
    both = CorrectRequest(scope=SCOPE, handle=noted, text="It is #said.", tags=("own", "more"))
    await adapter.correct(both)
    changed = await adapter.get(noted, SCOPE)
    assert changed is not None
    assert changed.tags == ("own", "more", "said")
