"""The actions of each numbered screen."""

from __future__ import annotations

from memtui.actions.model import BINDING, CHANGE, CHANGE_BINDING, CHANGE_ROW, ROW, Action, Need

BINDINGS = (
    Action("bindings.back", ("escape",), "back", "Go back from the details to the tree."),
    Action(
        "bindings.add",
        ("a",),
        "add",
        "Add the memories found here as a read-only binding, or a binding of your own.",
        10,
        mutates=True,
        needs=CHANGE,
    ),
    Action(
        "bindings.enable",
        ("e",),
        "on/off",
        "Enable or disable the binding.",
        20,
        mutates=True,
        needs=CHANGE_BINDING,
    ),
    Action(
        "bindings.read_only",
        ("w",),
        "read-only",
        "Make the binding read-only, or writable again.",
        30,
        mutates=True,
        needs=CHANGE_BINDING,
    ),
    Action(
        "bindings.target",
        ("t",),
        "target",
        "Let this binding serve the company, a project or an agent.",
        40,
        mutates=True,
        needs=CHANGE_BINDING,
    ),
    Action(
        "bindings.clear_target",
        ("T",),
        "clear target",
        "Stop this binding from serving a target.",
        mutates=True,
        needs=CHANGE_BINDING,
    ),
    Action(
        "bindings.remove",
        ("d",),
        "remove",
        "Take the binding away; its memories stay where they are.",
        50,
        mutates=True,
        needs=CHANGE_BINDING,
    ),
    Action(
        "bindings.open",
        ("o",),
        "open",
        "Open the file of the selected problem or finding at its line in your editor.",
        60,
    ),
    Action(
        "bindings.browse", ("b",), "records", "Show the records of this binding.", needs=BINDING
    ),
    Action("bindings.check", ("c",), "check", "Ask every binding for its health again."),
    Action("bindings.discover", ("f",), "find", "Look again for memories on this machine."),
    Action("bindings.copy", ("y",), "copy", "Copy the selected row."),
)

OPERATIONS = (
    Action("operations.follow", ("F",), "follow", "Follow new operations as they come.", 20),
    Action(
        "operations.open",
        ("o",),
        "source",
        "Open the source of the selected operation.",
        10,
        needs=ROW,
    ),
    Action("operations.records", ("b",), "records", "Show the records it touched.", 30, needs=ROW),
    Action(
        "operations.copy", ("y",), "copy", "Copy the selected operation as JSON.", 50, needs=ROW
    ),
    Action(
        "operations.undo",
        ("u",),
        "undo",
        "Take the selected change back.",
        40,
        mutates=True,
        needs=(*CHANGE_ROW, Need.UNDO),
    ),
    Action(
        "operations.check",
        ("c",),
        "check outcome",
        "Ask the provider whether an unknown outcome happened.",
        needs=(*ROW, Need.UNKNOWN_OUTCOME),
    ),
    Action("operations.back", ("escape",), "back", "Go back from the details to the list."),
    Action(
        "operations.same_run", ("R",), "same run", "Show all operations of this run.", needs=ROW
    ),
    Action(
        "operations.same_issue",
        ("H",),
        "same issue",
        "Show all operations of this issue.",
        needs=ROW,
    ),
)

RECORDS = (
    Action("records.mark", ("space",), "mark", "Mark or unmark the row.", 20, needs=ROW),
    Action("records.range", ("v",), "range", "Mark from here to where you move.", needs=ROW),
    Action("records.mark_all", ("A",), "mark all", "Mark all rows that are loaded."),
    Action("records.unmark", ("escape",), "unmark", "Take all marks away."),
    Action(
        "records.edit",
        ("e",),
        "edit",
        "Change the text in place.",
        10,
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action(
        "records.edit_external",
        ("E",),
        "in $EDITOR",
        "Change the text in your editor.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action("records.add", ("a", "n"), "add", "Write a new record.", 40, mutates=True, needs=CHANGE),
    Action(
        "records.forget",
        ("d", "delete"),
        "forget",
        "Forget the marked records, after a yes.",
        30,
        mutates=True,
        needs=CHANGE_ROW,
    ),
    Action(
        "records.undo",
        ("u",),
        "undo",
        "Take the last change back.",
        50,
        mutates=True,
        needs=CHANGE,
    ),
    Action(
        "records.redo",
        ("U",),
        "redo",
        "Do again what was just taken back.",
        mutates=True,
        needs=CHANGE,
    ),
    Action(
        "records.pin",
        ("p",),
        "pin",
        "Pin the record, or unpin it.",
        mutates=True,
        needs=(*CHANGE_ROW, Need.CORRECTION),
    ),
    Action("records.history", ("h",), "history", "Show how the record came to be.", 60, needs=ROW),
    Action(
        "records.queries", ("w",), "who read it", "Show the queries that returned it.", needs=ROW
    ),
    Action("records.open", ("o",), "source", "Open where the record came from.", needs=ROW),
    Action("records.open_file", ("O",), "file", "Open the file it is kept in.", needs=ROW),
    Action("records.copy", ("y",), "copy", "Copy the text of the record.", needs=ROW),
    Action("records.copy_id", ("Y",), "copy id", "Copy the id of the record.", needs=ROW),
    Action(
        "records.same_source",
        ("b",),
        "same source",
        "Show the records of the same source.",
        needs=ROW,
    ),
)

QUERY = (
    Action("query.back", ("escape",), "back", "Go back from the details to the results."),
    Action("query.input", ("i",), "ask", "Write a question.", 10),
    Action("query.intent", ("t",), "intent", "Change what the question is for."),
    Action("query.more", ("plus",), "more", "Ask for more results."),
    Action("query.fewer", ("minus",), "fewer", "Ask for fewer results."),
    Action(
        "query.open",
        ("o",),
        "source",
        "Open where the result came from.",
        20,
        needs=(*ROW, Need.SOURCE),
    ),
    Action(
        "query.explain",
        ("x",),
        "explain",
        "Show the stages of this search and what each contributed.",
        30,
        needs=(Need.SERVICE, Need.EXPLAIN),
    ),
    Action(
        "query.same_source",
        ("b",),
        "same source",
        "Show the records of the same source.",
        40,
        needs=ROW,
    ),
    Action("query.record", ("R",), "record", "Show the record in Records.", needs=ROW),
    Action("query.history", ("h",), "history", "Show earlier questions and what they found.", 50),
    Action("query.copy", ("y",), "copy", "Copy the text of the result.", needs=ROW),
)
