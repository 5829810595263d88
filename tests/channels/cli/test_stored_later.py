"""What mem0's platform makes of a text later, as the commands show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.backends.mem0.servers import Platform
from tests.channels.cli.conftest import Run

TEXT = "We deploy from release. Nobody deploys on Fridays."


@pytest.fixture
def platform(here: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """The stand-in of the platform, behind the binding `hosted`."""
    opened = Platform()
    monkeypatch.setenv("MEM0_KEY", "k3y")
    added = here(
        "bindings", "add", "hosted", "mem0", "--set", f"url={opened.url}",
        "--set", "api=platform", "--set", "api_key_secret=MEM0_KEY", "--set", "infer=true",
    )  # fmt: skip
    assert added.code == 0, added.err
    yield opened
    opened.stop()


def test_a_write_is_shown_with_what_came_of_it(here: Run, platform: Platform) -> None:
    noted = here("note", TEXT, "--project", "web", "--run", "r-1", "--binding", "hosted")
    assert noted.code == 0
    operation_id = here("ops", "list", "type:write", "--json").document["operations"][0][
        "operation_id"
    ]
    assert f"memtui ops check {operation_id} asks what came of it." in noted.err
    assert here("undo", operation_id).code == 2
    waiting = here("ops", "check", operation_id, "--json").document
    assert (waiting["happened"], waiting["sentence"]) == (
        None, "hosted has not stored it yet; memtui asks again.",
    )  # fmt: skip
    shown = here("ops", "show", operation_id, "--json").document
    assert (shown["status"], shown["extraction"]) == ("unknown", None)

    platform.ingest("event-1", "Deploys come from release", "No deploys on Fridays")
    found: dict[str, Any] = {}
    while not found:  # a look at the log asks, two seconds after the last check
        found = here("ops", "list", "--json").document["found"]
        found = {name: one for name, one in found.items() if one["happened"]}
    assert list(found) == [operation_id]
    shown = here("ops", "show", operation_id, "--json").document
    assert shown["extraction"] == {
        "given": TEXT, "kept": ["Deploys come from release", "No deploys on Fridays"],
    }  # fmt: skip
    words = here("ops", "show", operation_id).out
    lines = [line.split(maxsplit=1) for line in words.splitlines()]
    assert ["given", TEXT] in lines
    assert ["kept", "No deploys on Fridays"] in lines
    told = here("runs", "show", "r-1", "--json").document["steps"]
    assert [one["text"] for one in told[0]["records"]] == shown["extraction"]["kept"]
    [first, _] = platform.rows
    got = here("get", first, "--project", "web", "--binding", "hosted", "--provenance", "--json")
    assert got.document["provenance"]["written"]["operation_id"] == operation_id
    assert here("undo", operation_id).code == 0
    assert platform.rows == {}


def test_one_that_failed_says_why_and_can_not_be_undone(here: Run, platform: Platform) -> None:
    here("note", TEXT, "--project", "web", "--binding", "hosted")
    platform.events["event-1"] |= {"status": "FAILED", "error": "The model is away."}
    [written] = here("ops", "list", "type:write", "--json").document["operations"]
    checked = here("ops", "check", written["operation_id"])
    assert "It did not happen: mem0 could not store it: The model is away." in checked.out
    assert here("undo", written["operation_id"]).code == 2
