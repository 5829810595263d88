"""All spending limits with the spending so far; limits can be set, changed and removed."""

from decimal import Decimal
from functools import partial

from textual.content import Content

from memtui.contract import MemtuiError
from memtui.presenters import format as fmt
from memtui.presenters import spending
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.following import News
from memtui.screens.modal import ModalListScreen
from memtui.screens.scope_choices import offered_target, read_targets
from memtui.service.spending import (
    LimitAction,
    LimitMeasure,
    LimitPeriod,
    LimitTarget,
    SpendingLimit,
    SpendingStatus,
)
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import DIM, STRONG, display, line, lines

_ABOUT = "A passed limit warns, or refuses calls. Days and months follow your time zone."
_TONES: dict[str, Tone] = {"ok": "success", "near": "warning", "passed": "error"}


class LimitsScreen(ModalListScreen[SpendingStatus]):
    """Lists the spending limits, the highest share first, and changes them."""

    ACTION_GROUP = "limits"
    NOUN = "limit"
    READING = "Adding up what was spent …"
    NOTHING = ("There are no spending limits.", "a sets one.")

    def columns(self) -> list[Column[SpendingStatus]]:
        """Return the columns of the list."""
        return [
            Column(
                "state", "state", lambda one: Cell(spending.mark(one), _TONES[one.state]), 8,
                keep=100,
            ),
            Column("target", "of", fmt.target_words, 12, flexible=True, keep=90, share=0.4),
            Column("spent", "spent", spending.spent, 13, "right", keep=60),
            Column("limit", "limit", spending.amount, 13, "right", keep=80),
            Column("share", "share", spending.share, 6, "right", keep=70),
            Column("period", "in", self._period, 10, keep=50, tone="muted"),
            Column("then", "then", lambda one: one.action, 9, keep=75),
        ]  # fmt: skip

    def key(self, row: SpendingLimit) -> str:
        """Return target, measure and period of a limit."""
        return f"{row.target_type} {row.measure} {row.period} {row.target_id}"

    def _period(self, status: SpendingStatus) -> str:
        return spending.period(status, self.state.true_clock(), self.state.zone)

    def draw_head(self) -> Content:
        """Return the company, and what limits do."""
        name = display(self.session.company.name, limit=120, style=STRONG)
        head = line(line("spending limits of", name), self.number, gap="   ")
        return lines([head, display(_ABOUT, style=DIM)])

    def detail(self, row: SpendingStatus, width: int) -> Content:
        """Return the details of a limit."""
        about: list[Line] = [
            labelled("state", spending.mark(row)),
            labelled("spent", spending.spent(row)),
            labelled("limit", f"{spending.amount(row)} a {row.period}"),
            labelled("share", spending.share(row)),
            labelled("then", spending.ACTIONS[row.action]),
            labelled("from", fmt.exact(row.since, self.state.zone)),
            labelled("until", fmt.exact(row.until, self.state.zone)),
        ]
        said = spending.sentence(row, self.state.true_clock(), self.state.zone)
        title = heading(fmt.target_words(row))
        return joined([[title, display(said, limit=600)], about], width)

    def happened(self, news: News) -> None:
        """Read the limits again if settings were changed elsewhere."""
        if news.configures:
            self.load()

    async def read(self) -> list[SpendingStatus]:
        """Read the limits with the spending so far."""
        found = await self.service.limits.check(self.caller, zone=self.state.zone)
        return sorted(found, key=lambda one: -one.share)

    async def action_add(self) -> None:
        """Ask for target, measure, period and amount of a limit."""
        whose = Choose(
            "Limit whose spending?",
            self._targets,
            placeholder="type a project or an agent",
            offer=offered_target,
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

    async def _targets(self) -> list[Choice[tuple[str, str]]]:
        session = self.session
        bindings = await session.service.bindings.all(session.caller)
        whole, *named = await read_targets(session)
        return [
            whole,
            *(Choice(("binding", one.key), one.key, "binding") for one in bindings),
            *named,
        ]

    async def action_change(self) -> None:
        """Ask for a new amount of the limit."""
        one = self.row
        target = one.target_type, one.target_id
        now = f"{Decimal(one.amount).normalize():f}"
        await self._ask_amount(target, one.measure, one.period, now, one.action)

    async def _ask_amount(
        self,
        target: tuple[str, str],
        measure: LimitMeasure,
        period: LimitPeriod,
        value: str = "",
        action: LimitAction = LimitAction.WARN,
    ) -> None:
        """Ask for a limit's amount and action until it is set, or the person goes back.

        `value` and `action` are those it has now.
        """
        title = f"How many {_UNITS[measure]} may the {_target_words(*target)} spend a {period}?"
        check = partial(spending.parse_amount, measure)
        example = "0.25, 5" if measure == "usd" else "200000"
        while True:
            prompt = Prompt(title, value=value, placeholder=example, go="set", check=check)
            if (text := await self.ask(prompt)) is None:
                return
            value, (target_type, target_id) = text, target
            ordered = sorted(LimitAction, key=lambda one: one is not action)
            choices = [Choice(one, spending.ACTIONS[one]) for one in ordered]
            if (chosen := await self.ask(Choose("And once it is passed?", choices))) is None:
                continue
            action = chosen
            limit = SpendingLimit(
                target_type=LimitTarget(target_type),
                target_id=target_id,
                measure=measure,
                period=period,
                amount=spending.parse_amount(measure, text),
                action=action,
            )
            try:
                self.written = self.key(limit)
                set_limit = partial(self.service.limits.set, self.caller, limit)
                await self.configure(
                    set_limit,
                    f"The {fmt.target_words(limit)} may spend "
                    f"{spending.whole(limit)}; it warns from 80% on.",
                )
            except MemtuiError as error:
                self.fail(error)  # the loop asks again
            else:
                return

    async def action_remove(self) -> None:
        """Remove the limit, after a yes."""
        one, session = self.row, self.session
        named = f"{spending.amount(one)} a {one.period} of the {fmt.target_words(one)}"
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
        await self.configure(remove, f"Removed the limit of {named}; u brings it back.")

    def action_copy(self) -> None:
        """Copy the status of the limit."""
        said = spending.sentence(self.row, self.state.true_clock(), self.state.zone)
        self.copy(said, "Copied the limit and its spending.")


_UNITS = {"usd": "US dollars", "tokens": "tokens"}


def _target_words(target: str, name: str) -> str:
    return "whole company" if target == "company" else f"{target} {name}"
