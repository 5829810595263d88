from __future__ import annotations

import asyncio
from collections.abc import Iterator

from textual.app import App
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import Input
from textual.widgets._toast import Toast, ToastHolder

from memtui.app import styles_path
from memtui.config import Paths, Settings
from memtui.contract import BrowseRequest, Invalid, Scope
from memtui.screens.dialogs import (
    Choice,
    Choose,
    ChooseAll,
    Confirm,
    EditText,
    Prompt,
    Waiting,
    WriteRecord,
)
from memtui.screens.form import FieldRow, Form
from memtui.widgets.choice_list import ChoiceList
from memtui.widgets.display import toast
from memtui.widgets.editor import ForeignTextArea
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, toasts, type_at_once, until


class _Host(App[None]):
    """An app that asks one thing."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str | None] = []

    def on_mount(self) -> None:
        self.push_screen(Prompt("Its name?", value="old"), self.answers.append)


class _Styled(App[None]):
    """An app with the styles of memtui."""

    CSS_PATH = styles_path()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"rule": "grey", "thumb": "grey"}


async def test_what_is_told_of_an_act_takes_the_place_of_what_was_told_of_the_one_before() -> None:
    app: App[None] = App()
    async with app.run_test(notifications=True) as pilot:
        toast(app, "Remembered: tea", title="coding · mcp")
        toast(app, "That cannot be.", severity="error")
        for said in ("Changed. u undoes it.", "Undone: 1 record. U redoes it.", "Copied."):
            toast(app, said)
            await pilot.pause()
        shown = [one._notification.message for one in app.query(Toast)]
        assert shown == ["Remembered: tea", "That cannot be.", "Copied."]
        assert len(app.query(ToastHolder)) == len(shown)


async def test_each_choice_is_turned_by_itself_and_taken_together() -> None:
    answers: list[tuple[str, ...] | None] = []
    app: App[None] = App()
    async with app.run_test() as pilot:
        choices = [Choice(one, one) for one in ("runs", "comments", "documents")]
        asked: ChooseAll[str] = ChooseAll("Which?", choices, ("comments",))
        await app.push_screen(asked, answers.append)
        await pilot.press("space", "down", "enter", "down", "space")
        assert asked.is_written
        await pilot.press("space", "ctrl+s")
        await pilot.pause()
    assert answers == [("runs",)]


async def test_a_long_list_is_moved_in_narrowed_and_clicked() -> None:
    answers: list[int | None] = []
    choices = [Choice(number, f"choice {number}", sentence="what it does") for number in range(90)]
    choices[1] = Choice(1, "long " * 50)
    app = _Styled()
    async with app.run_test(size=(80, 24)) as pilot:

        async def asked() -> ChoiceList:
            await app.push_screen(Choose("Which?", choices), answers.append)
            await pilot.pause()
            return app.screen.query_one(ChoiceList)

        listed = await asked()
        assert listed.virtual_size.height > 2 * 90
        for keys, place in (
            (("down", "down"), 2),
            (("up", "up", "up"), 89),
            (("down",), 0),
            (("pagedown", "pagedown"), 2 * listed.page),
            (("pageup", "pageup", "pageup"), 0),
        ):
            await pilot.press(*keys)
            assert listed.highlighted == place
        await pilot.press(*"77", "enter")
        await pilot.pause()
        assert answers == [77]

        listed = await asked()
        await pilot.press("up")
        await pilot.pause()
        assert listed.scroll_offset.y == listed.max_scroll_y > 0
        await pilot.click(ChoiceList, offset=(3, listed.size.height - 3))
        await pilot.pause()
        assert answers == [77, 88]


async def test_a_question_keeps_its_answers_on_five_lines() -> None:
    app = _Styled()
    async with app.run_test(size=(20, 5)) as pilot:
        long = "Forget 1 record from a binding with a very long name?"
        await app.push_screen(Confirm(long, verb="forget", detail="It says a lot. " * 20))
        await pilot.pause()
        assert screen_text(app).splitlines()[-1].strip() == "y forget   esc …"
        await app.push_screen(Prompt(long, value="written"))
        await pilot.pause()
        shown = screen_text(app)
        assert "written" in shown
        assert "enter ok   esc …" in shown


class _Words(Form[None]):
    help = ("It says a lot. " * 9,) * 2

    def rows(self) -> Iterator[FieldRow]:
        for name, said in zip(("path", "words"), self.help, strict=True):
            yield FieldRow(name, name, Input(compact=True), Content(said))

    def action_submit(self) -> None:
        self.refused("It does not fit. " * 9, {"words": "It does not."})


async def test_a_form_shows_on_five_lines_what_is_written_and_in_which_field() -> None:
    app = _Styled()
    async with app.run_test(size=(20, 5)) as pilot:
        await app.push_screen(_Words("Settings of a long name", go="check"))
        type_at_once(app, *"written")
        await until(pilot, lambda: "written" in screen_text(app))
        assert [row.strip() for row in screen_text(app).splitlines()[1:3]] == ["path", "written"]
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "It does no" in screen_text(app))
        type_at_once(app, *"more")
        await until(pilot, lambda: "more" in screen_text(app))
        assert "words" in screen_text(app)


async def test_a_size_that_is_past_lays_nothing_out() -> None:
    app = _Styled()
    async with app.run_test(size=(80, 24)) as pilot:
        form = _Words("Settings", go="check")
        await app.push_screen(form)
        form.post_message(Resize(Size(100, 30), Size(100, 30)))
        await pilot.pause()
        assert form._compositor.size == app.size


async def test_a_field_takes_no_line_for_what_nobody_says() -> None:
    app = _Styled()
    async with app.run_test(size=(80, 24)) as pilot:
        form = _Words("Settings", go="check")
        form.help = ("", "It says something.")
        await app.push_screen(form)
        await pilot.pause()
        assert [row.size.height for row in form.query(FieldRow)] == [1, 2]


async def test_what_is_typed_while_a_disk_is_looked_at_is_not_written_into_the_name(
    paths: Paths, settings: Settings
) -> None:
    answers: list[str | None] = []
    async with running(paths, settings, "records") as (app, pilot):
        found = asyncio.Event()
        asked = Prompt("Which file?", value="file", look=lambda _: found.wait())
        await app.push_screen(asked, answers.append)
        type_at_once(app, "enter", "x")
        await until(pilot, lambda: isinstance(app.screen, Waiting))
        found.set()
        await until(pilot, lambda: answers == ["file"])


async def test_a_toast_leaves_the_answers_of_a_low_dialog_to_be_seen() -> None:
    app = _Styled()
    async with app.run_test(size=(40, 10), notifications=True) as pilot:
        await app.push_screen(Confirm("Forget 1 record?", verb="forget", detail="text " * 40))
        toast(app, "Copied. " * 20)
        await until(pilot, lambda: "Copied." in screen_text(app))
        shown = screen_text(app)
        assert "y forget" in shown
        assert all("Copied." not in line for line in shown.splitlines()[2:])


async def test_a_click_beside_a_dialog_goes_back() -> None:
    app = _Host()
    async with app.run_test() as pilot:
        await pilot.click(offset=(0, 0))
        await pilot.pause()
        assert app.answers == [None]


async def test_an_answer_that_comes_late_takes_along_what_was_opened_over_the_dialog() -> None:
    answers: list[object] = []
    app: App[None] = App()
    async with app.run_test() as pilot:
        asked = Prompt("Its name?")
        await app.push_screen(asked, answers.append)
        await app.push_screen(Confirm("Throw it away?", verb="throw away"), answers.append)
        asked.dismiss("new")
        await pilot.pause()
        assert app.screen_stack == [app.screen]
    assert answers == [None, "new"]


async def test_what_was_said_of_a_text_goes_when_the_text_changes() -> None:
    def check(text: str) -> None:
        raise Invalid(f"{text!r} will not do.")

    app: App[None] = App()
    async with app.run_test() as pilot:
        await app.push_screen(Prompt("Which?", value="old", check=check))
        await pilot.press("enter")
        await pilot.pause()
        assert "'old' will not do." in screen_text(app)
        await pilot.press("e")
        await pilot.pause()
        assert "will not do" not in screen_text(app)


async def test_a_click_beside_a_dialog_throws_away_nothing_that_is_written() -> None:
    app = _Host()
    async with app.run_test() as pilot:
        await pilot.press("e", "r")
        await pilot.click(offset=(0, 0))
        await pilot.pause()
        assert app.answers == []
        assert app.screen.query_one(Input).value == "er"
        await pilot.press("escape")
        await pilot.pause()
        assert app.answers == [None]


async def test_keys_that_come_at_once_act_in_their_order(paths: Paths, settings: Settings) -> None:
    keys = ["o", "t", "backspace", "n", "e", "left", "left", "delete", "N", "end", "s"]
    async with running(paths, settings, "records") as (app, pilot):
        type_at_once(app, "a", *keys, "tab", *keys)

        def written() -> tuple[str, str] | None:
            asked = app.screen
            if not isinstance(asked, WriteRecord):
                return None
            return asked.text, asked.query_one("#field-project", Input).value

        await until(pilot, lambda: written() == ("oNes", "oNes"))


async def test_the_app_is_left_from_a_dialog_but_not_with_what_is_written(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, "records") as (app, pilot):
        await pilot.press("a", "w", "ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("ctrl+q")
        assert app.return_code is None
        assert isinstance(app.screen, WriteRecord)
        assert app.screen.text == "w"
        await pilot.press("escape", "y", "s")
        await until(pilot, lambda: app.screen.query(".dialog-input"))
        await pilot.press("q", "ctrl+q")
        assert app.return_code == 0


async def test_a_yes_to_throw_away_what_is_written_leaves_the_app(
    paths: Paths, settings: Settings
) -> None:
    async with running(paths, settings, "records") as (app, pilot):
        await pilot.press("a", "w", "ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "Leave, and throw away what you did not save?" in screen_text(app)
        assert app.return_code is None
        await pilot.press("y")
        assert app.return_code == 0


async def test_a_new_fact_is_one_line_that_enter_writes(paths: Paths, settings: Settings) -> None:
    async with running(paths, settings, "records") as (app, pilot):
        await pilot.press("a", "o", "n", "e", "enter", "t", "w", "o")
        await until(pilot, lambda: "ctrl+s write" in screen_text(app))
        asked = app.screen
        assert isinstance(asked, WriteRecord)
        assert asked.text == "one\ntwo"
        await pilot.press("backspace", "backspace", "backspace", "backspace")
        asked.query_one("#field-kind", Input).value = "fact"
        await until(pilot, lambda: "enter write" in screen_text(app))
        assert app.focused is asked.query_one(ForeignTextArea)
        await pilot.press("enter")
        await until(pilot, lambda: "Written. u undoes it." in toasts(app))
        session = app.state.session
        assert session is not None
        page = await session.service.browse(
            session.caller, BrowseRequest(scope=Scope(company_id="local"))
        )
        assert [(one.kind, one.text) for one in page.records] == [("fact", "one")]


async def test_fields_stand_apart_by_a_blank_or_where_lines_are_few_by_a_line() -> None:
    for height, apart, drawn in ((40, 2, False), (24, 1, True)):
        app = _Styled()
        async with app.run_test(size=(80, height)) as pilot:
            await app.push_screen(WriteRecord("vault", Scope(company_id="c")))
            await pilot.pause()
            project, user = (
                app.screen.query_one(f"#field-{one}") for one in ("project", "subject")
            )
            assert user.region.y - project.region.y == apart
            style = project.rich_style
            assert bool(style.underline) is drawn
            area = app.screen.query_one(ForeignTextArea)
            assert app.screen.query_one("#field-agent").region.right == area.region.right


async def test_the_field_of_a_text_is_as_high_as_the_text_and_leaves_the_keys_to_be_seen() -> None:
    app = _Styled()
    async with app.run_test(size=(80, 24)) as pilot:
        heights = []
        for text in ("one line", "line\n" * 5, "line\n" * 200):
            await app.push_screen(EditText("Edit", text))
            await pilot.pause()
            heights.append(app.screen.query_one(ForeignTextArea).size.height)
            assert "ctrl+s save" in screen_text(app)
            app.pop_screen()
        assert heights == [3, 6, 9]
