"""The provider in `examples/`, built and installed as a package of somebody else, and used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.channels.cli.conftest import Run
from tests.processes import PYTEST

EXAMPLE = Path(__file__).parents[3] / "examples" / "memtui-notes"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder)]
    command = [*pip, *offline, str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_the_example_works_as_its_readme_says(here: Run, site: Path, tmp_path: Path) -> None:
    own_tests = subprocess.Popen(
        [*PYTEST, EXAMPLE],
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    listed = here("bindings", "providers", "notes", "--json").document
    assert (listed["package"], listed["version"]) == ("memtui-notes", "1.0.0")
    assert (listed["foreign"], listed["usable"]) == (True, True)
    assert listed["opens"] == "A SQLite file of notes."
    assert [(one["name"], one["kind"], one["required"]) for one in listed["config"]] == [
        ("path", "path", True),
        ("busy_seconds", "number", False),
    ]
    assert all(one["help"] for one in listed["config"])

    path = tmp_path / "notes.db"
    wrong = here("bindings", "add", "notes", "notes", "--set", "path=notes.db")
    assert wrong.code == 2
    assert "give an absolute path" in wrong.err
    add = "bindings", "add", "notes", "notes", "--set", f"path={path}"
    assert here(*add, "--try", "--json").document["records"] == 0
    assert here("bindings", "show", "notes").code == 1, "it was only tried"
    assert here(*add).code == 0
    assert here("bindings", "target", "set", "notes", "company").code == 0
    [first] = here("note", "Releases are cut on Thursdays.", "--json").document["handles"]
    texts = lambda *words: [  # noqa: E731
        one["text"] for one in here("query", *words, "--json").document["snippets"]
    ]
    assert texts("releases") == ["Releases are cut on Thursdays."]
    record_id = first["provider_record_id"]
    assert here("correct", record_id, "Releases are cut on Fridays.").code == 0
    assert texts("releases") == ["Releases are cut on Fridays."]
    assert here("undo").code == 0
    assert texts("releases") == ["Releases are cut on Thursdays."]
    assert here("forget", record_id, "--yes").code == 0
    assert texts("releases") == []
    [again] = here("undo", "--json").document["records"]
    assert again["handle"]["provider_record_id"] != record_id, "it keeps no ids, and says so"
    assert texts("releases") == ["Releases are cut on Thursdays."]
    assert here("browse", "--json").document["total"] == 1

    said, _ = own_tests.communicate()
    assert own_tests.returncode == 0, said
