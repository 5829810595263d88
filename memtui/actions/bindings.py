"""The actions of what the Bindings screen opens over itself for the selected binding."""

from __future__ import annotations

from memtui.actions.model import Action, Need

_CHANGE = (Need.SERVICE, Need.WRITABLE)

NAMESPACES = (
    Action(
        "namespaces.add",
        ("a", "n"),
        "new",
        "Make a namespace.",
        10,
        mutates=True,
        needs=_CHANGE,
    ),
    Action(
        "namespaces.expiry",
        ("e",),
        "expiry",
        "Set when the namespace expires, or that it never does.",
        20,
        mutates=True,
        needs=_CHANGE,
    ),
    Action(
        "namespaces.delete",
        ("d", "delete"),
        "delete",
        "Delete the namespace with its records, after its name was typed.",
        30,
        mutates=True,
        needs=_CHANGE,
    ),
    Action(
        "namespaces.undo",
        ("u",),
        "undo",
        "Bring back the records of the namespace that was deleted last.",
        40,
        mutates=True,
        needs=_CHANGE,
    ),
    Action("namespaces.read", ("r",), "read again", "Read the namespaces again."),
    Action("namespaces.copy", ("y",), "copy", "Copy the name of the namespace."),
    Action("namespaces.help", ("question_mark", "f1"), "help", "Show every key of the list.", 50),
    Action("namespaces.leave", ("escape", "q"), "back", "Go back.", 60),
)

CONFORMANCE = (
    Action(
        "conformance.run",
        ("r",),
        "run",
        "Check the plugin against its contract, after a yes.",
        10,
        mutates=True,
        needs=_CHANGE,
    ),
    Action(
        "conformance.stop",
        ("x",),
        "stop",
        "Stop the run; what it made is removed.",
        20,
    ),
    Action("conformance.failures", ("f",), "failed only", "Show what failed alone, or all.", 30),
    Action("conformance.export", ("w",), "write JSON", "Write the report to a JSON file.", 40),
    Action("conformance.copy", ("y",), "copy", "Copy the check with its request and reply."),
    Action(
        "conformance.help", ("question_mark", "f1"), "help", "Show every key of the report.", 50
    ),
    Action("conformance.leave", ("escape", "q"), "back", "Go back; a run is stopped first.", 60),
)

MIGRATION = (
    Action("migration.plan", ("p",), "dry run", "Say again what would happen.", 10),
    Action(
        "migration.apply",
        ("a",),
        "apply",
        "Move the records, after a yes; stopped and begun again, it goes on.",
        20,
        mutates=True,
        needs=_CHANGE,
    ),
    Action("migration.verify", ("v",), "verify", "Compare both sides: all of it, or a sample.", 30),
    Action(
        "migration.cut_over",
        ("c",),
        "cut over",
        "Let the destination serve what the source serves, after a yes.",
        40,
        mutates=True,
        needs=_CHANGE,
    ),
    Action(
        "migration.back",
        ("b",),
        "give back",
        "Let the source serve again what was cut over, after a yes.",
        50,
        mutates=True,
        needs=_CHANGE,
    ),
    Action("migration.stop", ("x",), "stop", "Stop what is running; what was done stays.", 60),
    Action("migration.copy", ("y",), "copy", "Copy the row."),
    Action(
        "migration.help", ("question_mark", "f1"), "help", "Show every key of the migration.", 70
    ),
    Action("migration.leave", ("escape", "q"), "back", "Go back; what runs is stopped first.", 80),
)
