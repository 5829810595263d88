"""Every spending limit and what was spent of it: looked at, set, changed and removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content

from memtui.contract import MemtuiError
from memtui.screens.base import conversation
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.modal import ModalListScreen
from memtui.screens.scope_choices import seen_scopes
from memtui.screens.state import ConfigurationChanged
from memtui.service import LimitMeasure, LimitPeriod, LimitTarget, SpendingLimit, SpendingStatus
from memtui.widgets import format as fmt
from memtui.widgets import spending
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import DIM, STRONG, display, line, lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.screens.following import News
    from memtui.screens.state import AppState

_ABOUT = (
    "A limit warns; no operation is refused because of it. Days and months follow your time zone."
)
_TONES: dict[str, Tone] = {"ok": "success", "near": "warning", "passed": "error"}


class LimitsScreen(ModalListScreen[SpendingStatus]):
    """List the spending limits, those that are passed first, and change them."""

    ACTION_GROUP = "limits"
    NOUN = "limit"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("limits")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._rows: AppendedRows[SpendingStatus] = AppendedRows(_key)
        self._written: str | None = None
        """What the cursor goes to once it is listed."""

    def make_list(self) -> VirtualList[SpendingStatus]:
        """Return the list."""
        return VirtualList(columns(self._period), self._rows, name="limit-list")

    def _period(self, status: SpendingStatus) -> str:
        return spending.period(status, self.state.true_clock(), self.state.zone)

    def draw_head(self, width: int) -> Content:
        """Return whose limits these are, and what they do."""
        del width
        name = display(self.session.company.name, limit=120, style=STRONG)
        number = fmt.counted(self._rows.count, "limit")
        head = line(line("spending limits of", name), number, gap="   ")
        return lines([head, display(_ABOUT, style=DIM)])

    def draw_row(self, width: int) -> Content:
        """Return the limit under the cursor."""
        if (status := self.rows_list.current) is None:
            return Content("")
        about: list[Line] = [
            labelled("state", spending.mark(status)),
            labelled("spent", spending.spent(status)),
            labelled("limit", f"{spending.amount(status)} a {status.period}"),
            labelled("share", spending.share(status)),
            labelled("from", fmt.exact(status.since, self.state.zone)),
            labelled("until", fmt.exact(status.until, self.state.zone)),
        ]
        said = spending.sentence(status, self.state.true_clock(), self.state.zone)
        title = heading(spending.target(status))
        return joined([[title, display(said, limit=600)], about], width)

    def refusal(self, verb: str) -> str:
        """Return why there is nothing to change."""
        needs_row = verb in {"change", "remove", "copy"}
        return self.none_selected if needs_row and self.rows_list.current is None else ""

    def happened(self, news: News) -> None:
        """Read limits again that were changed elsewhere."""
        if news.configures:
            self.action_read()

    def on_mount(self) -> None:
        """Add up what was spent."""
        self.rows_list.notice = ("Adding up what was spent …",)
        self.action_read()

    def action_read(self) -> None:
        """Add up again what was spent."""
        session = self.session
        check = partial(session.service.limits.check, session.caller, zone=self.state.zone)
        self.reads.latest(check, self._show, self._not_read)

    def _show(self, found: list[SpendingStatus]) -> None:
        nothing = "There are no spending limits.", "a sets one."
        self.fill(self._rows, sorted(found, key=lambda one: -one.share), *nothing)
        if self._written is not None:
            self.rows_list.go_to_key(self._written)
            self._written = None

    def _not_read(self, error: MemtuiError) -> None:
        self.fill(self._rows, [], f"✗ {error}", "r adds up again, esc goes back.")

    @conversation
    async def action_add(self) -> None:
        """Ask whose spending is limited, what is counted and how much it may be."""
        whose = Choose(
            "Limit whose spending?",
            self._targets,
            placeholder="type a project or an agent",
            offer=_offered,
        )
        if (target := await self.ask(whose)) is None:
            return
        measures = [
            Choice((measure, period), f"{_UNITS[measure]} a {period}")
            for measure in LimitMeasure
            for period in LimitPeriod
        ]
        asked = Choose(f"What may the {_target_words(*target)} spend?", measures)
        if (counted := await self.ask(asked)) is not None:
            await self._ask_amount(target, *counted)

    async def _targets(self) -> list[Choice[tuple[LimitTarget, str]]]:
        session, scopes = self.session, await seen_scopes(self.session)
        bindings = await session.service.bindings.all(session.caller)
        names: dict[LimitTarget, list[str | None]] = {
            LimitTarget.COMPANY: [session.company.company_id],
            LimitTarget.BINDING: [one.key for one in bindings],
            LimitTarget.AGENT: [one.agent_id for one in scopes],
            LimitTarget.PROJECT: [one.project_id for one in scopes],
        }
        return [
            Choice((target, name), "the whole company" if target == "company" else name, target)
            for target, known in names.items()
            for name in filter(None, dict.fromkeys(known))
        ]

    @conversation
    async def action_change(self) -> None:
        """Ask for another amount of the limit."""
        one = self.row
        target = one.target_type, one.target_id
        now = f"{Decimal(one.amount).normalize():f}"
        await self._ask_amount(target, one.measure, one.period, now)

    async def _ask_amount(
        self,
        target: tuple[LimitTarget, str],
        measure: LimitMeasure,
        period: LimitPeriod,
        value: str = "",
    ) -> None:
        """Ask for the amount of a limit until it is set, or the person goes back."""
        session = self.session
        title = f"How many {_UNITS[measure]} may the {_target_words(*target)} spend a {period}?"
        check = partial(spending.parse_amount, measure)
        example = "0.25, 5" if measure == "usd" else "200000"
        while True:
            prompt = Prompt(title, value=value, placeholder=example, go="set", check=check)
            if (text := await self.ask(prompt)) is None:
                return
            value, (target_type, target_id) = text, target
            limit = SpendingLimit(
                target_type=target_type,
                target_id=target_id,
                measure=measure,
                period=period,
                amount=spending.parse_amount(measure, text),
            )
            try:
                self._written = _key(limit)
                set_limit = partial(session.service.limits.set, session.caller, limit)
                await self._change(
                    set_limit,
                    f"The {spending.target(limit)} may spend "
                    f"{spending.amount(limit)} a {period}; it warns from 80% on.",
                )
            except MemtuiError as error:
                self.fail(error)  # and it is asked for again
            else:
                return

    @conversation
    async def action_remove(self) -> None:
        """Take the limit away, after a yes."""
        one, session = self.row, self.session
        named = f"{spending.amount(one)} a {one.period} of the {spending.target(one)}"
        if not await self.ask(Confirm(f"Remove the limit of {named}?", verb="remove")):
            return
        remove = partial(
            session.service.limits.remove,
            session.caller,
            one.target_type,
            one.target_id,
            measure=one.measure,
            period=one.period,
        )
        await self._change(remove, f"Removed the limit of {named}; u brings it back.")

    async def _change(self, work: Callable[[], Awaitable[object]], said: str) -> None:
        await self.change(work)
        self.toast(said)
        self.post_message(ConfigurationChanged())
        self.action_read()

    @conversation
    async def action_undo(self) -> None:
        """Take the last change back, after a yes."""
        await self.undo_last()
        self.action_read()

    @conversation
    async def action_redo(self) -> None:
        """Redo what was undone last, also on another screen."""
        await self.redo_last()
        self.action_read()

    def action_copy(self) -> None:
        """Copy how the limit stands."""
        said = spending.sentence(self.row, self.state.true_clock(), self.state.zone)
        self.copy(said, "Copied the limit with what was spent of it.")


_UNITS = {"usd": "US dollars", "tokens": "tokens"}


def _key(limit: SpendingLimit) -> str:
    return f"{limit.target_type} {limit.measure} {limit.period} {limit.target_id}"


def _offered(text: str) -> list[Choice[tuple[LimitTarget, str]]]:
    named = LimitTarget.AGENT, LimitTarget.PROJECT
    return [Choice((target, text), f"{text}  — as written", target) for target in named]


def _target_words(target: LimitTarget, name: str) -> str:
    return "whole company" if target == "company" else f"{target} {name}"


def columns(period: Callable[[SpendingStatus], str]) -> list[Column[SpendingStatus]]:
    """Return the columns of the list."""
    return [
        Column(
            "state", "state", lambda one: Cell(spending.mark(one), _TONES[one.state]), 8, keep=100
        ),
        Column("target", "of", spending.target, 12, flexible=True, keep=90, share=0.4),
        Column("spent", "spent", spending.spent, 13, "right", keep=60),
        Column("limit", "limit", spending.amount, 13, "right", keep=80),
        Column("share", "share", spending.share, 6, "right", keep=70),
        Column("period", "in", period, 10, keep=50, tone="muted"),
    ]
