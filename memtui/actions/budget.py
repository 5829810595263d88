"""The actions of the Budget screen, and those of the prune review that it opens."""

from __future__ import annotations

from memtui.actions.model import CHANGE_ROW, ROW, Action, Need

SCOPE = (Need.SERVICE, Need.SCOPE)
CHANGE_SCOPE = (Need.SERVICE, Need.WRITABLE, Need.SCOPE)

BUDGET = (
    Action("budget.mark", ("space",), "mark", "Mark or unmark the fact.", 40, needs=ROW),
    Action("budget.range", ("v",), "range", "Mark from here to where you move.", needs=ROW),
    Action("budget.mark_all", ("A",), "mark all", "Mark all facts that are shown.", needs=ROW),
    Action("budget.back", ("escape",), "back", "Go back to the list; there, take all marks away."),
    Action(
        "budget.prune",
        ("p",),
        "prune",
        "Review which facts could go, and why.",
        10,
        needs=SCOPE,
    ),
    Action(
        "budget.add", ("a", "n"), "add", "Write a new fact.", 20, mutates=True, needs=CHANGE_SCOPE
    ),
    Action(
        "budget.edit",
        ("e",),
        "edit",
        "Change the fact in place.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action(
        "budget.edit_external",
        ("E",),
        "in $EDITOR",
        "Change the fact in your editor.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action(
        "budget.forget",
        ("d", "delete"),
        "forget",
        "Forget the marked facts, after a yes.",
        30,
        mutates=True,
        needs=CHANGE_ROW,
    ),
    Action(
        "budget.undo",
        ("u",),
        "undo",
        "Take the last change back.",
        mutates=True,
        needs=(Need.SERVICE, Need.WRITABLE),
    ),
    Action(
        "budget.pin",
        ("P",),
        "pin",
        "Pin the fact, or unpin it; a pinned one leads and is never suggested to go.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action(
        "budget.expire",
        ("x",),
        "expires",
        "Let the fact expire, or never expire.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action(
        "budget.merge",
        ("M",),
        "merge",
        "Make one fact of those that are marked.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action(
        "budget.clear",
        ("D",),
        "clear all",
        "Forget all facts of this user, project or agent, after typing its name.",
        mutates=True,
        needs=CHANGE_SCOPE,
    ),
    Action(
        "budget.text",
        ("t",),
        "as text",
        "Show the text exactly as the model sees it, or the list of its facts.",
        50,
        needs=SCOPE,
    ),
    Action("budget.model", ("m",), "model", "Choose the model to count and price for."),
    Action("budget.budget", ("b",), "budget", "Set the token budget to look against."),
    Action(
        "budget.whole",
        ("w",),
        "whole prompt",
        "Show the memory's share of a whole prompt.",
        needs=SCOPE,
    ),
    Action(
        "budget.left_out",
        ("l",),
        "left out",
        "Show every warning, and what was left out and why.",
        needs=SCOPE,
    ),
    Action(
        "budget.charts",
        ("c",),
        "charts",
        "Show the charts large, with how well facts serve.",
        needs=SCOPE,
    ),
    Action("budget.record", ("R",), "record", "Show the fact in Records.", needs=ROW),
    Action("budget.copy", ("y",), "copy", "Copy the text of the fact.", needs=ROW),
    Action(
        "budget.copy_text", ("Y",), "copy all", "Copy the text that the model sees.", needs=SCOPE
    ),
    Action(
        "budget.files",
        ("f",),
        "files",
        "Show the commands that export facts to a file and import them.",
    ),
)

PRUNE = (
    Action("prune.turn", ("space",), "mark", "Mark or unmark the fact, or all of a reason.", 10),
    Action("prune.all", ("A",), "all", "Mark everything that is not pinned."),
    Action("prune.none", ("N",), "none", "Take all marks away.", 30),
    Action("prune.suggested", ("R",), "suggested", "Mark again what was suggested."),
    Action("prune.diff", ("t",), "diff", "Show what would go as a diff, or the list.", 20),
    Action(
        "prune.apply",
        ("d", "delete"),
        "forget",
        "Forget what is marked, after a yes.",
        40,
        mutates=True,
        needs=(Need.WRITABLE,),
    ),
    Action(
        "prune.merge",
        ("M",),
        "merge",
        "Make one fact of the facts that say the same.",
        50,
        mutates=True,
        needs=(Need.WRITABLE,),
    ),
    Action("prune.stale", ("x",), "stale days", "Set after how many days a fact is stale."),
    Action("prune.copy", ("y",), "copy", "Copy the text of the fact."),
    Action("prune.help", ("question_mark", "f1"), "help", "Show every key of the review.", 60),
    Action("prune.leave", ("escape", "q"), "back", "Go back; nothing is forgotten.", 70),
)
