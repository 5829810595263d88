from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memtui.backends.instructions import InstructionsAdapter
from memtui.contract import BrowseRequest, Record, Scope

ACME = Scope(company_id="acme")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def project(home: Path) -> Path:
    folder = home / "code" / "app"
    (folder / ".git").mkdir(parents=True)
    return folder


async def by_id(adapter: InstructionsAdapter) -> dict[str, Record]:
    page = await adapter.browse(BrowseRequest(scope=ACME))
    return {record.handle.provider_record_id: record for record in page.records}


async def problems(adapter: InstructionsAdapter) -> list[tuple[str, int, str]]:
    return [
        (Path(p.location.path).name, p.location.line, p.message)
        for p in (await adapter.health()).problems
        if p.location
    ]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_a_section_is_a_record_at_its_line(project: Path, open_adapter: Any) -> None:
    write(
        project / "CLAUDE.md",
        "Intro.\n\n# App\n\n## Tests\nRun pytest.\n\n```sh\n# not a heading\n```\n\n"
        "## Never push to main\n",
    )
    write(
        project / ".claude" / "rules" / "api" / "http.md",
        "---\npaths: [src/**]\n---\n# HTTP\nUse httpx.\n",
    )
    write(project / "AGENTS.md", "# Style\nShort.\n")
    records = await by_id(await open_adapter(InstructionsAdapter, path=project))
    assert set(records) == {
        "CLAUDE.md#",
        "CLAUDE.md#App/Tests",
        "CLAUDE.md#App/Never push to main",
        ".claude/rules/api/http.md#HTTP",
        "AGENTS.md#Style",
    }
    tests = records["CLAUDE.md#App/Tests"]
    assert tests.text == "Run pytest.\n\n```sh\n# not a heading\n```"
    assert tests.location is not None
    assert (tests.location.path, tests.location.line) == (str(project / "CLAUDE.md"), 6)
    assert tests.title == "Tests"
    assert tests.metadata["headings"] == ["App", "Tests"]
    rule = records[".claude/rules/api/http.md#HTTP"]
    assert rule.kind == "rule"
    assert rule.metadata["frontmatter"] == {"paths": ["src/**"]}
    assert rule.location is not None
    assert rule.location.line == 5
    lone = records["CLAUDE.md#App/Never push to main"]
    assert lone.text == "Never push to main"


async def test_imports_are_followed_and_say_from_where(project: Path, open_adapter: Any) -> None:
    write(
        project / "CLAUDE.md",
        "See @docs/git.md, and `@docs/no.md`.\nAsk @ann or ann@example.org.\n",
    )
    write(project / "docs" / "git.md", "# Git\nRebase. @../README\n")
    write(project / "README", "Plain words.")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    records = await by_id(adapter)
    assert records["docs/git.md#Git"].metadata["imported_by"] == "CLAUDE.md:1"
    assert records["README#"].metadata["imported_by"] == "docs/git.md:2"
    assert await problems(adapter) == []


async def test_missing_circular_and_deep_imports_are_problems(
    project: Path, open_adapter: Any
) -> None:
    write(project / "CLAUDE.md", "@gone.md\n@a.md\n@d1.md\n")
    write(project / "a.md", "back to @CLAUDE.md\n")
    for depth in range(1, 7):
        write(project / f"d{depth}.md", f"level {depth}\n@d{depth + 1}.md\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    records = await by_id(adapter)
    assert "d4.md#" in records
    assert "d5.md#" not in records
    told = [(name, line) for name, line, _ in await problems(adapter)]
    assert sorted(told) == [("CLAUDE.md", 1), ("a.md", 1), ("d4.md", 2)]


async def test_imports_stay_where_a_person_meant_them(
    project: Path, home: Path, open_adapter: Any
) -> None:
    write(home / ".ssh" / "id_rsa", "PRIVATE")
    write(home / "diary.md", "PRIVATE")
    write(home / ".claude" / "settings.json", "PRIVATE")
    write(home / ".claude" / "shared.md", "Meant to be shared.")
    write(project / ".env", "PRIVATE")
    write(project / "logo.png", "PRIVATE")
    write(project / "huge.md", "PRIVATE" * 300_000)
    (project / "link.md").symlink_to(home / "diary.md")
    names = (
        "~/.ssh/id_rsa", "~/diary.md", "../../diary.md", "~/.claude/settings.json", ".env",
        "logo.png", "huge.md", "link.md", "/etc/hostname", "/dev/zero", "~/.claude/shared.md",
    )  # fmt: skip
    write(project / "CLAUDE.md", "".join(f"@{name}\n" for name in names))
    adapter = await open_adapter(InstructionsAdapter, path=project)
    texts = [record.text for record in (await by_id(adapter)).values()]
    assert not any("PRIVATE" in text for text in texts)
    assert "Meant to be shared." in texts
    assert [line for _, line, _ in await problems(adapter)] == list(range(1, 11))


async def test_a_link_to_another_instruction_file_is_read_once(
    project: Path, open_adapter: Any
) -> None:
    write(project / "AGENTS.md", "# One\ntext\n")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert set(await by_id(adapter)) == {"CLAUDE.md#One"}
    assert await problems(adapter) == []


async def test_links_that_lead_nowhere_or_out_and_odd_files_are_problems(
    project: Path, home: Path, open_adapter: Any
) -> None:
    write(home / "secrets.md", "PRIVATE")
    (project / "CLAUDE.md").symlink_to(project / "CLAUDE.md")
    (project / "AGENTS.md").symlink_to(home / "secrets.md")
    (project / "CLAUDE.local.md").mkdir()
    write(project / ".claude" / "CLAUDE.md", "\0\0binary")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert await by_id(adapter) == {}
    assert len(await problems(adapter)) == 4


async def test_the_persons_own_folder_has_its_own_layout(home: Path, open_adapter: Any) -> None:
    write(home / ".claude" / "CLAUDE.md", "Be brief.\n@~/dotfiles/git.md\n@~/.netrc\n")
    write(home / ".claude" / "rules" / "sql.md", "No SELECT *.\n")
    write(home / "dotfiles" / "git.md", "Sign commits.\n")
    write(home / ".netrc", "PRIVATE")
    adapter = await open_adapter(InstructionsAdapter, path=home / ".claude", layout="user")
    texts = [record.text for record in (await by_id(adapter)).values()]
    assert sorted(text.split("\n")[0] for text in texts) == [
        "Be brief.",
        "No SELECT *.",
        "Sign commits.",
    ]
    assert [line for _, line, _ in await problems(adapter)] == [3]


async def test_a_file_that_comes_later_is_noticed(project: Path, open_adapter: Any) -> None:
    write(project / "CLAUDE.md", "See @later.md\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert len(await problems(adapter)) == 1
    write(project / "later.md", "Here now.")
    assert "later.md#" in await by_id(adapter)
    assert await problems(adapter) == []
    write(project / "AGENTS.md", "New.")
    assert "AGENTS.md#" in await by_id(adapter)


async def test_what_a_session_loads_and_what_not(project: Path, open_adapter: Any) -> None:
    write(project / "CLAUDE.md", "Always. @shared.md\n")
    write(project / "shared.md", "Imported.\n")
    write(project / ".claude" / "rules" / "all.md", "For all.\n")
    write(project / ".claude" / "rules" / "some.md", "---\npaths: [a/**]\n---\nSome. @more.md\n")
    write(project / ".claude" / "rules" / "more.md", "---\npaths: []\n---\nMore.\n")
    write(project / "AGENTS.md", "For others. @shared.md @only.md\n")
    write(project / "only.md", "Theirs alone.\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    records = await by_id(adapter)
    assert {name: record.topic for name, record in records.items()} == {
        "CLAUDE.md#": "loaded",
        "shared.md#": "loaded",
        ".claude/rules/all.md#": "loaded",
        ".claude/rules/more.md#": "loaded",
        ".claude/rules/some.md#": "by-path",
        "AGENTS.md#": "not-loaded",
        "only.md#": "not-loaded",
    }
    (project / "CLAUDE.md").write_text("@AGENTS.md\n")
    records = await by_id(adapter)
    assert records["AGENTS.md#"].topic == records["only.md#"].topic == "loaded"


async def test_comments_are_no_instructions(project: Path, open_adapter: Any) -> None:
    write(
        project / "CLAUDE.md",
        "<!-- a note -->\n# App\n<!-- for\n@gone.md\npeople --> Do this.\n"
        "Inline <!-- stays -->.\n\n```html\n<!-- code -->\n```\n\n<!-- never closed\n@here.md\n",
    )
    write(project / "here.md", "Here.\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    records = await by_id(adapter)
    assert set(records) == {"CLAUDE.md#App", "here.md#"}
    found = records["CLAUDE.md#App"]
    assert found.text == (
        " Do this.\nInline <!-- stays -->.\n\n```html\n<!-- code -->\n```\n\n"
        "<!-- never closed\n@here.md"
    )
    assert found.location is not None
    assert found.location.line == 5
    assert await problems(adapter) == []


async def test_instructions_of_subfolders(project: Path, open_adapter: Any) -> None:
    write(project / "AGENTS.md", "# Top\ntext\n")
    write(project / "api" / "AGENTS.md", "# Api\ntext\n")
    (project / "api" / "CLAUDE.md").symlink_to("AGENTS.md")
    write(project / "web" / "deep" / "AGENTS.md", "# Deep\ntext\n")
    for other in ("node_modules/x", ".hidden", "web/vendor/y", "dist"):
        write(project / other / "AGENTS.md", "# Other\ntext\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    there = {name: one.topic for name, one in (await by_id(adapter)).items()}
    assert there == {
        "AGENTS.md#Top": "not-loaded",
        "api/AGENTS.md#Api": "not-loaded",
        "web/deep/AGENTS.md#Deep": "not-loaded",
    }
    assert await problems(adapter) == []
    write(project / "web" / "CLAUDE.md", "# Web\nSee @deep/AGENTS.md\n")
    there = {name: one.topic for name, one in (await by_id(adapter)).items()}
    assert there["web/CLAUDE.md#Web"] == there["web/deep/AGENTS.md#Deep"] == "by-path"


async def test_every_file_is_read_in_its_order_with_all_that_is_known_of_it(
    project: Path, home: Path, open_adapter: Any
) -> None:
    write(home / ".claude" / "mine.md", "# Mine\nMine.\n")
    write(project / "CLAUDE.md", "Top. @docs/a.md and @docs/b.md.\n\n# Two\n\n@~/.claude/mine.md\n")
    write(project / "docs" / "a.md", "# A\nFirst.\n## Deep\n")
    write(project / "docs" / "b.md", "Second, after @a.md\n@c.txt\n")
    write(project / "docs" / "c.txt", "Third.\n")
    write(project / ".claude" / "CLAUDE.md", "Hidden.\n")
    write(project / "CLAUDE.local.md", "Local.\n")
    write(project / ".claude" / "rules" / "1.md", "---\npaths: a\nowner: ann\n---\nOne. @../../x\n")
    write(project / ".claude" / "rules" / "2" / "3" / "4" / "5" / "six.md", "Fifth.\n")
    write(project / ".claude" / "rules" / "2" / "3" / "4" / "5" / "6" / "seven.md", "Too deep.\n")
    write(project / "x", "Imported by a rule.\n")
    write(project / "AGENTS.md", "Others.\n")
    write(project / "sub" / "CLAUDE.local.md", "Sub.\n")
    write(project / "a" / "b" / "CLAUDE.md", "Deepest.\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    page = await adapter.browse(BrowseRequest(scope=ACME, sort="kind"))
    six = ".claude/rules/2/3/4/5/six.md"
    at = {
        one.handle.provider_record_id: (
            one.title, one.text.split("\n")[0], one.kind, one.topic,
            one.metadata.get("imported_by"), one.location and one.location.line,
        )
        for one in page.records
    }  # fmt: skip
    mine = str(home / ".claude" / "mine.md")
    assert list(at.items()) == [
        ("CLAUDE.md#", ("Top. @docs/a.md and @docs/b.md.", "Top. @docs/a.md and @docs/b.md.",
                        "instruction", "loaded", None, 1)),
        ("CLAUDE.md#Two", ("Two", "@~/.claude/mine.md", "instruction", "loaded", None, 5)),
        ("docs/a.md#A", ("A", "First.", "instruction", "loaded", "CLAUDE.md:1", 2)),
        ("docs/a.md#A/Deep", ("Deep", "Deep", "instruction", "loaded", "CLAUDE.md:1", 3)),
        ("docs/b.md#", ("Second, after @a.md", "Second, after @a.md", "instruction", "loaded",
                        "CLAUDE.md:1", 1)),
        ("docs/c.txt#", ("Third.", "Third.", "instruction", "loaded", "docs/b.md:2", 1)),
        (f"{mine}#Mine", ("Mine", "Mine.", "instruction", "loaded", "CLAUDE.md:5", 2)),
        (".claude/CLAUDE.md#", ("Hidden.", "Hidden.", "instruction", "loaded", None, 1)),
        ("CLAUDE.local.md#", ("Local.", "Local.", "instruction", "loaded", None, 1)),
        ("AGENTS.md#", ("Others.", "Others.", "instruction", "not-loaded", None, 1)),
        ("sub/CLAUDE.local.md#", ("Sub.", "Sub.", "instruction", "by-path", None, 1)),
        ("a/b/CLAUDE.md#", ("Deepest.", "Deepest.", "instruction", "by-path", None, 1)),
        (".claude/rules/1.md#", ("One. @../../x", "One. @../../x", "rule", "by-path", None, 5)),
        ("x#", ("Imported by a rule.", "Imported by a rule.", "rule", "by-path",
                ".claude/rules/1.md:5", 1)),
        (f"{six}#", ("Fifth.", "Fifth.", "rule", "loaded", None, 1)),
    ]  # fmt: skip
    known = {one.handle.provider_record_id: one for one in page.records}
    for one in page.records:
        assert one.location is not None
        assert one.location.path.endswith(one.metadata["file"])
        seconds = one.updated_at.timestamp() if one.updated_at else 0
        assert int(seconds) == int(Path(one.location.path).stat().st_mtime)
    assert known["docs/a.md#A/Deep"].metadata["headings"] == ["A", "Deep"]
    assert known[".claude/rules/1.md#"].metadata == {
        "frontmatter": {"paths": "a", "owner": "ann"}, "file": ".claude/rules/1.md",
    }  # fmt: skip
    assert await problems(adapter) == []


@pytest.mark.parametrize(
    ("name", "size", "is_read"),
    [
        ("a.md", 1024 * 1024, True),
        ("b.md", 1024 * 1024 + 1, False),
        ("Makefile", 9, True),
        ("c.YAML", 9, True),
        ("d.py", 9, False),
        (".github/e.md", 9, True),
        (".secret/f.md", 9, False),
        ("~/.claude/g.mdc", 9, True),
        ("~/.claude/h.json", 9, False),
        ("~/.claude/Notes", 9, False),
    ],
)
async def test_only_texts_of_some_size_are_imported(
    name: str, size: int, is_read: bool, project: Path, home: Path, open_adapter: Any
) -> None:
    file = Path(name).expanduser() if name.startswith("~") else project / name
    write(file, "x" * size)
    write(project / "CLAUDE.md", f"First.\n@{name}\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert len(await by_id(adapter)) == 1 + is_read
    assert [(one, line) for one, line, _ in await problems(adapter)] == (
        [] if is_read else [("CLAUDE.md", 2)]
    )


@pytest.mark.parametrize("count", [4, 5])
async def test_so_many_imports_of_a_file_are_followed(
    count: int, project: Path, open_adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.backends.instructions._IMPORT_COUNT", 4)
    write(project / "CLAUDE.md", "".join(f"@{at}.md\n" for at in range(count)))
    for at in range(count):
        write(project / f"{at}.md", f"Number {at}.\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert set(await by_id(adapter)) == {"CLAUDE.md#", *(f"{at}.md#" for at in range(4))}
    told = [(line, "first 4 imports" in said) for _, line, said in await problems(adapter)]
    assert told == ([(5, True)] if count == 5 else [])


async def test_a_project_may_import_from_its_whole_repository_and_a_home_is_none(
    project: Path, home: Path, open_adapter: Any
) -> None:
    package = project / "packages" / "one"
    write(project / "shared.md", "Of the repository.\n")
    write(home / "code" / "beside.md", "PRIVATE")
    write(package / "CLAUDE.md", "@../../shared.md\n@../../../beside.md\n")
    adapter = await open_adapter(InstructionsAdapter, path=package)
    assert [one.text for one in (await by_id(adapter)).values()][1:] == ["Of the repository."]
    assert [line for _, line, _ in await problems(adapter)] == [2]
    (home / ".git").mkdir()
    write(home / "diary.md", "PRIVATE")
    write(home / "notes" / "CLAUDE.md", "@../diary.md\n")
    adapter = await open_adapter(InstructionsAdapter, path=home / "notes")
    assert [one.text for one in (await by_id(adapter)).values()] == ["@../diary.md"]
    write(home / "CLAUDE.md", "Of the home.\n")
    adapter = await open_adapter(InstructionsAdapter, path=home)
    assert [one.text for one in (await by_id(adapter)).values()] == ["Of the home."]


async def test_many_subfolders_are_named(
    project: Path, open_adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.backends.instructions._MOST_FOLDERS", 3)
    for number in range(5):
        write(project / f"f{number}" / "AGENTS.md", f"# N{number}\ntext\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert set(await by_id(adapter)) == {f"f{number}/AGENTS.md#N{number}" for number in range(3)}
    [(_, _, told)] = await problems(adapter)
    assert told.startswith("Only the first 3 subfolders were searched for")


@pytest.mark.parametrize(
    ("line", "read", "told"),
    [
        (r"See @docs/with\ space.md.", True, ""),
        (r"See (@docs/with\ space.md)", False, ""),
        (r"See @./docs/with\ space.md, and", True, ""),
        (r"See @~/code/app/docs/with\ space.md", True, ""),
        (r"See @docs/no\ such.md", False, "@docs/no such.md: the imported file is not there."),
        ('See @"docs/with space.md"', False, "write @docs/with\\ space.md to import it."),
        ("See @'docs/with space.md'", False, "write @docs/with\\ space.md to import it."),
        ('Ask @"Jane Doe"', False, ""),
        (r"See `@docs/with\ space.md`", False, ""),
        (r"See ``a ` @docs/with\ space.md ``", False, ""),
        ("```\n@docs/with\\ space.md\n```", False, ""),
    ],
)
async def test_the_forms_of_an_import(
    line: str, read: bool, told: str, project: Path, open_adapter: Any
) -> None:
    write(project / "docs" / "with space.md", "# Spaced\ntext\n")
    write(project / "CLAUDE.md", f"# One\n{line}\n")
    adapter = await open_adapter(InstructionsAdapter, path=project)
    assert ("docs/with space.md#Spaced" in await by_id(adapter)) is read
    found = [message for _, _, message in await problems(adapter)]
    assert len(found) == bool(told)
    assert not told or found[0].endswith(told)
