"""What a program will overwrite is said before it is changed."""

from __future__ import annotations

from pathlib import Path

from tests.channels.cli.conftest import Run

IT = "rollout_summaries/a.md"
WORDS = "the change is lost then"


def test_a_record_that_codex_writes_anew_is_changed_only_by_who_has_read_it(
    here: Run, tmp_path: Path
) -> None:
    file = tmp_path / "memories" / IT
    file.parent.mkdir(parents=True)
    file.write_text("It resumed.\n")
    added = here("bindings", "add", "codex", "codex-memory", "--set", f"path={file.parent.parent}")
    assert added.code == 0, added.err
    assert "caution   Codex writes this anew" in here("get", IT, "--binding", "codex").out
    kind = ("--kind", "rollout summary")
    for more in ((), kind):
        refused = here("correct", IT, "It broke.", "--binding", "codex", *more)
        assert (refused.code, WORDS in refused.err) == (5, True)
        assert file.read_text() == "It resumed.\n"
    record = here("get", IT, "--binding", "codex", "--json").document["record"]
    assert WORDS in record["caution"]
    revision = ("--revision", record["revision"])
    assert here("correct", IT, "It broke.", "--binding", "codex", *revision).code == 0
    assert file.read_text() == "It broke.\n"
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "It stopped." > "$1"\n')
    editor.chmod(0o700)
    edited = here("correct", IT, "--editor", "--binding", "codex", EDITOR=str(editor))
    assert edited.code == 0, edited.err
    assert edited.err.index(WORDS) < edited.err.index("Corrected")
    assert file.read_text() == "It stopped.\n"


def test_what_comes_back_says_so_before_it_is_forgotten(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "memories" / IT
    file.parent.mkdir(parents=True)
    file.write_text("It resumed.\n")
    here("bindings", "add", "codex", "codex-memory", "--set", f"path={file.parent.parent}")
    asked = here("forget", IT, "--binding", "codex")
    assert asked.err.index(WORDS) < asked.err.index("Forget 1 record from codex?")
    assert WORDS in here("forget", IT, "--binding", "codex", "--dry-run").err
    refused = here("forget", IT, "--binding", "codex", "--yes")
    revision = here("get", IT, "--binding", "codex", "--json").document["record"]["revision"]
    assert (refused.code, WORDS in refused.err) == (5, True)
    assert f"give its revision: {revision}." in refused.err
    assert file.exists()
    done = here("forget", IT, "--binding", "codex", "--yes", "--revision", revision)
    assert done.code == 0, done.err
    assert not file.exists()
