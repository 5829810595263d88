from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from textual.binding import BindingsMap

from memtui.actions import (
    ACTIONS,
    DIALOG_GROUPS,
    INPUT_GROUPS,
    SCREENS,
    actions_of,
    footer_actions,
    groups_on,
    key_label,
)
from memtui.app import MemtuiApp
from memtui.screens.analytics.screen import AnalyticsScreen
from memtui.screens.analytics.sql_editor import SqlEditor
from memtui.screens.bindings.screen import BindingsScreen
from memtui.screens.budget.screen import BudgetScreen
from memtui.screens.changes import ChangesScreen
from memtui.screens.checks import Checks
from memtui.screens.conformance import Conformance
from memtui.screens.impact import ImpactScreen
from memtui.screens.in_sync import InSyncScreen
from memtui.screens.insights import Insights
from memtui.screens.keymap import Keymap, action_entries
from memtui.screens.limits import LimitsScreen
from memtui.screens.migration import Migration
from memtui.screens.namespaces import NamespacesScreen
from memtui.screens.operations.screen import OperationsScreen
from memtui.screens.prune import PruneReview
from memtui.screens.query.screen import AskLine, QueryScreen
from memtui.screens.records.screen import RecordsScreen
from memtui.screens.review import ReviewScreen
from memtui.screens.runs import ReplayScreen, RunsScreen
from memtui.screens.sources import Sources
from memtui.screens.timeline import TimelineScreen
from memtui.screens.traces import TraceScreen
from memtui.widgets.dimmed import DimmingScreen
from memtui.widgets.filter_line import FilterLine
from memtui.widgets.frame import fitting
from memtui.widgets.panes import OptionRows
from memtui.widgets.virtual_list import VirtualList

T = TypeVar("T")

CARRIERS = {
    "app": MemtuiApp,
    "bindings": BindingsScreen,
    "operations": OperationsScreen,
    "query": QueryScreen,
    "records": RecordsScreen,
    "budget": BudgetScreen,
    "analytics": AnalyticsScreen,
    "prune": PruneReview,
    "insights": Insights,
    "checks": Checks,
    "impact": ImpactScreen,
    "limits": LimitsScreen,
    "namespaces": NamespacesScreen,
    "conformance": Conformance,
    "migration": Migration,
    "in_sync": InSyncScreen,
    "runs": RunsScreen,
    "trace": TraceScreen,
    "replay": ReplayScreen,
    "sources": Sources,
    "timeline": TimelineScreen,
    "changes": ChangesScreen,
    "review": ReviewScreen,
    "list": VirtualList,
    "filter": FilterLine,
    "ask": AskLine,
    "sql": SqlEditor,
}


def letters() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the letters of the table in CONTRIBUTING.md: the part, the letter, its actions."""
    text = Path("CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Letters")[2]
    part = ""
    for row in text.partition("\n## ")[0].splitlines():
        if found := re.match(r"\| \*\*(.+)\*\* \|", row):
            part = found[1]
        elif row.startswith("| `"):
            keys, _, named = (re.findall(r"`([^`]+)`", cell) for cell in row.split(" | "))
            ids = {one for name in named for one in expanded(name)}
            for key in keys:
                yield part, key, ids if len(keys) == 1 else {named[keys.index(key)]}


def expanded(name: str) -> set[str]:
    """Return the ids of an entry: `*.copy` is every `copy` but those of lists and input lines."""
    own = {one for one in ACTIONS.values() if one.group not in {*INPUT_GROUPS, "list"}}
    return {one.id for one in own if one.verb == name[2:]} if name.startswith("*.") else {name}


REMOVES = {"forget", "remove", "refuse", "delete", "erase", "clear"}


def test_each_letter_has_the_meaning_that_the_table_gives_it() -> None:
    keyed: dict[str, set[str]] = {}
    for action in ACTIONS.values():
        for key in filter(lambda one: len(one) == 1 and one.isascii(), map(key_label, action.keys)):
            keyed.setdefault(key, set()).add(action.id)
    assert {key: ids for _, key, ids in letters()} == keyed
    removing = {one.id for one in ACTIONS.values() if one.verb in REMOVES} | {"prune.apply"}
    assert set.union(*(ids for part, _, ids in letters() if part == "removes")) == removing
    everywhere = {key for part, key, _ in letters() if part == "everywhere"}
    for action in actions_of("app"):
        assert {one for one in map(key_label, action.keys) if len(one) == 1} <= everywhere


def test_no_dialog_gives_another_meaning_to_a_letter_of_the_whole_app() -> None:
    taken = {key for part, key, _ in letters() if part != "on some screens"}
    for dialog in every_kind_of(DimmingScreen):
        for one in BindingsMap(dialog.__dict__.get("BINDINGS", ())).key_to_bindings.values():
            for key in (key_label(binding.key) for binding in one):
                if key in taken:
                    meant = {"q": "back", "d": "take('delete')"} | {
                        str(tab.number): f"everywhere('go_{tab.mode}')" for tab in SCREENS
                    }
                    said = {"back", "everywhere('help')"} if key == "?" else {meant.get(key)}
                    assert one[0].action in said, (dialog, key)


def every_kind_of(kind: type[T]) -> Iterator[type[T]]:
    """Yield the subclasses of a class, and theirs."""
    for one in kind.__subclasses__():
        yield one
        yield from every_kind_of(one)


@pytest.mark.parametrize("action_id", list(ACTIONS))
def test_every_action_has_its_method(action_id: str) -> None:
    action = ACTIONS[action_id]
    if action.verb.startswith("go_"):
        assert action.verb.removeprefix("go_") in {tab.mode for tab in SCREENS}
    else:
        assert callable(getattr(CARRIERS[action.group], f"action_{action.verb}"))


def test_a_plain_list_carries_what_needs_no_columns() -> None:
    for action in actions_of("list"):
        if not action.needs and action.verb not in {"page_down", "page_up"}:
            assert callable(getattr(OptionRows, f"action_{action.verb}"))


def test_every_sentence_is_one() -> None:
    for action in ACTIONS.values():
        assert action.description.endswith("."), action.id
        assert action.keys or action.group not in {*DIALOG_GROUPS, *INPUT_GROUPS}, action.id


def test_the_footer_has_eight_keys_on_a_screen_and_ends_with_help() -> None:
    for tab in SCREENS:
        shown = footer_actions(tab.mode)
        assert len({one.id for one in shown}) == 8
        assert shown[-1].id == "app.help"
    for group in INPUT_GROUPS:
        assert {one.group for one in footer_actions(group)} == {group}


def test_every_footer_has_the_help_also_at_80_columns() -> None:
    keymap = Keymap({})
    for group in {one.group for one in ACTIONS.values() if one.verb == "help"} - {"app"}:
        entries = action_entries(footer_actions(group), keymap, lambda _id: "", {})
        shown = [one.action_id for one in fitting(entries, 78)]
        assert any(one.endswith(".help") for one in shown), (group, shown)
    entries = action_entries(footer_actions("migration"), keymap, lambda _id: "", {})
    assert "migration.compare" in [one.action_id for one in fitting(entries, 78)]


def test_the_footer_of_the_queue_shows_undo_and_redo_side_by_side() -> None:
    shown = [one.verb for one in footer_actions("review")]
    assert shown[3:6] == ["mark", "undo", "redo"]


def test_numbers_keep_their_meaning() -> None:
    assert {tab.mode: tab.number for tab in SCREENS}.items() >= {
        ("bindings", 1),
        ("operations", 2),
        ("query", 3),
        ("records", 4),
        ("budget", 5),
        ("analytics", 6),
    }
    assert groups_on("records")[0] == "records"
    assert groups_on("records")[-1] == "app"


@pytest.mark.parametrize(
    ("key", "label"),
    [("question_mark", "?"), ("ctrl+d", "ctrl+d"), ("escape", "esc"), ("G", "G"), ("down", "↓")],
)
def test_keys_read_as_a_person_writes_them(key: str, label: str) -> None:
    assert key_label(key) == label


def test_the_registry_imports_no_textual() -> None:
    code = "import sys, memtui.actions; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
