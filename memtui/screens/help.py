"""The help: all keys of a screen and of the app, and why a key is disabled."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input

from memtui.actions import (
    ACTIONS,
    DIALOG_GROUPS,
    INPUT_GROUPS,
    KEEPS_ORDER,
    Action,
    Need,
    actions_of,
    help_rows,
    screen_tab,
)
from memtui.screens.dialogs import Sheet
from memtui.screens.keymap import Keymap
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, hanging, lines
from memtui.widgets.editor import ForeignInput

_TO_THE_TOP = 100_000
"""Lines to scroll up: more than any help has."""
_LINE = 2
"""Lines of the input and the blank line below it."""
_REPEATED = 3
"""From this number of keys on, a shared reason is shown once below the group's title."""
_NEVER_THERE = {Need.TABLE.value, KEEPS_ORDER}
"""Reasons of keys that never work on a list; its help leaves them out."""
_SIGNS = "¹²³⁴⁵⁶⁷⁸⁹"
_PLACES = {"list": "the list", **INPUT_GROUPS, **DIALOG_GROUPS}


def group_title(group: str) -> str:
    """Return the title of a group of keys."""
    if group == "app":
        return "Everywhere"
    return f"In {_PLACES[group]}" if group in _PLACES else screen_tab(group).title


class Help(Sheet):
    """All keys of some groups, filtered by typing; `?` in the empty input closes it, too.

    The help of the whole app has a key for the tour.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(ACTIONS["app.tour"].keys), "tour", "tour", id="app.tour")
    ]

    def __init__(
        self,
        title: str,
        groups: Sequence[str],
        keymap: Keymap,
        why_disabled: Callable[[str], str],
    ) -> None:
        self._help = partial(group_help, groups, keymap, why_disabled)
        self._has_tour = "app" in groups
        tour = f"   {keymap.label('app.tour')} tour" if self._has_tour else ""
        super().__init__(title, self._help, keys=f"type to narrow   ↑↓ scroll{tour}   esc close")

    def body(self) -> ComposeResult:
        """Yield the input and the keys."""
        yield ForeignInput(placeholder="type to narrow", compact=True, classes="dialog-input")
        yield from super().body()

    def most_lines(self, height: int) -> int:
        """Leave room for the input."""
        return super().most_lines(height) - _LINE

    async def action_tour(self) -> None:
        """Show the tour instead."""
        if self._has_tour:
            self.dismiss(None)
            await self.app.run_action("app.tour")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the keys whose texts contain every word."""
        event.stop()
        if event.value == "?":
            self.dismiss(None)
        else:
            self.show(partial(self._help, narrowed=event.value))
            self.action_scroll(-_TO_THE_TOP)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back, as there is nothing to choose."""
        event.stop()
        self.dismiss(None)


def group_help(
    groups: Iterable[str],
    keymap: Keymap,
    why_disabled: Callable[[str], str],
    width: int = 0,
    narrowed: str = "",
) -> Content:
    """Return the keys of some groups, wrapped to `width` cells; 0 does not wrap.

    A disabled action is dim, with its reason; a reason that several share is shown once, marked.
    Actions that belong together share a line, those without a key are only counted.

    `narrowed`: only actions whose keys or texts contain each of these words, also those without a
    key, each on its own line.
    """
    words, blocks, without = narrowed.casefold().split(), list[Content](), 0
    for title, rows in _parts(groups, narrowed=bool(words)):
        shown: list[tuple[str, str, str]] = []
        for actions, said in rows:
            keys = [keymap.labels(one.id) for one in actions]
            if not any(keys) and not words:
                without += 1
                continue
            keyed = " ".join(one.partition(" ")[0] for one in keys) if len(keys) > 1 else keys[0]
            found = f"{keyed} {actions[0].label} {said} {title}".casefold()
            reasons = {why_disabled(one.id) for one in actions}
            reason = reasons.pop() if len(reasons) == 1 else ""
            if reason not in _NEVER_THERE and all(word in found for word in words):
                shown.append((keyed or keymap.label("app.palette"), said, reason))
        if shown:
            blocks += [*_block(title, shown, width), Content("")]
    if without:
        more = f"{keymap.label('app.palette')} has {without} more; typing here finds them too."
        return lines([*blocks, display(more, style=DIM)])
    return lines(blocks[:-1]) if blocks else display("No key does that.", style=DIM)


def _parts(
    groups: Iterable[str], *, narrowed: bool
) -> Iterator[tuple[str, list[tuple[list[Action], str]]]]:
    """Yield titles with their rows; the changes of a group have a title of their own."""
    for group in groups:
        rows = list(help_rows(group))
        if narrowed:
            rows = [([one], one.description) for one in actions_of(group)]
        for changes in (False, True):
            part = [row for row in rows if row[0][0].mutates == changes]
            yield group_title(group) + ": change" * changes, part


def _block(title: str, rows: Sequence[tuple[str, str, str]], width: int) -> Iterator[Content]:
    """Yield a title and its rows: keys, sentence, and why they do not work now."""
    lead = max(len(keys) for keys, _, _ in rows) + 2
    if width:
        lead = min(lead, width * 2 // 5)
    often = [one for one, count in Counter(why for *_, why in rows).items() if count >= _REPEATED]
    signs = dict(zip(filter(None, often), _SIGNS, strict=False))
    yield display(title, style=STRONG)
    for reason, sign in signs.items():
        note = display(reason, style=WARN)
        yield hanging(Content.styled(f"  {sign} ", WARN), note, width)
    for keys, words, reason in rows:
        said = display(words, style=DIM if reason else "")
        why = f" {signs[reason]}" if reason in signs else f"  ({reason})" if reason else ""
        head = Content.styled(f"  {keys:<{lead - 2}}  ", f"bold {ACCENT}")
        yield hanging(head, said + display(why, style=WARN), width)
