"""The numbered screens, and the actions that are not one screen's own."""

from __future__ import annotations

from memtui.actions.model import Action, Need, ScreenTab

SCREENS: tuple[ScreenTab, ...] = (
    ScreenTab("bindings", 1, "Bindings", "Bind", ("list",)),
    ScreenTab("operations", 2, "Operations", "Ops", ("list", "filter")),
    ScreenTab("query", 3, "Query", "Query", ("list", "ask", "filter")),
    ScreenTab("records", 4, "Records", "Recs", ("list", "filter")),
    ScreenTab("budget", 5, "Budget", "Budget", ("list", "filter")),
    ScreenTab("analytics", 6, "Analytics", "Stats", ("list", "sql", "filter")),
)
"""The screens there are; a number keeps its meaning when another screen is added."""

TABLE = (Need.SERVICE, Need.TABLE)

APP = (
    *(
        Action(f"app.go_{tab.mode}", (str(tab.number),), tab.title, f"Go to {tab.title}.")
        for tab in SCREENS
    ),
    Action("app.help", ("question_mark", "f1"), "help", "Show every key of this screen.", 90),
    Action(
        "app.palette",
        ("ctrl+p",),
        "palette",
        "Find any action, theme, company, binding or saved view.",
    ),
    Action(
        "app.scope",
        ("s",),
        "scope",
        "Choose company, project, agent, subject, issue and run.",
        80,
        needs=(Need.SERVICE,),
    ),
    Action("app.filter", ("slash",), "filter", "Narrow what every screen shows.", 70),
    Action("app.clear_filter", ("ctrl+l",), "clear filter", "Take the filter away."),
    Action(
        "app.binding", ("B",), "binding", "Choose the binding to look at.", needs=(Need.SERVICE,)
    ),
    Action(
        "app.limits",
        ("dollar_sign",),
        "limits",
        "Show the spending limits and what was spent of each.",
        needs=(Need.SERVICE,),
    ),
    Action("app.refresh", ("r", "f5"), "refresh", "Read again what this screen shows."),
    Action("app.theme", ("ctrl+t",), "theme", "Choose a theme."),
    Action("app.suspend", ("ctrl+z",), "suspend", "Go back to the shell; `fg` returns."),
    Action("app.quit", ("q", "ctrl+q"), "quit", "Leave memtui; it comes back where you left it."),
)

LIST = (
    Action("list.down", ("j", "down"), "down", "Move down one row."),
    Action("list.up", ("k", "up"), "up", "Move up one row."),
    Action("list.top", ("g", "home"), "top", "Go to the first row."),
    Action("list.bottom", ("G", "end"), "bottom", "Go to the last row."),
    Action("list.half_down", ("ctrl+d",), "half page down", "Move down half a page."),
    Action("list.half_up", ("ctrl+u",), "half page up", "Move up half a page."),
    Action("list.page_down", ("pagedown", "ctrl+f"), "page down", "Move down a page."),
    Action("list.page_up", ("pageup", "ctrl+b"), "page up", "Move up a page."),
    Action("list.open", ("enter",), "details", "Open the selected row, or go into its details."),
    Action(
        "list.sort",
        ("S",),
        "sort",
        "Sort by the next column; clicking a header does too.",
        needs=TABLE,
    ),
    Action(
        "list.reverse",
        ("I",),
        "reverse",
        "Turn the order around.",
        needs=TABLE,
    ),
    Action(
        "list.columns",
        ("C",),
        "columns",
        "Choose the columns that are shown.",
        needs=TABLE,
    ),
    Action(
        "list.wider",
        ("greater_than_sign",),
        "wider",
        "Widen the sorting column.",
        needs=TABLE,
    ),
    Action(
        "list.narrower",
        ("less_than_sign",),
        "narrower",
        "Narrow the sorting column.",
        needs=TABLE,
    ),
)

FILTER = (
    Action("filter.apply", ("enter",), "apply", "Filter by what is written.", 10),
    Action("filter.complete", ("tab",), "complete", "Complete the word that is written.", 20),
    Action("filter.previous", ("up",), "before", "Bring back the filter used before.", 30),
    Action("filter.next", ("down",), "after", "Go to the filter used after.", 40),
    Action("filter.leave", ("escape",), "clear", "Clear the line; once more leaves it.", 50),
)

ASK = (
    Action("ask.run", ("enter",), "ask", "Ask what is written.", 10),
    Action("ask.leave", ("escape",), "results", "Leave the line for the results.", 20),
)
