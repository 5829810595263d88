"""The terminal app: its screens as modes, its actions, themes and keys.

Every import here delays the first paint, so the contract, the screens and the service are
imported after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from textual.actions import ActionParseResult
from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.driver import Driver
from textual.events import Event, InputEvent, Key, Paste, Resize
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.widgets import Input, TextArea
from textual.worker import WorkerFailed

from memtui.actions import ACTIONS, INPUT_GROUPS, SCREENS, actions_of, groups_on
from memtui.log_file import LogFile
from memtui.paths import Paths
from memtui.screens.keymap import Keymap
from memtui.screens.opening import Opening, first_look
from memtui.screens.themes import ANSI, DEFAULT, check_theme, own_themes, own_variables
from memtui.widgets.display import toast
from memtui.widgets.few_colours import PlainOnGround
from memtui.widgets.frame import Pressed
from memtui.widgets.keys import bindings_for
from memtui.widgets.typed import KeysFree, Typed

if TYPE_CHECKING:
    from memtui.config import Settings
    from memtui.contract import MemtuiError
    from memtui.screens.base import MemtuiScreen
    from memtui.screens.dialogs import Dialog
    from memtui.screens.following import News
    from memtui.screens.scope_choices import ScopeStep
    from memtui.screens.state import (
        AppState,
        ConfigurationChanged,
        GoTo,
        PrunePlanned,
        StateController,
        ViewChosen,
        ViewsChanged,
    )
    from memtui.widgets.panes import Split

T = TypeVar("T")

_log = logging.getLogger(__name__)
_HEALTH_SECONDS = 30
_EMBED_SECONDS = 5
_LATER_SECONDS = 2
_SHADOW_SECONDS = 60
_GAP_SECONDS = 0.1
"""Idle time before another step is prepared."""
_IDLE_SECONDS = 0.5
"""Idle time before a read that a key interrupted is started again."""
_RESTED_SECONDS = 10
"""Idle time before the prunable records are counted."""
_RECOUNT_SECONDS = 60
"""Seconds from a change to the next count of the prunable records."""
_LOOK_SECONDS = 0.1
"""Interval of checking whether a screen still reads, or the app is idle."""
_KEPT_SECONDS = 12
"""How long the notice about restored drafts is shown."""
_ALLOCATIONS_A_COLLECTION = 10_000
"""Python's own 700 makes a list of 10,000 records pause the screen for half of its time."""
_MODES = [tab.mode for tab in SCREENS]
_EVERYWHERE = "*"
"""The choice "all bindings"; no binding has this key."""
_FIRST_SCREEN = "records"
_OPENED = ("help", "palette", "scope_choices", "views", "editing", "review", "limits", "past")
"""Modules of the dialogs opened most often; imported while the app is idle."""
_MOVES = ("down", "up", "half_down", "half_up", "page_down", "page_up", "top", "bottom")
"""Actions that only move the cursor in a list."""
_ON_GROUND = PlainOnGround()


def styles_path() -> Path:
    """Return the style sheet: inside the package once installed, else at the repository's top."""
    package = Path(__file__).parent
    inside = package / "styles.tcss"
    return inside if inside.exists() else package.parent / "styles.tcss"


def _screen_class(mode: str) -> type[MemtuiScreen]:
    """Return the class of a numbered screen, imported when it is first shown."""
    module = importlib.import_module(f"memtui.screens.{mode}.screen")
    found: type[MemtuiScreen] = getattr(module, f"{mode.capitalize()}Screen")
    return found


class WholeCells(ScrollBarRender):
    """Draws scrollbars without a part of a cell at the ends of the thumb.

    A partial cell is a block in the background colour. Where a font does not fill the whole cell,
    as in most pictures, a stripe of the thumb's colour would show below the block.
    """

    VERTICAL_BARS = [" "]
    HORIZONTAL_BARS = [" "]


class MemtuiApp(App[None]):
    """memtui in a terminal.

    Given a function that loads the settings, it paints first, then imports and loads; keys typed
    meanwhile are queued. Then it opens the service in the background. The state that all screens
    share (`memtui.screens.state.AppState`) goes down to them; they post messages up.

    Raises:
        Invalid: the keymap or the theme in the settings is not valid, or the screen does not exist.
    """

    RISKS_SECONDS = 2
    """Seconds between two looks whether memories have changed, and with them their risks."""

    TITLE = "memtui"
    CSS_PATH = styles_path()
    ENABLE_COMMAND_PALETTE = False  # memtui has its own palette
    BINDINGS = bindings_for("app")

    controller: StateController
    """Owner of the state that all screens share; set once the settings are loaded."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings | Callable[[], Settings],
        *,
        company: str | None = None,
        screen: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        terminal: list[Any] | None = None,
        tours: bool = False,
        prepares: bool = False,
        unseen: bool = False,
    ) -> None:
        if screen is not None and screen not in _MODES:
            from memtui.contract import Invalid

            raise Invalid(f"There is no screen {screen!r}; choose from {', '.join(_MODES)}.")
        super().__init__()
        ScrollBar.renderer = WholeCells
        self._paths = paths
        self._company = company
        self._clock = clock
        self._terminal = terminal
        self._tours = tours
        """Whether the tour is shown if it was never shown in this home."""
        self._prepares = prepares
        """Whether screens are prepared while the app is idle, before they are first shown."""
        self._last_input = 0.0
        self._unseen = unseen
        """Whether no person uses the app: it then only reads, and saves no session."""
        self._first_screen = screen or ""
        self._loaded = self._spared = self._counts_again = False
        self._given_theme = ""
        """Theme set by an option, a variable or the settings file; empty if none sets one."""
        self._typed = Typed(self, self._give, self._stays, self._leaves)
        self.failure: Exception | None = None
        """Why the settings could not be loaded."""
        self._variables: dict[str, str] = {}
        """CSS variables that the current styles were computed with."""
        self._frames: list[MemtuiScreen] = []
        self._asked_to_leave = False
        """Whether the question whether to leave is open."""
        self._kept: frozenset[Path] = frozenset()
        """Folders of the drafts that were saved when memtui was ended from outside."""
        self._arriving: GoTo | None = None
        """The navigation that is not finished yet."""
        colours = "truecolor" if unseen else self.console.color_system
        self.set_class(colours in {None, "standard"}, "-few-colours")
        for mode in _MODES:
            self.add_mode(mode, partial(self._new_screen, mode))
        for theme in own_themes(colours):
            self.register_theme(theme)
        self._opening: Opening | None = None
        if callable(settings):
            look = first_look(paths, company)
            self._dress(look.theme, look.mode, look.keymap)
            self.mouse, self._load = look.mouse, settings
            self._opening = Opening(self._first_screen, look)
        else:
            self.mouse = settings.mouse
            self._control(settings)

    def get_driver_class(self) -> type[Driver]:
        """Return the terminal driver, changed to deliver pasted text whole."""
        from memtui.widgets.pasting import use_in

        driver = super().get_driver_class()
        use_in(driver)
        return driver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Draw the text of the selected row without colours where the terminal has only 16."""
        filters = super().get_line_filters()
        has_few = self.has_class("-few-colours") or self.native_ansi_color
        return [*filters, _ON_GROUND] if has_few and not self.no_color else filters

    def get_css_variables(self) -> dict[str, str]:
        """Add the app's own variables."""
        found = super().get_css_variables()
        few = self.has_class("-few-colours") and self.theme != ANSI
        return found | own_variables(found, is_dark=self.current_theme.dark, few_colours=few)

    def get_default_screen(self) -> Screen[Any]:
        """Return the frame shown until the first screen is loaded."""
        return self._opening or super().get_default_screen()

    def refresh_css(self, animate: bool = True) -> None:  # noqa: FBT001, FBT002 - Textual's own
        """Restyle where the theme's variables changed; skip it for the theme chosen at start."""
        if (variables := self.get_css_variables()) != self._variables:
            self._variables = variables
            super().refresh_css(animate)

    def update_styles(self, node: DOMNode, animate: bool = True) -> None:  # noqa: FBT001, FBT002
        """Restyle a mounted node; skip an unmounted one, since mounting styles it."""
        if node is self or node.parent is not None:
            super().update_styles(node, animate)

    def _dress(self, theme: str, mode: str, keymap: Keymap) -> None:
        self.theme = theme if theme in self.available_themes else DEFAULT
        if not self.is_running:
            self._variables = self.get_css_variables()
            self.stylesheet.set_variables(self._variables)
        wanted = self._first_screen or mode
        self._first_screen = wanted if wanted in _MODES else _FIRST_SCREEN
        self.keymap = keymap
        self.set_keymap(keymap.for_textual())

    def _control(self, settings: Settings) -> None:
        from memtui.screens.state import StateController

        self.controller = StateController(
            self,
            self._paths,
            settings,
            company=self._company,
            clock=self._clock,
            share=self._hand_down,
            failed=self._failed,
            tell=self._hand_on,
            here=lambda: self.frame,
        )
        check_theme(settings.theme)
        if "theme" in settings.model_fields_set:
            self._given_theme = settings.theme
        self._dress(
            self._given_theme or self.controller.saved.theme or settings.theme,
            self.controller.last_screen,
            self.state.keymap,
        )

    async def on_mount(self) -> None:
        """Paint the first screen, and begin to load the settings and the service."""
        self._leave_on_signals()
        if self._terminal is not None:
            vars(self._driver)["attrs_before"] = self._terminal
        if self._opening is None:
            await self._begin()
        else:
            self.call_after_refresh(lambda: self.run_worker(self._load_behind()))

    async def _load_behind(self) -> None:
        """Import and load in a thread, so that the event loop still takes keys."""

        def work() -> Settings:
            settings = self._load()
            _screen_class(self._first_screen)
            return settings

        try:
            self._control(await asyncio.to_thread(work))
        except Exception as error:  # noqa: BLE001 - `run_app` raises it
            self.failure = error
            self.exit()
        else:
            self.call_later(self._begin)

    async def _begin(self) -> None:
        """Show the first screen and begin to open the service."""
        self._loaded = True
        await self._show(self._first_screen)
        self._take_up()
        if self.controller.saved_problem:
            toast(self, self.controller.saved_problem, severity="warning")
        elif self._tours and not (self.controller.saved.toured or self._typed):
            self.action_tour()
        self.controller.open()
        self.controller.follower.begin()
        self.set_interval(_HEALTH_SECONDS, self.controller.check_health)
        self.set_interval(_HEALTH_SECONDS, self.controller.check_spending)
        if not self._unseen:
            self.set_interval(_EMBED_SECONDS, self.controller.embed)
            self.set_interval(_LATER_SECONDS, self.controller.ask_later)
            self.set_interval(_SHADOW_SECONDS, self.controller.ask_shadows)
            self.set_interval(self.RISKS_SECONDS, self.controller.check_risks)
            self.controller.watch_demo()
        if self._prepares:
            self.run_worker(self._prepare())

    async def _prepare(self) -> None:
        """Import, mount and draw the screens not visited yet, and import dialogs.

        Preparing performs no read that the operation log records.

        Modules are imported whenever no screen is reading; every other step waits until the person
        is idle. Textual mounts only screens in a stack, so they are pushed on the default mode's
        stack, which is never shown again.
        """
        for mode in _MODES:
            found = await self._between(partial(_screen_class, mode))
            for module in found.READS_WITH:
                await self._between(partial(importlib.import_module, module))
        for module in _OPENED:
            await self._between(partial(importlib.import_module, f"memtui.screens.{module}"))
        turn = asyncio.Lock()
        last_first = reversed(_MODES)  # Analytics reads as long as all others together
        await asyncio.gather(*(self._prepare_screen(mode, turn) for mode in last_first))
        await self._spare()
        self.set_timer(_RESTED_SECONDS, self._count_rested)

    async def _prepare_screen(self, mode: str, turn: asyncio.Lock) -> None:
        """Mount and draw a screen under `turn`; read its data without holding `turn`."""
        async with turn:
            await self._until_idle()
            if mode in {frame.MODE for frame in self._frames}:
                return
            screen = self._new_screen(mode)
            await self.push_screen(screen, mode=self.DEFAULT_MODE)
            screen.stack_updates += 1  # Textual does not lay out a screen never shown
            screen.post_message(Resize(self.size, self.size))
        await self._read_ahead(screen)
        async with turn:
            await self._until_idle()
            if not screen.is_current:
                screen.draw_ahead()

    async def _read_ahead(self, screen: MemtuiScreen) -> None:
        """Have a screen read its first data; any key interrupts, and it is read again when idle."""
        from memtui.contract import MemtuiError

        since, rest = None, _GAP_SECONDS
        while self._last_input != since:
            await self._until_idle(rest)
            rest = _IDLE_SECONDS
            since = self._last_input
            try:
                await screen.prepare()
            except MemtuiError:
                return  # opening the screen reads again and reports the error
            while screen.reading:
                await asyncio.sleep(_LOOK_SECONDS)
                if self._last_input != since:
                    screen.break_off()

    async def _spare(self) -> None:
        """Freeze the prepared objects, so that garbage collections skip them."""
        await self._until_idle()
        if not self.is_headless:
            gc.collect()
            gc.freeze()

    def _count_rested(self) -> None:
        """Count the prunable records once the person was idle for `_RESTED_SECONDS`."""
        is_resting = asyncio.get_running_loop().time() - self._last_input >= _RESTED_SECONDS
        if is_resting and not self._is_busy():
            from memtui.screens.prune import count_unasked

            self.controller.count_prunable(count_unasked)
            self._counts_again = False
        else:
            self.set_timer(_RESTED_SECONDS, self._count_rested)

    async def _between(self, work: Callable[[], T]) -> T:
        """Run work in a thread while no screen is reading; the event loop still takes keys."""
        await self._until_idle(0)
        return await asyncio.to_thread(work)

    async def _until_idle(self, seconds: float | None = None) -> None:
        loop, rest = asyncio.get_running_loop(), _GAP_SECONDS if seconds is None else seconds
        while True:
            is_busy, left = self._is_busy(), self._last_input + rest - loop.time()
            if not is_busy and left <= 0:
                return
            await asyncio.sleep(max(left, _LOOK_SECONDS))

    def _is_busy(self) -> bool:
        is_checked = self.state.health is not None or bool(self.state.resolution_problem)
        is_shown = self.frame is not None and not self.frame.reading
        return not is_checked or self._typed.paused or not is_shown

    async def _show(self, mode: str) -> None:
        """Show a screen; typed keys wait until the screen has set its focus."""
        self._typed.paused = True
        await self.switch_mode(mode)
        self.call_later(self._give_typed)

    def _give_typed(self) -> None:
        self._typed.paused = False
        self._typed.begin()

    def _leave_on_signals(self) -> None:
        """Leave cleanly on SIGTERM and SIGHUP: restore the terminal, save the session."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for asked in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(asked, self._leave, 128 + asked)

    def _leave(self, code: int) -> None:
        self._remember()
        if self.return_code is None:  # a closing terminal sends its signal more than once
            self._keep_drafts(asked_from_outside=code != 0)
        self.exit(return_code=code)

    def _take_up(self) -> None:
        """Offer the drafts that were unsaved when memtui was ended."""
        from memtui.screens.drafts import kept_drafts, offered

        if self._unseen or not (found := kept_drafts(self._paths.data)):
            return
        mended: set[str] = set()
        for folder, one in found.items():
            if not one.pending_id:
                self.state.left[folder] = one
            elif one.pending_id in mended:
                continue  # one at a time: this one is offered at the next start
            else:
                mended.add(one.pending_id)
                self.state.mended[one.pending_id] = one.text
            self._kept |= {folder}
        toast(self, offered(list(found.values())), severity="warning", timeout=_KEPT_SECONDS)

    def _keep_drafts(self, *, asked_from_outside: bool) -> None:
        """Save unsaved texts as drafts where a signal ends the app; delete the drafts taken up.

        A draft taken up was saved, or discarded after a yes, or has just been saved again.
        """
        if not self._loaded:
            return
        from memtui.contract import MemtuiError
        from memtui.screens.base import ServiceScreen
        from memtui.screens.drafts import KeptDraft, keep_draft

        try:
            if asked_from_outside:
                over = (one for one in self.screen_stack if isinstance(one, ServiceScreen))
                screens = dict.fromkeys([*self._frames, *over])
                drafts = [draft for screen in screens for draft in screen.to_keep]
                written = {draft.pending_id for draft in drafts}
                drafts += [
                    KeptDraft(text=text, pending_id=pending_id)
                    for pending_id, text in self.state.mended.items()
                    if pending_id not in written
                ]
                for draft in drafts:
                    keep_draft(self._paths.data, draft)
        except (OSError, MemtuiError) as error:
            _log.error("The draft cannot be saved: %s", error)
            return
        for folder in self._kept - self.state.left.keys():
            shutil.rmtree(folder, ignore_errors=True)

    def stop_reading(self) -> None:
        """End the thread that reads keys; it can survive a closed terminal.

        Where writing to the terminal fails, Textual gives up before it stops the thread, which
        would then read end-of-file for ever.
        """
        ended = getattr(self._driver, "exit_event", None)
        if ended is not None:
            ended.set()

    async def on_unmount(self) -> None:
        """Save the session and close the service."""
        self._typed.end()
        if self._loaded:
            await self.controller.close(keeps=not self._unseen)

    def _new_screen(self, mode: str) -> MemtuiScreen:
        """Return the screen of a mode; make it on the first call."""
        for frame in self._frames:
            if mode == frame.MODE:
                return frame
        screen = _screen_class(mode)(self.state)
        self._frames.append(screen)
        return screen

    @property
    def state(self) -> AppState:
        """The current state that all screens share."""
        return self.controller.state

    @property
    def frame(self) -> MemtuiScreen | None:
        """The numbered screen shown, below any dialogs; None: none is shown yet."""
        shown = self.screen_stack[0]
        return next((one for one in self._frames if one is shown), None)

    def _hand_down(self, state: AppState) -> None:
        for frame in self._frames:
            frame.state = state
        self._arrive()
        if state.health is not None and not self._spared and not self.is_headless:
            self._spared = True
            gc.freeze()  # later collections skip everything loaded so far

    def _hand_on(self, news: News) -> None:
        from memtui.screens.base import ServiceScreen

        over = (one for one in self.screen_stack[1:] if isinstance(one, ServiceScreen))
        for screen in (*self._frames, *over):
            screen.happened(news)
        known = self.state.prune_figures
        if known is not None and known.verdict is None and not self._counts_again:
            self._counts_again = True
            self.set_timer(_RECOUNT_SECONDS, self._count_rested)

    def _failed(self, error: MemtuiError) -> None:
        toast(self, str(error), severity="error")

    def on_views_changed(self, message: ViewsChanged) -> None:
        """Use the changed saved views."""
        self.controller.use_views(message.views)

    def on_prune_planned(self, message: PrunePlanned) -> None:
        """Share the findings of the prune review with all screens."""
        self.controller.use_pruning(message.found)

    def on_split_moved(self, message: Split.Moved) -> None:
        """Remember the position of the border between a list and its details."""
        self.controller.keep_share(message.place, message.share)

    async def on_view_chosen(self, message: ViewChosen) -> None:
        """Apply a saved view on its screen, or on this one if its screen no longer exists."""
        screen = message.view.screen
        if screen in _MODES:
            await self._show(screen)
        if self.frame is not None:
            self.frame.use_view(message.view)

    def on_configuration_changed(self, message: ConfigurationChanged) -> None:
        """Resolve bindings and check spending again after settings changed."""
        message.stop()
        self.controller.resolve_again()
        self.controller.check_spending()
        self._count_rested()

    async def on_go_to(self, message: GoTo) -> None:
        """Show another screen, and use the message's scope, filter, binding and moment."""
        if message.scope is not None:
            self._remember()
            self.controller.choose_scope(message.scope)
        if message.mode:
            await self._show(message.mode)
        key = None if self._shows_already(message) else message.binding_key
        self.controller.choose(
            filter_line=message.filter_line,
            binding_key=key,
            everywhere=message.everywhere,
            as_of=message.as_of,
        )
        self._arriving = message
        self._arrive()

    def _shows_already(self, message: GoTo) -> bool:
        """Whether the target binding already serves this scope, so need not be chosen."""
        state = self.state
        found, narrowed = state.resolution, state.filter.binding_key is not None
        return not (
            state.everywhere or narrowed or message.scope is not None or message.everywhere
        ) and (found is not None and found.binding_key == message.binding_key)

    def _arrive(self) -> None:
        """Finish the navigation (select a row, run its action) once the new state is in force."""
        if self._arriving is None or self.controller.settling or self.frame is None:
            return
        arrived, self._arriving = self._arriving, None
        if arrived.select is not None:
            self.frame.point_at(arrived.select)
        if arrived.then:
            self.frame.carry_on(arrived.then, arrived.select or "")

    async def _go(self, mode: str) -> None:
        if self._loaded:
            await self._show(mode)
        elif self._opening is not None:
            self._first_screen = mode
            await self._opening.show(mode)

    async def on_pressed(self, message: Pressed) -> None:
        """Run an action that was clicked before the first screen exists."""
        await self.run_action(ACTIONS[message.action_id].verb, self)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action; a toast says why it cannot run now, or why it failed."""
        from memtui.contract import MemtuiError

        target = default_namespace or self
        group = "app" if target is self else getattr(target, "ACTION_GROUP", "")
        if isinstance(action, str) and (reason := self._why_disabled(f"{group}.{action}")):
            toast(self, reason, severity="warning")
            return True
        try:
            if target is self and isinstance(action, str) and action.startswith("go_"):
                await self._go(action.removeprefix("go_"))
                return True
            asks = getattr(target, f"action_{action}", None)
            if asyncio.iscoroutinefunction(asks) and (talk := getattr(target, "talk", None)):
                talk(asks())  # it goes on while the person answers
                return True
            return await super().run_action(action, default_namespace, namespaces)
        except MemtuiError as error:
            self._failed(error)
            return True

    def _why_disabled(self, action_id: str) -> str:
        for shown in (self.screen, self.frame):
            if (why_disabled := getattr(shown, "why_disabled", None)) is not None:
                return str(why_disabled(action_id))
        return ""

    def push_screen(self, screen: Any, callback: Any = None, *rest: Any, **options: Any) -> Any:
        """Show a dialog; where its answer cannot be carried out, say why in a toast.

        Keys that a screen held back are dropped if it is left without an answer.
        """

        def answered(answer: Any) -> None:
            from memtui.contract import MemtuiError

            if answer is None and getattr(screen, "keeps_keys", False):
                self._typed.drop()
            try:
                callback(answer)
            except MemtuiError as error:
                self._failed(error)
            self._typed.begin()

        return super().push_screen(screen, callback and answered, *rest, **options)

    async def on_event(self, event: Event) -> None:
        """Queue keys and pastes, so that they keep their order; see `memtui.widgets.typed`."""
        if isinstance(event, InputEvent | Paste):
            self._last_input = asyncio.get_running_loop().time()
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
        elif isinstance(event, Paste) or not await self._did_at_once(event):
            self._typed.add(event)

    def on_keys_free(self, message: KeysFree) -> None:
        """Deliver the keys that a screen held back, or drop them."""
        if message.drops:
            self._typed.drop()
        self._typed.begin()

    async def _did_at_once(self, key: Key) -> bool:
        """Run a key that need not wait for the first screen: tabs and quit."""
        if self._loaded or self._typed:
            return False
        for action in actions_of("app"):
            at_once = action.verb.startswith("go_") or action.verb == "quit"
            if at_once and key.key in self.keymap.keys(action.id):
                await self.run_action(action.verb, self)
                return True
        return False

    def _fit_for_line(self, event: Paste) -> Paste:
        """Return the pasted text as one line, cut to a length that an input can draw quickly.

        Textual's input would take only the first line.
        """
        from memtui.widgets.editor import LONGEST_LINE

        if not isinstance(self.focused, Input):
            return event
        text = " ".join(event.text.splitlines())
        if len(text) > LONGEST_LINE:
            toast(
                self,
                f"Only the first {LONGEST_LINE:,} of the {len(text):,} characters are taken.",
                severity="warning",
            )
        return Paste(text[:LONGEST_LINE])

    async def _give(self, event: Key | Paste) -> None:
        """Deliver a key or paste to the screen shown.

        Outside text widgets, bindings are checked first, which saves the way through all widgets.
        """
        if isinstance(event, Paste):
            await super().on_event(self._fit_for_line(event))
        elif isinstance(self.screen, ModalScreen) and self._quits(event):
            self._leave_dialogs()
        elif self._is_in_text or not await self._check_bindings(event.key):
            await super().on_event(event)

    @property
    def _is_in_text(self) -> bool:
        return isinstance(self.focused, Input | TextArea)

    def _stays(self, event: Key | Paste) -> bool:
        """Whether the input only writes text or moves the cursor in the focused widget."""
        if self._is_in_text:
            return isinstance(event, Paste) or event.is_printable
        in_list = getattr(self.focused, "ACTION_GROUP", "") == "list"
        return in_list and isinstance(event, Key) and event.key in self._moves

    @property
    def _moves(self) -> set[str]:
        return {key for verb in _MOVES for key in self.keymap.keys(f"list.{verb}")}

    def _quits(self, key: Key) -> bool:
        return key.key in self.keymap.keys("app.quit") and not key.is_printable

    def _leaves(self, event: Key | Paste) -> bool:
        """Whether a key leaves any dialog: escape or a quit key."""
        return isinstance(event, Key) and (event.key == "escape" or self._quits(event))

    def _leave_dialogs(self) -> None:
        """Quit from a dialog; if the dialog is the question whether to leave, close it and stay."""
        if self._asked_to_leave:
            self.screen.dismiss()
        else:
            self._quit()

    def action_help(self) -> None:
        """Show every key of this screen, or of the review over it."""
        from memtui.screens.help import Help
        from memtui.screens.modal import ModalListScreen

        if reviews := [one for one in self.screen_stack if isinstance(one, ModalListScreen)]:
            reviews[-1].action_help()
        elif self.frame is not None:
            shown, why = self.frame.group, self.frame.why_disabled
            groups = [
                one for one in groups_on(self.frame.MODE) if one == shown or one not in INPUT_GROUPS
            ]
            self.push_screen(Help("Keys", groups, self.state.keymap, why))

    def action_tour(self) -> None:
        """Show the tour: all screens at a glance, and what to try first."""
        from memtui.screens.tour import Tour

        if self.frame is not None:
            self.controller.toured()
            self.push_screen(Tour(self.frame))

    def action_palette(self) -> None:
        """Show the command palette, with the actions of the review that is open."""
        from memtui.screens.modal import ModalListScreen
        from memtui.screens.palette import Palette

        top = self.screen if isinstance(self.screen, ModalListScreen) else self.frame
        if top is not None:
            self._choose(Palette(top), lambda command: command())

    def action_filter(self) -> None:
        """Put the cursor into the filter line."""
        from memtui.widgets.filter_line import FilterLine

        for line in self.screen.query(FilterLine):
            line.enter()

    def action_views(self) -> None:
        """Offer the saved views, and to save the current one."""
        from memtui.screens.views import choose_view

        if self.frame is not None and self.screen is self.frame:
            self.frame.talk(choose_view(self.frame))

    def action_clear_filter(self) -> None:
        """Clear the filter and the filter line's text."""
        from memtui.widgets.filter_line import FilterLine

        for line in self.screen.query(FilterLine):
            line.clear()
        self.controller.choose(filter_line="")

    def action_refresh(self) -> None:
        """Read the screen again, or retry opening the service."""
        from memtui.screens.state import Phase

        if self.state.phase is Phase.FAILED:
            self.controller.open()
        elif self.frame is not None:
            self.controller.check_health()
            self.controller.check_spending()
            self.controller.ask_silent()
            self.frame.read_again()

    def action_picture(self) -> None:
        """Write an SVG picture of the screen to a file."""
        from memtui.screens.exports import export, write_file
        from memtui.screens.picture import picture_of

        if self.frame is None:
            return
        svg = picture_of(self)

        async def write(path: Path, *, overwrite: bool) -> str:
            def fill(work: Path) -> None:
                work.write_text(svg, "utf-8")

            await asyncio.to_thread(write_file, path, fill, overwrite=overwrite)
            return f"Wrote {path}."

        name = f"memtui-{self.frame.MODE}.svg"
        self.frame.talk(export(self.frame, "Picture of this screen", name, ("svg",), write))

    def action_theme(self) -> None:
        """Choose a theme."""
        from memtui.screens.dialogs import Choice, Choose

        choices = [Choice(name, name) for name in sorted(self.available_themes)]
        chooser = Choose("Theme", choices, now=self.theme)
        self._choose(chooser, partial(setattr, self, "theme"))

    def action_binding(self) -> None:
        """Choose the binding to look at."""
        from memtui.screens.dialogs import Choice, Choose

        choices = [
            Choice("", "the one that serves this scope", "auto"),
            Choice(_EVERYWHERE, "every binding at once, in queries and records", "all"),
        ]
        choices += [Choice(one.key, one.key, one.provider_key) for one in self.state.bindings]

        def use(key: str) -> None:
            if key == _EVERYWHERE:
                self.controller.choose(everywhere=True)
            else:
                self.controller.choose(binding_key=key)

        now = _EVERYWHERE if self.state.everywhere else self.state.binding_key or ""
        self._choose(Choose("Binding to look at", choices, now=now), use)

    def action_everywhere(self) -> None:
        """Query and list all bindings at once, or only one again."""
        everywhere = not self.state.everywhere
        self.controller.choose(everywhere=everywhere)
        if (key := self.state.filter.binding_key) is not None:
            toast(self, f"The filter names {key}; without binding: all are asked.")
        elif self.frame is not None and not self.frame.EVERYWHERE:
            asked = "all bindings at once" if everywhere else "one binding"
            toast(self, f"Queries and records are of {asked} now.")

    def _choose(self, chooser: Dialog[T], use: Callable[[T], object]) -> None:
        self.push_screen(chooser, lambda chosen: None if chosen is None else use(chosen))

    def action_limits(self) -> None:
        """Show the spending limits with the current spending; they can be changed there."""
        from memtui.screens.limits import LimitsScreen

        if self.frame is not None:
            self.frame.talk(self.frame.visit(LimitsScreen(self.state)))

    def action_past(self) -> None:
        """Ask for a past moment and show everything as of then; in the past, go back to now."""
        from memtui.screens.past import ChooseMoment
        from memtui.screens.state import GoTo

        if self.state.as_of is not None:
            self.controller.leave_past()
        else:
            asked = ChooseMoment(self.state, "Show everything as it was")
            self._choose(asked, lambda moment: self.post_message(GoTo(as_of=moment)))

    def action_changes(self) -> None:
        """Show what changed between two moments."""
        from memtui.screens.changes import ChangesScreen

        if self.frame is not None:
            self.frame.talk(self.frame.visit(ChangesScreen(self.state)))

    def action_review(self) -> None:
        """Show the review queue."""
        from memtui.screens.review import ReviewScreen

        if self.frame is not None:
            self.frame.talk(self.frame.visit(ReviewScreen(self.state)))

    def action_scope(self) -> None:
        """Choose company, project, agent, user, issue and run."""
        from memtui.screens.dialogs import Choice
        from memtui.screens.scope_choices import ChooseScope, chooser_title, offered, read_choices
        from memtui.screens.state import GoTo

        known: list[Choice[ScopeStep]] = []

        async def read() -> list[Choice[ScopeStep]]:
            known[:] = await read_choices(self.state)
            return known

        chooser = ChooseScope(
            chooser_title(self.state),
            read,
            placeholder="type a name, or run:4412",
            offer=lambda text: offered(text, known),
        )
        scope = self.state.scope
        self._choose(chooser, lambda step: self.post_message(GoTo(scope=step.applied_to(scope))))

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        """Open a page in the browser, or copy its address where there is none."""
        from memtui.screens.open_source import open_in_browser

        if self.is_web:
            super().open_url(url, new_tab=new_tab)
        elif self.frame is not None:
            open_in_browser(self.frame, url)

    def action_suspend(self) -> None:
        """Go back to the shell."""
        self.action_suspend_process()

    async def action_quit(self) -> None:
        """Leave; the service finishes changes in progress first."""
        self._quit()

    def _quit(self) -> None:
        """Leave; ask first if unsaved text would be lost."""
        is_written = any(getattr(one, "is_written", False) for one in self.screen_stack)
        texts = [text for frame in self._frames for text in frame.unsaved]
        mended = self.state.mended.values()
        if not texts and not mended and not is_written:
            self._leave(0)
            return
        from memtui.presenters.format import counted, quoted
        from memtui.screens.dialogs import Confirm

        texts += [f"{quoted(text)}, meant for what waits for review" for text in mended]

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            self._asked_to_leave = False
            if yes:
                self._leave(0)

        saved = "is not saved" if len(texts) == 1 else "are not saved"
        what = f"{counted(len(texts), 'text')} that {saved}"
        question = f"Leave, and throw away {'what you did not save' if is_written else what}?"
        detail = "\n".join(texts)
        self._asked_to_leave = True
        asked = Confirm(question, verb="leave", detail=detail, otherwise="stay", final=True)
        self.push_screen(asked, answered)

    def _remember(self) -> None:
        if self._loaded and self.frame is not None:
            is_given = self.theme == self._given_theme
            theme = self.controller.saved.theme if is_given else self.theme
            self.controller.remember(self.frame.MODE, theme)

    def _handle_exception(self, error: Exception) -> None:
        """Ignore `NoMatches` while the app ends.

        Textual no longer gives widgets to a screen that is mounted or prepared then.
        """
        cause = error.error if isinstance(error, WorkerFailed) else error
        if self._exit and isinstance(cause, NoMatches):
            _log.info("A screen was drawn without its widgets as memtui ended: %s", cause)
            return
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Leave with one sentence; the traceback goes to the log."""
        _log.critical("memtui ended after an unexpected error.", exc_info=self._exception)
        self._exit_renderables.append(
            f"memtui had to stop after an unexpected error; {self._paths.log_file} tells more."
        )
        self._close_messages_no_wait()


class TerminalOutput:
    """Terminal output that ignores write errors, since a terminal may close at any moment.

    Otherwise Textual's writing thread would die, and the app would wait for it for ever.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write text; drop it if the terminal is closed. Return its length."""
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; do nothing if the terminal is closed."""
        with contextlib.suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def run_app(
    paths: Paths,
    settings: Settings | Callable[[], Settings],
    *,
    company: str | None = None,
    screen: str | None = None,
    terminal: list[Any] | None = None,
) -> int:
    """Run the terminal app until the person leaves; return the exit code.

    `terminal`: the terminal's original attributes, if they were changed to keep typed keys.

    Raises:
        Invalid: a setting is not valid, or the screen does not exist.
    """

    def loaded() -> Settings:
        found = settings() if callable(settings) else settings
        if not found.read_only:
            paths.create()
        return found

    app = MemtuiApp(
        paths,
        loaded if callable(settings) else loaded(),
        company=company,
        screen=screen,
        terminal=terminal,
        tours=True,
        prepares=True,
    )
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)
    handler = LogFile(paths.log_file, lambda said: app.call_later(toast, app, said), _redacted)
    logger = logging.getLogger("memtui")
    logger.addHandler(handler)
    output: Any = sys.__stderr__  # what Textual writes to
    sys.__stderr__ = output and TerminalOutput(output)  # type: ignore[misc, assignment]
    try:
        app.run(mouse=app.mouse)
    finally:
        gc.unfreeze()  # DuckDB reports objects still frozen at the end as leaked
        app.stop_reading()
        sys.__stderr__ = output  # type: ignore[misc]
        logger.removeHandler(handler)
        handler.close()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0


def _redacted(text: str) -> str:
    from memtui.service.operations.redaction import redact  # when there is something to log

    return redact(text)[0]
