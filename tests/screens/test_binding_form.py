"""The form of a binding, over the real service and real providers."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Select, Static, Switch

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.contract import Health, Json, Model
from memtui.paths import project_here
from memtui.screens.bindings.form import (
    BindingDraft,
    BindingForm,
    PathInput,
    config_of,
    written,
)
from memtui.screens.bindings.screen import BindingsScreen
from memtui.screens.dialogs import Choose, Confirm
from memtui.screens.form import FieldRow
from memtui.service import Caller, MemoryService
from memtui.service.home.provider_views import ProviderView, class_view
from memtui.service.providers import Providers
from memtui.testing import InMemoryAdapter
from tests.backends.mcp.conftest import MAPPING
from tests.backends.mcp.fakes import FAKE
from tests.screens.hostile import HOSTILE, assert_harmless, screen_text
from tests.screens.piloting import running, toasts, until
from tests.screens.test_namespaces import to_binding


class Config(Model):
    """A drawer."""

    folder: Path
    shape: str | None = None
    deep: bool = True
    sealed: bool | None = None
    rows: int = 3
    labels: tuple[str, ...] = ()
    more: Json = {}


class Drawer(InMemoryAdapter):
    key = "drawer"
    config_model = Config  # type: ignore[assignment]


def drawer() -> ProviderView:
    return ProviderView(key="drawer", package="p", **class_view(Drawer))


@pytest.mark.parametrize(
    "config",
    [
        {"folder": "/a"},
        {"folder": "/a", "deep": False, "sealed": False, "rows": 7, "labels": ["a", "b c"]},
        {"folder": "/a", "labels": ["a, b", " c"], "more": {"é": [1, None]}, "shape": "x"},
    ],
)
def test_a_form_of_a_config_says_that_config_again(config: Json) -> None:
    view = drawer()
    said, wrong = config_of(view, BindingDraft("d", values=written(view, config)))
    assert not wrong
    assert Config.model_validate(said) == Config.model_validate(config)
    assert Providers({"drawer": Drawer}).check_config("drawer", said)


def test_what_a_form_lacks_is_said_of_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    view, values = drawer(), written(drawer(), {})
    values |= {"labels": "[1", "more": "{", "rows": " 4 "}
    config, wrong = config_of(view, BindingDraft("d", values=values))
    assert set(wrong) == {"folder", "labels", "more"}
    assert config == {"rows": "4"}
    monkeypatch.setenv("HOME", "/people/ana")
    config, _ = config_of(view, BindingDraft("d", values={**values, "folder": "~/x/../y"}))
    assert config["folder"] == "/people/ana/y"


async def chosen(app: MemtuiApp, pilot: Pilot[Any], provider: str) -> BindingForm:
    """Choose a provider in the list that is open."""
    await until(pilot, lambda: isinstance(app.screen, Choose) and app.screen.highlighted)
    await pilot.press(*provider, "enter")
    await until(pilot, lambda: isinstance(app.screen, BindingForm))
    assert isinstance(app.screen, BindingForm)
    return app.screen


def said(form: BindingForm) -> str:
    return str(form.query_one(".dialog-error", Static).content)


async def test_a_binding_is_added_by_its_form_and_nothing_that_was_written_is_lost(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "site" / "strange-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[memtui.providers]\nstrange = no_such_module:A\n")
    monkeypatch.syspath_prepend(str(package.parent))
    garden = tmp_path / "garden"
    garden.mkdir()
    (garden / "note.md").write_text("# A note\n\nSow in March.\n")
    (tmp_path / "plain.txt").write_text("no folder")
    async with running(paths, settings, "bindings", (80, 24)) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Choose) and app.screen.highlighted)
        await pilot.press(*"strange", "enter")
        await until(pilot, lambda: "does not import" in str(toasts(app)))
        form = await chosen(app, pilot, "vault")
        await pilot.press("end", "-", "2", "tab", "space", "tab")
        path = form.focused
        assert isinstance(path, PathInput)
        path.value = f"{tmp_path}/pla"
        path.cursor_position = len(path.value)
        await until(pilot, lambda: path._suggestion)
        await pilot.press("tab")
        assert path.value == f"{tmp_path}/plain.txt"
        await pilot.press("enter")
        await until(pilot, lambda: "✗" in said(form))
        assert "plain.txt" in said(form)
        await pilot.press("x", "backspace")
        await until(pilot, lambda: "✗" not in said(form))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("escape")
        form = await chosen(app, pilot, "vault")
        assert form.draft.key == "vault-2"
        assert form.draft.read_only
        again = form.query_one(PathInput)
        assert again.value == f"{tmp_path}/plain.txt"
        again.value = str(garden)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "1 record" in said(form))
        assert [view.key for view in await service.bindings.all(caller)] == ["default"]
        await service.bindings.add(caller, "vault-2", "vault", {})  # somebody was quicker
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Who should vault-2 serve?" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "already a binding" in str(toasts(app)))
        await until(pilot, lambda: isinstance(app.screen, BindingForm))
        form = app.screen  # type: ignore[assignment]
        assert form.query_one(PathInput).value == str(garden)
        form.query(Input).first().value = "garden"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "1 record" in said(form))
        await pilot.click("#form-go")
        await until(pilot, lambda: "Who should garden serve? Nobody yet: esc." in screen_text(app))
        await until(pilot, lambda: "this folder" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Added garden" in str(toasts(app)))
        await until(pilot, lambda: isinstance(app.screen, BindingsScreen))
    added = {view.key: view for view in await service.bindings.all(caller)}["garden"]
    assert (added.config, added.read_only) == ({"path": str(garden)}, True)
    assert [one.target_id for one in added.targets] == [project_here()]
    await service.undo(caller)
    assert "garden" not in {view.key for view in await service.bindings.all(caller)}


async def test_what_was_found_is_looked_through_and_changed_by_the_same_form(
    paths: Paths,
    settings: Settings,
    service: MemoryService,
    caller: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tmp_path / "person" / "app"
    project.mkdir(parents=True)
    (project / "CLAUDE.md").write_text("# Rules\n\nBe brief.\n")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.chdir(project)

    async def form() -> BindingForm:
        await until(pilot, lambda: isinstance(app.screen, BindingForm))
        assert isinstance(app.screen, BindingForm)
        return app.screen

    async with running(paths, settings, "bindings", (40, 10)) as (app, pilot):
        bindings = app.screen
        assert isinstance(bindings, BindingsScreen)
        await until(pilot, lambda: bindings.view.unbound)
        assert app.state.session is not None
        group, read = app.state.session.service.bindings, list[str]()
        view_of = group.provider_view

        async def reading(name: str) -> ProviderView:
            read.append(name)
            return await view_of(name)

        monkeypatch.setattr(group, "provider_view", reading)
        place = next(n for n, row in enumerate(bindings._rows) if row.finding)
        bindings._tree.highlighted = place
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("e")
        shown = await form()
        assert shown.draft.read_only
        shown.query(Input).first().value = "told"
        shown.fields["agent_id"].widget.value = "x"  # type: ignore[attr-defined]
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "1 record" in said(shown))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Who should told serve?" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Added told" in str(toasts(app)))
        assert bindings._binding.key == "told"
        [_, told] = await service.bindings.all(caller)
        assert told.read_only
        given = {"path": str(project), "agent_id": "x", "project_id": "app"}
        assert {**told.config, "layout": "project"} == {**given, "layout": "project"}
        await to_binding(app, pilot, "told")
        await pilot.press("e")
        shown = await form()
        assert not shown.query(Switch)
        assert len(read) == 1, "what is known is not waited for again"
        shown.fields["agent_id"].widget.value = ""  # type: ignore[attr-defined]
        select = shown.fields["layout"].widget
        assert isinstance(select, Select)
        select.value = "user"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("escape")
        shown = await form()
        await pilot.press("ctrl+s")
        await until(pilot, lambda: str(shown.query_one("#form-go", Button).label) == "save")
        await pilot.press("enter")
        await until(pilot, lambda: "Saved the settings of told" in str(toasts(app)))
    [_, told] = await service.bindings.all(caller)
    assert told.config == {"path": str(project), "project_id": "app", "layout": "user"}


async def test_a_strangers_words_are_harmless_in_the_form(paths: Paths, settings: Settings) -> None:
    text = next(one for one in HOSTILE if "\x1b" in one)
    view = drawer()
    fields = [
        one.model_copy(update={"help": text, "words": text, "default": one.default or text})
        for one in view.config
    ]
    hostile = view.model_copy(update={"opens": text, "about": text, "config": tuple(fields)})

    async def never(key: str, config: Json, *, read_only: bool) -> Health:
        raise AssertionError(key, config, read_only)

    async with running(paths, settings, "bindings", (200, 60)) as (app, pilot):
        app.push_screen(
            BindingForm(text, hostile, BindingDraft(text), never, verb="add", has_key=True)
        )
        await until(pilot, lambda: isinstance(app.screen, BindingForm))
        assert_harmless(screen_text(app))


def _says(form: BindingForm, words: str) -> bool:
    return words in said(form)


async def test_a_command_is_shown_before_its_first_start(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    command = shlex.join([sys.executable, "-S", str(FAKE), str(tmp_path)])
    async with running(paths, settings, "bindings", (80, 24)) as (app, pilot):
        await pilot.press("a")
        form = await chosen(app, pilot, "mcp")
        fields = {one.field: one.widget for one in form.query(FieldRow)}
        for name, value in (("command", command), ("mapping", MAPPING)):
            field = fields[name]
            assert isinstance(field, Input)
            field.value = value
        for answer, words in (("escape", "Nothing was started"), ("y", "1 record")):
            await pilot.press("ctrl+s")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            assert "fakes.py" in screen_text(app)
            assert not (tmp_path / "pids").exists()
            await pilot.press(answer)
            await until(pilot, partial(_says, form, words))
        assert "An otter." in said(form)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Who should mcp serve?" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Added mcp" in str(toasts(app)))
    added = {view.key: view for view in await service.bindings.all(caller)}["mcp"]
    assert added.config["command"] == command
