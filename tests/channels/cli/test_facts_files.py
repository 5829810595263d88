"""`facts export` and `import`: there and back, and nothing without a word."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.channels.cli.conftest import Run, assert_harmless
from tests.channels.cli.test_facts import U, add, listed, texts

V = ("--subject", "V")


@pytest.mark.parametrize("ending", ["jsonl", "md"])
def test_there_and_back_and_once_more(here: Run, tmp_path: Path, ending: str) -> None:
    until = ("--valid-to", "2090-01-01")
    add(here, "Likes tea", *U, "--topic", "Taste", "--pin", "--tag", "a", *until)
    add(here, "Ünïcode “quoted” \\ | *stars*", *U)
    file = tmp_path / f"facts.{ending}"
    assert here("facts", "export", *U, "--to", str(file), "--json").document["count"] == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ran = here("facts", "import", str(file), *V, "--json")
    assert (ran.code, len(ran.document["added"])) == (0, 2)
    assert sorted(texts(here, *V)) == sorted(texts(here, *U))
    kept = ("text", "topic", "pinned", "tags", "created_at", "created_by", "valid_to")
    wanted = kept if ending == "jsonl" else kept[:2]
    theirs, ours = (
        sorted([json.dumps([fact[name] for name in wanted]) for fact in listed(here, *whose)])
        for whose in (U, V)
    )
    assert theirs == ours
    again = here("facts", "import", str(file), *V, "--json").document
    assert (again["added"], len(again["skipped"]), again["refused"]) == ([], 2, [])
    assert here("facts", "export", *U, "--to", str(file)).code == 5


def test_a_list_of_facts_is_a_file_of_them(here: Run, tmp_path: Path) -> None:
    add(here, "port: 80", *U)
    file = tmp_path / "facts.json"
    file.write_text(here("facts", "list", *U, "--json").out)
    for imported in (
        ("facts", "import", str(file)),
        ("note", "--kind", "fact", "--file", str(file)),
    ):
        assert here(*imported, *V, "--json").document["refused"] == []
        assert texts(here, *V) == ["port: 80"]
    file = tmp_path / "facts.md"
    file.write_text("- tests: pytest\n- port: 81\n")
    assert here("note", "--kind", "fact", "--file", str(file), *V).code == 0
    assert sorted(texts(here, *V)) == ["port: 81", "tests: pytest"]


def test_every_line_is_accounted_for(here: Run, tmp_path: Path) -> None:
    add(here, "Is there")
    file = tmp_path / "in.jsonl"
    lines = [
        '{"text": "Good"}', "", '{"text": "Good"}', '{"text": "Is there"}', "no json", "[1]",
        '{"text": 5}', '{"fact": "x"}', json.dumps({"text": "x" * 201}), '{"text": "a\\nb"}',
        '{"text": "  "}', '{"text": "Also good"}',
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    plan = here("facts", "import", str(file), *U, "--dry-run", "--json")
    assert texts(here) == ["Is there"]
    ran = here("facts", "import", str(file), *U, "--json")
    assert (plan.code, ran.code) == (1, 1)
    for document in (plan.document, ran.document):
        assert [entry["line"] for entry in document["added"]] == [1, 12]
        assert [entry["line"] for entry in document["skipped"]] == [3, 4]
        assert [entry["line"] for entry in document["refused"]] == [5, 6, 7, 8, 9, 10, 11]
    assert texts(here) == ["Is there", "Good", "Also good"]


def test_markdown_that_is_no_fact_is_said(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "in.md"
    file.write_text("# Facts\n\nSome prose.\n\n- One\n## Taste\n* Two\n- Three\n  - with details\n")
    ran = here("facts", "import", str(file), *U, "--json")
    assert [entry["line"] for entry in ran.document["refused"]] == [3, 8]
    assert {(fact["text"], fact["topic"]) for fact in listed(here)} == {
        ("One", None), ("Two", "Taste"),
    }  # fmt: skip


def test_the_limit_holds_for_an_import(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.md"
    file.write_text("- One\n- Two\n- Three\n")
    monkeypatch.setenv("MEMTUI_FACT_MAX_COUNT", "2")
    ran = here("facts", "import", str(file), *U, "--json")
    assert [entry["line"] for entry in ran.document["refused"]] == [3]
    assert texts(here) == ["One", "Two"]


def test_an_import_that_stops_says_where(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "in.md"
    file.write_text("- One\n- Two\n")
    assert here("bindings", "read-only", "default", "on").code == 0
    ran = here("facts", "import", str(file), *U)
    assert (ran.code, "stopped at line 1, with 0 of 2 added" in ran.err) == (4, True)


def test_an_export_to_stdout(here: Run) -> None:
    add(here, "Likes tea")
    (line,) = here("facts", "export", *U).out.splitlines()
    assert json.loads(line)["text"] == "Likes tea"
    assert here("facts", "export", *U, "--format", "md").out == "# Facts\n\n- Likes tea\n"
    assert here("facts", "export", *U, "--json").document["count"] == 1


def test_an_export_to_a_terminal_commands_it_nothing(here: Run) -> None:
    add(here, "Likes \x9b2J \u202e tea")
    assert "\x9b2J \u202e" in here("facts", "export", *U, "--format", "md").out
    for form in ("md", "jsonl"):
        assert_harmless(here("facts", "export", *U, "--format", form, terminal=True).out)


@pytest.mark.parametrize("name", ["in.txt", "missing.md", "folder.md", "bytes.jsonl"])
def test_what_cannot_be_read_is_wrong_usage(here: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    ran = here("facts", "import", str(tmp_path / name), *U)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)


NOTES = """---
topic: ops
tags: [ci]
---
Before any heading.

# Deploys

Deploys happen on Monday.

```sh
# not a heading
```

## Below

# Only a heading
"""


def test_notes_of_a_file_are_stored_once_and_undone_at_once(here: Run, tmp_path: Path) -> None:
    file, place = tmp_path / "notes.md", ("--project", "web")
    file.write_text(NOTES)
    plan = here("note", "--file", str(file), *place, "--dry-run", "--json").document
    assert ([one["line"] for one in plan["added"]], here("browse", *place).out) == ([5, 7, 17], "")
    assert here("note", "--file", str(file), *place, "--kind", "reference").code == 0
    stored = here("browse", *place, "--json").document["records"]
    assert {(one["title"], one["text"].partition("\n")[0]) for one in stored} == {
        (None, "Before any heading."), ("Deploys", "Deploys happen on Monday."),
        ("Only a heading", "Only a heading"),
    }  # fmt: skip
    said = {(one["kind"], one["topic"], *one["tags"]) for one in stored}
    assert said == {("reference", "ops", "ci")}
    again = here("note", "--file", str(file), *place, "--json").document
    assert (again["added"], len(again["skipped"])) == ([], 3)

    there = tmp_path / "there.json"
    there.write_text(json.dumps({"records": stored}))
    copied = here("note", "--file", str(there), "--project", "other", "--json").document
    assert len(copied["added"]) == 3
    undone = here("undo")
    assert (undone.code, undone.err.count("the write from")) == (0, 3)
    assert "“Deploys happen on Monday. …”" in undone.err
    assert here("browse", "--project", "other").out == ""
    assert here("undo", copied["operation_ids"][0]).code == 5
    assert len(here("browse", *place, "--json").document["records"]) == 3


@pytest.mark.parametrize(
    ("name", "sort"), [("a.png", "picture"), ("b.JPEG", "picture"), ("c.mp3", "sound")]
)
def test_a_picture_is_refused_as_what_no_provider_keeps(
    here: Run, tmp_path: Path, name: str, sort: str
) -> None:
    file = tmp_path / name
    file.write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    ran = here("note", "--file", str(file))
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert f"is a {sort}; memtui's providers keep text alone (multimodal is false)" in ran.err


def test_words_of_a_file_are_as_they_are_written(here: Run, tmp_path: Path) -> None:
    file, place = tmp_path / "notes.md", ("--project", "web")
    file.write_text("---\ntitle: 7\ntopic: 1.10\ntags: [010, 7]\npinned: true\n---\nText.\n")
    assert here("note", "--file", str(file), *place).code == 0
    [one] = here("browse", *place, "--json").document["records"]
    assert (one["title"], one["topic"], one["tags"], one["pinned"]) == (
        "7", "1.10", ["010", "7"], True,
    )  # fmt: skip


@pytest.mark.parametrize(("text", "stored"), [("Plain words.\n", ["Plain words."]), ("", [])])
def test_markdown_without_a_heading_is_one_note(
    here: Run, tmp_path: Path, text: str, stored: list[str]
) -> None:
    file = tmp_path / "notes.md"
    file.write_text(text)
    report = here("note", "--file", str(file), "--dry-run", "--json").document
    assert [one["text"] for one in report["added"]] == stored


def test_a_note_of_a_file_that_cannot_be_is_said(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('[1, "two", {"text": ""}, {"text": "t", "tags": 5}, {"text": "two"}]')
    ran = here("note", "--file", str(file), "--json")
    assert ran.code == 1
    assert [one["text"] for one in ran.document["added"]] == ["two"]
    assert [one["line"] for one in ran.document["refused"]] == [1, 3, 4]
    assert [one["line"] for one in ran.document["skipped"]] == [5]
    for wrong in ("{", '{"a": 1}'):
        file.write_text(wrong)
        ran = here("note", "--file", str(file))
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    for words in (["--file", "x.txt"], ["--file", str(file), "text"], [], ["text", "--dry-run"]):
        assert here("note", *words).code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("facts", "import", "x.md", *U),
        ("facts", "import", "x.jsonl", *U),
        ("note", "--file", "x.md"),
        ("note", "--file", "x.json"),
        ("ops", "import", "x.jsonl"),
        ("ops", "import", "x.csv"),
        ("ops", "import", "x.parquet"),
        ("ops", "import", "x", "--format", "claude-code"),
        ("ops", "import", "x.jsonl", "--map", "started_at=ts"),
        ("backup", "restore", "x.zip", "--to", "new"),
    ],
)
@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device", "a folder"])
def test_what_is_no_file_is_refused_at_once(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.jsonl").write_text("{}\n")
    [name] = (one for one in command if one.startswith("x"))
    if kind == "a pipe":
        os.mkfifo(name)
    elif kind == "a socket":
        os.mknod(name, stat.S_IFSOCK | 0o600)
    elif kind == "a device":
        Path(name).symlink_to("/dev/zero")
    elif command[0] == "ops" and name in {"x", "x.jsonl", "x.csv", "x.parquet"}:
        pytest.skip("a folder of transcripts")
    else:
        Path(name).mkdir()
    ran = here(*command)
    assert ran.code == 2
    assert f"{name} is {kind}; name a file." in ran.err


def test_a_line_beyond_all_bounds_is_refused_before_it_is_read(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with file.open("wb") as made:
        made.write(b"\n")
        made.truncate(300_000_000)
    ran = here("facts", "import", str(file), *U)
    assert ran.code == 2
    assert "Line 2 of" in ran.err
    assert "is longer than 32 MiB" in ran.err
