"""The actions of the Analytics screen, and those of its SQL editor."""

from __future__ import annotations

from memtui.actions.model import Action, Need

_SERVICE = (Need.SERVICE,)
_CHARTS = (Need.SERVICE, Need.CHARTS)
_SQL = (Need.SERVICE, Need.SQL)

ANALYTICS = (
    Action("analytics.half", ("t",), "SQL", "Go to SQL, or back to the charts.", 10),
    Action(
        "analytics.period",
        ("p",),
        "period",
        "Look at a longer stretch of time; after the longest comes the shortest.",
        20,
        needs=_CHARTS,
    ),
    Action(
        "analytics.shorter", ("P",), "shorter", "Look at a shorter stretch of time.", needs=_CHARTS
    ),
    Action(
        "analytics.bucket",
        ("b",),
        "hour/day",
        "Cut time into hours, days, weeks or months.",
        needs=_CHARTS,
    ),
    Action(
        "analytics.dimension",
        ("d",),
        "by",
        "Choose what the table groups by: binding, agent, project, provider and more.",
        30,
        needs=_CHARTS,
    ),
    Action(
        "analytics.hits",
        ("H",),
        "what is a hit",
        "Count a query as a hit by what was opened later, or by its scores.",
        needs=_CHARTS,
    ),
    Action(
        "analytics.large", ("z",), "large", "Show one chart large, or all again.", needs=_CHARTS
    ),
    Action(
        "analytics.earlier",
        ("left", "h"),
        "earlier",
        "Select the bar before; in SQL, show the columns further left.",
    ),
    Action(
        "analytics.later",
        ("right", "l"),
        "later",
        "Select the bar after; in SQL, show the columns further right.",
    ),
    Action(
        "analytics.export",
        ("x",),
        "export",
        "Write the figures or the result to a file: CSV, JSON, Parquet, or a chart as SVG.",
        40,
        needs=_SERVICE,
    ),
    Action("analytics.copy", ("y",), "copy", "Copy the selected figures or row as JSON."),
    Action("analytics.input", ("i",), "statement", "Go to the statement.", 20, needs=_SQL),
    Action(
        "analytics.run", ("ctrl+r",), "run", "Run the statement, or read again.", needs=_SERVICE
    ),
    Action(
        "analytics.saved", ("o",), "saved", "Open a saved or earlier statement.", 30, needs=_SQL
    ),
    Action("analytics.views", ("v",), "views", "Show the views and their columns.", needs=_SQL),
    Action(
        "analytics.back",
        ("escape",),
        "back",
        "Stop a running statement; take the selection away, or show all charts again.",
    ),
)

SQL = (
    Action(
        "sql.run", ("ctrl+r", "f5", "ctrl+enter"), "run", "Run the statement.", 10, needs=_SERVICE
    ),
    Action("sql.leave", ("escape",), "results", "Stop a running statement, or leave it.", 20),
    Action("sql.complete", ("ctrl+n", "ctrl+@"), "complete", "Complete the word.", 30),
    Action("sql.save", ("ctrl+s",), "save", "Keep the statement under a name.", 40),
    Action("sql.saved", ("ctrl+o",), "open", "Open a saved or earlier statement.", 50),
    Action("sql.views", ("f2",), "views", "Show the views and their columns.", 60),
)
