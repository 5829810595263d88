"""Saved views by command, as the app keeps them."""

from __future__ import annotations

from pathlib import Path

from memtui.config import find_paths
from memtui.screens.kept import SavedView, save_named
from tests.channels.cli.conftest import Run


def test_a_view_is_saved_listed_used_and_deleted(here: Run) -> None:
    here("note", "we deploy from release", "--project", "p")
    here("note", "an old draft", "--project", "p")
    saved = here("views", "save", "mine", "-draft", "project:p", "--screen", "records")
    assert saved.code == 0
    assert here("views", "save", "log", "type:write,query", "-by:agent:x").code == 0
    [log, mine] = here("views", "list", "--json").document["views"]
    assert (mine["name"], mine["screen"], mine["filter_line"]) == (
        "mine", "records", "project:p -draft",
    )  # fmt: skip
    assert log["screen"] == "operations"
    [found] = here("views", "use", "mine", "--json").document["records"]
    assert found["text"] == "we deploy from release"
    used = here("views", "use", "log", "--json").document["operations"]
    assert {one["operation_type"] for one in used} == {"write"}
    assert here("views", "delete", "mine").code == 0
    assert [one["name"] for one in here("views", "list", "--json").document["views"]] == ["log"]


def test_a_view_is_used_in_its_order(here: Run, home: Path) -> None:
    for text in ("bb", "a", "ccc"):
        assert here("note", text, "--project", "p").code == 0
    for name, screen, column in (("log", "operations", "number"), ("mine", "records", "size")):
        view = SavedView(name=name, screen=screen, filter_line="project:p", column=column)
        save_named(find_paths(home).views_file, view.model_copy(update={"descending": False}))
    used = here("views", "use", "log", "--json").document
    numbers = [one["seq"] for one in used["operations"]]
    assert (len(numbers), numbers) == (3, sorted(numbers))
    assert used["total"] == 3
    records = here("views", "use", "mine", "--json").document["records"]
    assert [one["text"] for one in records] == ["a", "bb", "ccc"]


def test_what_cannot_be_a_view_is_refused_and_nothing_is_kept(here: Run) -> None:
    refused = here("views", "save", "bad", "agnt:x")
    assert (refused.code, "did you mean agent:" in refused.err) == (2, True)
    assert here("views", "list", "--json").document["views"] == []
    missing = here("views", "use", "bad")
    assert (missing.code, "There is no view bad; there are none yet." in missing.err) == (1, True)
    here("views", "save", "log")
    refused = here("views", "use", "log", "where from?")
    assert (refused.code, "takes no question" in refused.err) == (2, True)


def test_views_of_query_and_budget_show_what_their_filters_leave(here: Run) -> None:
    for topic in ("ci", "food"):
        here("note", f"the {topic} is slow", "--project", "p", "--topic", topic)
    here("facts", "add", "editor: vi", "--subject", "ana")
    here("views", "save", "asked", "topic:ci", "--screen", "query")
    here("views", "save", "cost", "subject:ana", "--screen", "budget")
    [listed] = here("views", "use", "asked", "--json").document["records"]
    [found] = here("views", "use", "asked", "the ci", "--json").document["snippets"][:1]
    assert listed["text"] == found["text"] == "the ci is slow"
    [fact] = here("views", "use", "cost", "--json").document["facts"]
    assert fact["text"] == "editor: vi"
