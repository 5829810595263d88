"""The only way to show foreign text, and the only way to show a toast.

For a screen author: pass every text of a provider, file, model or user through `display` before
you give it to a widget, and show every toast with `toast`. Neither reads markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from textual.content import Content
from textual.notifications import Notification
from textual.style import Style
from textual.widget import Widget
from textual.widgets._toast import Toast

from memtui.visible import visible

if TYPE_CHECKING:
    from textual.app import App

LONGEST = 20_000
"""Most characters of one text that are laid out; the rest is counted, not drawn."""

DIM = "dim"
PRIMARY = "$text-primary"
SECONDARY = "$text-secondary"
ACCENT = "$text-accent"
OK = "$text-success"
WARN = "$text-warning"
BAD = "$text-error"
STRONG = "bold"
"""Style words for `display`; each is a theme variable or an attribute, never a colour."""

TONES = {"": "", "muted": DIM, "success": OK, "warning": WARN, "error": BAD}
"""The style of each tone of an outcome."""

_SEVERITY = Literal["information", "warning", "error"]


def display(
    text: str | None, *, limit: int | None = None, style: str = "", keep_newlines: bool = False
) -> Content:
    """Return `text` as content with control characters and escapes visible and markup unread.

    `limit` cuts after that many characters; without it, the rest after `LONGEST` is only counted.
    """
    if not text:
        return Content("")
    if limit is None and len(text) > LONGEST:
        rest = Content.styled(f" … {len(text) - LONGEST:,} more characters", DIM)
        return display(text[:LONGEST], style=style, keep_newlines=keep_newlines) + rest
    return Content.styled(visible(text, limit=limit, keep_newlines=keep_newlines), style)


LEADS = "leads"
"""Key of a link's target in the style of a content's part."""


def leading(
    content: Content, sort: str, name: str, start: int = 0, end: int | None = None
) -> Content:
    """Make a part of a content a link to a target such as `("tag", "deploy")`."""
    return content.stylize(Style.from_meta({LEADS: (sort, name)}), start, end).stylize(
        f"{ACCENT} underline", start, end
    )


def line(*parts: Content | str | None, gap: str = " ") -> Content:
    """Join the parts that are not empty with `gap`; a plain string goes through `display`."""
    shown = [part if isinstance(part, Content) else display(part) for part in parts if part]
    return Content(gap).join(shown)


def hanging(lead: Content, text: Content, width: int, *, most: int = 0) -> Content:
    """Put `text` after `lead`, wrapped to `width` cells; the lines of the text align.

    `most` cuts after that many lines; with fewer than 8 cells for the text it is not wrapped.
    """
    room = width - lead.cell_length
    if room < 8:
        return lead + text
    if most == 1:
        return lead + text.truncate(room, ellipsis=True)
    wrapped = text.wrap(room)
    if most and len(wrapped) > most:
        wrapped = [*wrapped[: most - 1], wrapped[most - 1].rstrip().truncate(room - 1) + "…"]
    return lead + Content(f"\n{' ' * lead.cell_length}").join(wrapped)


def lines(parts: Iterable[Content]) -> Content:
    """Join contents with line breaks."""
    return Content("\n").join(parts)


_make_toast = Toast.__init__
_SOONEST_SECONDS = 0.01


def _made_in_time(self: Toast, notification: Notification) -> None:
    """Make a toast whose time-out is positive.

    If a toast expires while it is made, Textual's timer gets a delay of zero or less, and the app
    hangs.
    """
    _make_toast(self, notification)
    self._timeout = max(_SOONEST_SECONDS, self._timeout)


Toast.__init__ = _made_in_time  # type: ignore[method-assign]


def toast(
    node: Widget | App[Any],
    message: str,
    *,
    title: str = "",
    severity: _SEVERITY = "information",
    timeout: float | None = None,
) -> None:
    """Show a toast; markup in the message is not read.

    A warning or an error that is still shown is not repeated. An information replaces the previous
    one, which may be outdated: "u undoes it", once it was undone. With a title or a `timeout` it
    replaces none and is not replaced.
    """
    shown = visible(message, limit=500)
    there = node.app._notifications  # noqa: SLF001 - Textual has no other way to ask
    if severity != "information":
        if any(one.message == shown for one in there):
            return
    elif not title and timeout is None:
        _take_last_away(node.app)
    node.notify(
        shown,
        title=visible(title, limit=100),
        severity=severity,
        timeout=timeout,
        markup=False,
    )


def _take_last_away(app: App[Any]) -> None:
    """Remove the shown information that has neither a title nor its own time-out."""
    for one in list(app._notifications):  # noqa: SLF001 - nor a way to take one away
        is_usual = not one.title and one.timeout == app.NOTIFICATION_TIMEOUT
        if one.severity == "information" and is_usual:
            app._unnotify(one, refresh=False)  # noqa: SLF001
            for shown in app.screen.query(Toast):
                if shown._notification is one:  # noqa: SLF001
                    shown._expire()  # noqa: SLF001 - which leaves nothing of it in the screen
