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
    folder = home / "work" / "app"
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
        (r"See @~/work/app/docs/with\ space.md", True, ""),
        (r"See @docs/no\ such.md", False, "@docs/no such.md: the imported file is not there."),
        ('See @"docs/with space.md"', False, r"write @docs/with\ space.md to have it read."),
        ("See @'docs/with space.md'", False, r"write @docs/with\ space.md to have it read."),
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
