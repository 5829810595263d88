"""The one registry of the terminal app's actions, as pure data.

Footer, help screen, command palette, keymap checks and `docs/keys.md` all come from `ACTIONS`.

For a screen author: an action's id is `<group>.<verb>`. The group names the class that runs it:
`app`, a screen (`records`), or a widget that several screens share (`list`, `filter`). A screen
binds its group by naming it, a widget with `memtui.widgets.keys.bindings_for("filter")`. The class
defines `action_<verb>` for each of its actions; nothing else names a key. An action lists the
conditions it `needs`; the screen says which of them are `missing`, and why, so the action itself
checks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

INPUT_GROUPS = {
    "filter": "the filter line",
    "ask": "the question",
    "sql": "the statement",
}
"""Input lines: their keys work only with the focus, and printable keys are text there."""

KEEPS_ORDER = "This list keeps its own order."
"""The reason shown why lists in dialogs cannot be sorted."""

DIALOG_GROUPS = {
    "prune": "the prune review",
    "impact": "what forgetting would change",
    "limits": "the spending limits",
    "namespaces": "the namespaces of a binding",
    "conformance": "the conformance report",
    "migration": "a migration",
    "in_sync": "two bindings in sync",
    "runs": "the runs",
    "replay": "the replay of a run",
    "sources": "the sources of writes",
    "timeline": "the timeline of a record",
    "changes": "what changed between two moments",
    "review": "what waits for review",
    "insights": "what shows over all records",
}
"""Groups of dialogs: while one is open, only its keys and those of its list work."""


class Need(StrEnum):
    """A condition of an action; its value is the reason shown where it does not hold."""

    SERVICE = "memtui is still opening its database."
    WRITABLE = "memtui was started with --read-only."
    TAKES_CHANGES = "This binding is read-only."
    NOW = "This works only in the present; go back to now first."
    ROW = "Nothing is selected."
    MEMORY = "memtui only reads this file of the project; o opens it."
    SOURCE = "This has no source that can be opened."
    CORRECTION = "This provider cannot correct a record in place."
    HISTORY = "This provider keeps no history."
    EXPLAIN = "This provider does not explain its results."
    AGENTS_SEARCH = "This provider cannot be searched as its agents search it."
    SYNC = "This provider has nothing to sync."
    PROFILE = "This provider makes no profiles."
    UNDO = "There is nothing to undo."
    UNKNOWN_OUTCOME = "The outcome of this operation is known."
    FINDING = "Nothing was found on this machine that could still be added; r looks again."
    TABLE = "This list has no columns."
    BINDING = "No binding is selected."
    SETTINGS = "There are no settings here; go to the company or to a binding."
    NAMESPACES = "This provider has no namespaces."
    PLUGIN = "Only a memory plugin has a contract to check."
    DESTINATION = "There is no other binding to move to; a adds one."
    SCOPE = "Nobody is chosen; s chooses a user, project or agent."
    OWNERS = "Nothing is remembered yet."
    CHARTS = "This is for the charts; t shows them."
    SQL = "This is for SQL; t goes there."


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do."""

    group: str
    """The class that runs it: `app`, a screen's name, or a shared widget's."""
    verb: str
    """The name of the `action_…` method."""
    keys: tuple[str, ...]
    """Empty for a rare action, which the palette and the keymap reach."""
    label: str
    """One or two words for the footer."""
    description: str
    """A sentence for help, tooltip and documentation."""
    needs: tuple[Need, ...] = ()

    @property
    def id(self) -> str:
        """Its name in the keymap: `<group>.<verb>`."""
        return f"{self.group}.{self.verb}"

    @property
    def mutates(self) -> bool:
        """Whether it changes a memory or a setting."""
        return Need.WRITABLE in self.needs


@dataclass(frozen=True, slots=True)
class ScreenTab:
    """A numbered screen, the words of its tab, and the shared groups whose keys work on it."""

    mode: str
    number: int
    title: str
    short: str
    """The title where columns are few."""
    groups: tuple[str, ...] = ()


SCREENS: tuple[ScreenTab, ...] = (
    ScreenTab("bindings", 1, "Bindings", "Bind", ("list",)),
    ScreenTab("operations", 2, "Operations", "Ops", ("list", "filter")),
    ScreenTab("query", 3, "Query", "Query", ("list", "ask", "filter")),
    ScreenTab("records", 4, "Records", "Recs", ("list", "filter")),
    ScreenTab("budget", 5, "Budget", "Budget", ("list", "filter")),
    ScreenTab("analytics", 6, "Analytics", "Stats", ("list", "sql", "filter")),
)
"""All numbered screens; the numbers stay the same when a screen is added."""


def _do(
    verb: str, keys: str, description: str, needs: tuple[Need, ...] = (), *, label: str = ""
) -> Action:
    """Return an action without its group; the label defaults to the verb."""
    return Action(
        "", verb, tuple(keys.split()), label or verb.replace("_", " "), description, needs
    )


def _of_dialog(noun: str, keys: str = "escape q", *, words: str = "Go back.") -> tuple[Action, ...]:
    """Return the actions of every dialog with a list: help and back."""
    return (
        _do("help", "question_mark f1", f"Show every key of the {noun}."),
        _do("leave", keys, words, label="back"),
    )


_SERVICE = (Need.SERVICE,)
_ROW = (*_SERVICE, Need.ROW)
_NOW_ROW = (*_ROW, Need.NOW)
_BINDING = (*_SERVICE, Need.BINDING)
_CHANGE = (*_SERVICE, Need.WRITABLE)
_CHANGE_LISTED = (*_CHANGE, Need.ROW)
_CHANGE_THERE = (*_CHANGE, Need.TAKES_CHANGES)
_CHANGE_ROW = (*_CHANGE_THERE, Need.ROW, Need.MEMORY)
_CHANGE_BINDING = (*_CHANGE, Need.BINDING)
_SETTINGS = (*_CHANGE, Need.SETTINGS)
_CHANGE_SCOPE = (*_CHANGE_THERE, Need.SCOPE)
_CORRECTION = (*_CHANGE_ROW, Need.CORRECTION)
_UNDO = (*_CHANGE_ROW, Need.UNDO)
_SOURCE = (*_ROW, Need.SOURCE)
_UNKNOWN_OUTCOME = (*_ROW, Need.NOW, Need.UNKNOWN_OUTCOME)
_SCOPE = (*_SERVICE, Need.SCOPE)
_PROFILE = (*_SCOPE, Need.PROFILE)
_TABLE = (*_SERVICE, Need.TABLE)
_EXPLAIN = (*_SERVICE, Need.EXPLAIN)
_CHARTS = (*_SERVICE, Need.CHARTS)
_SQL = (*_SERVICE, Need.SQL)
_NAMESPACES = (*_BINDING, Need.NAMESPACES)
_SYNC = (*_CHANGE_BINDING, Need.SYNC)
_PLUGIN = (*_BINDING, Need.NOW, Need.PLUGIN)
_DESTINATION = (*_BINDING, Need.NOW, Need.DESTINATION)
_REDO = _do("redo", "U", "Redo what was undone last, also on another screen.", _CHANGE)

_GROUPS: Mapping[str, tuple[Action, ...]] = {
    "app": (
        *(
            _do(f"go_{tab.mode}", str(tab.number), f"Go to {tab.title}.", label=tab.title)
            for tab in SCREENS
        ),
        _do("help", "question_mark f1", "Show every key of this screen."),
        _do("tour", "f3", "Show what memtui is in one screen, and what to try first."),
        _do(
            "palette",
            "ctrl+p",
            "Find any action of any screen, theme, company, binding or saved view.",
        ),
        _do("scope", "s", "Choose company, project, agent, user, issue and run.", _SERVICE),
        _do("filter", "slash", "Narrow what every screen shows."),
        _do("clear_filter", "ctrl+l", "Clear the filter."),
        _do(
            "views",
            "V",
            "Save filter, order and columns under a name, or use, rename or delete saved ones.",
            _SERVICE,
            label="saved views",
        ),
        _do("binding", "B", "Choose the binding to look at.", _SERVICE),
        _do(
            "everywhere",
            "0",
            "Ask and list all bindings at once, or one again.",
            _SERVICE,
            label="all bindings",
        ),
        _do(
            "limits",
            "dollar_sign",
            "Show the spending limits and what was spent of each; set, change or remove them.",
            _SERVICE,
        ),
        _do(
            "past",
            "at",
            "Show everything as it was at a moment of the past; there, go back to now.",
            _SERVICE,
        ),
        _do(
            "changes",
            "W",
            "Show what changed between two moments, as a difference.",
            _SERVICE,
            label="what changed",
        ),
        _do(
            "review",
            "Q",
            "Show what agents wrote that is held for review: accept, fix or refuse it.",
            (*_SERVICE, Need.NOW),
        ),
        _do("refresh", "r f5", "Read again what this screen shows."),
        _do("picture", "f12", "Write a picture of this screen to an SVG file."),
        _do("theme", "ctrl+t", "Choose a theme."),
        _do("suspend", "ctrl+z", "Go back to the shell; `fg` returns."),
        _do(
            "quit",
            "q ctrl+q",
            "Leave memtui; it asks before a text is lost, and comes back where you left it.",
        ),
    ),
    "bindings": (
        _do("back", "escape", "Go back from the details to the tree."),
        _do(
            "add",
            "a",
            "Add a memory store found here as a read-only binding, or a binding of your own.",
            _CHANGE,
        ),
        _do(
            "add_all",
            "f",
            "Add all memory stores found on this machine as read-only bindings, after one yes.",
            (*_CHANGE, Need.FINDING),
            label="add all found",
        ),
        _do("enable", "", "Enable or disable the binding.", _CHANGE_BINDING, label="on/off"),
        _do(
            "read_only",
            "exclamation_mark",
            "Make the binding read-only, or writable again.",
            _CHANGE_BINDING,
            label="read-only",
        ),
        _do(
            "configure",
            "e",
            "Change the settings of this binding or company, checked before they are taken.",
            _SETTINGS,
            label="settings",
        ),
        _do(
            "target",
            "l",
            "Let this binding serve the company, a project or an agent.",
            _CHANGE_BINDING,
        ),
        _do("clear_target", "", "Stop this binding from serving a target.", _CHANGE_BINDING),
        _do(
            "capture",
            "",
            "Choose what this binding captures of agents' work: runs, comments, documents.",
            _CHANGE_BINDING,
        ),
        _do(
            "remove",
            "d",
            "Remove the binding; its records stay where they are.",
            _CHANGE_BINDING,
        ),
        _do(
            "open",
            "o",
            "Open the file of a problem or finding at its line, or the last run of an agent.",
        ),
        _do("browse", "R", "Show the records of this binding.", _BINDING, label="records"),
        _do(
            "namespaces",
            "",
            "Show the namespaces of this binding: make, expire and delete them.",
            _NAMESPACES,
        ),
        _do(
            "conformance",
            "",
            "Check this memory plugin against its contract, rule by rule.",
            _PLUGIN,
        ),
        _do(
            "migrate",
            "",
            "Move the records of this binding to another: dry run, apply, verify, cut over.",
            _DESTINATION,
        ),
        _do(
            "in_sync",
            "",
            "Keep this binding in sync with another, a vault with its collections.",
            _DESTINATION,
            label="keep in sync",
        ),
        _do(
            "sync",
            "",
            "Let the provider sync what it reads from outside, or rebuild its index.",
            _SYNC,
        ),
        _do(
            "embedding",
            "",
            "Embed the texts of this binding: agree to where they go, stop, go on.",
            _CHANGE_BINDING,
            label="meaning",
        ),
        _do("prune", "P", "Review which of all records you see could go, and why.", _SERVICE),
        _do(
            "profile",
            "",
            "Show the provider's profile of the scope.",
            (*_BINDING, Need.PROFILE),
        ),
        _do("undo", "u", "Undo the last change, after a yes.", _CHANGE),
        _REDO,
        _do("check", "c", "Ask every binding for its health again."),
        _do("copy", "y", "Copy the selected row."),
    ),
    "operations": (
        _do("follow", "F", "Follow new operations as they come.", (Need.NOW,)),
        _do("open", "o", "Open the source of the selected operation.", _ROW, label="source"),
        _do(
            "records",
            "R",
            "Show the record it touched, of several the one you choose.",
            _ROW,
        ),
        _do("history", "h", "Show every version of a record it touched, also if it is gone.", _ROW),
        _do(
            "copy",
            "y",
            "Copy text, id, JSON or digest of the marked operations, or of the selected one.",
            _ROW,
        ),
        _do("mark", "space", "Mark or unmark the row.", _ROW),
        _do("range", "v", "Mark from here to where you move.", _ROW),
        _do(
            "mark_all",
            "A",
            "Mark all loaded rows; press again for all that pass the filter.",
        ),
        _do(
            "jump",
            "J",
            "Go to the last operation that had begun by a time.",
            _SERVICE,
            label="go to time",
        ),
        _do(
            "export",
            "x",
            "Export all that pass the filter to a file: CSV, JSON Lines or Parquet.",
            _SERVICE,
        ),
        _do(
            "verify",
            "",
            "Check that no operation was altered, removed or inserted.",
            (*_SERVICE, Need.NOW),
            label="verify log",
        ),
        _do(
            "export_proof",
            "",
            "Write every operation with its digest to a file that anybody can verify.",
            (*_SERVICE, Need.NOW),
            label="export proof",
        ),
        _do("undo", "u", "Undo the marked changes, or the selected one.", _UNDO),
        _REDO,
        _do(
            "check",
            "c",
            "Ask the provider whether an unknown outcome happened.",
            _UNKNOWN_OUTCOME,
            label="check outcome",
        ),
        _do(
            "back",
            "escape",
            "Go back from the details to the list; there, clear marks, then the filter.",
        ),
        _do("runs", "t", "Show the runs of agents: what each was given and did.", _SERVICE),
        _do("replay", "T", "Replay the run of this operation.", _ROW, label="its run"),
        _do(
            "sources",
            "",
            "Show what wrote records lately: runs, issues, comments, documents.",
            _SERVICE,
            label="what wrote",
        ),
        _do("same_run", "", "Show all operations of this run.", _ROW),
        _do("same_issue", "", "Show all operations of this issue.", _ROW),
    ),
    "query": (
        _do(
            "back",
            "escape",
            "Go back from details or earlier questions to the results; there, clear the filter.",
        ),
        _do("input", "i", "Write a question.", label="ask"),
        _do("intent", "", "Change what the question is for."),
        _do(
            "as_agents",
            "",
            "Search as the provider's own agents do, or as memtui does.",
            (Need.AGENTS_SEARCH,),
        ),
        _do(
            "results",
            "m",
            "Set how many results the next question gets.",
            label="how many",
        ),
        _do("open", "o", "Open where the result came from.", _SOURCE, label="source"),
        _do("explain", "w", "Show the stages of this search and what each contributed.", _EXPLAIN),
        _do(
            "helped", "plus", "Say that this result helped (feedback), or withdraw that.", _NOW_ROW
        ),
        _do(
            "not_helped",
            "minus",
            "Say that this result did not help, or withdraw that.",
            _NOW_ROW,
            label="did not help",
        ),
        _do("same_source", "", "Show the records of the same source.", _ROW),
        _do("record", "R", "Show the record in Records.", _ROW),
        _do("edit", "e", "Show the record in Records and change its text.", _CORRECTION),
        _do("runs", "T", "Show the runs that it was delivered to.", _ROW, label="runs given"),
        _do("history", "h", "Show earlier questions, or the results again."),
        _do("tags", "number_sign", "Choose a tag, and list everything that has it.", _SERVICE),
        _do("copy", "y", "Copy the text of the result.", _ROW),
    ),
    "records": (
        _do("mark", "space", "Mark or unmark the row.", _ROW),
        _do("range", "v", "Mark from here to where you move.", _ROW),
        _do(
            "mark_all",
            "A",
            "Mark all loaded rows; press again for all that pass the filter.",
        ),
        _do("unmark", "escape", "Clear all marks, then the filter."),
        _do("edit", "e", "Change the text in place.", _CORRECTION),
        _do(
            "edit_external", "E", "Change the text in your editor.", _CORRECTION, label="in $EDITOR"
        ),
        _do("add", "a", "Write a new record.", _CHANGE_THERE),
        _do("forget", "d delete", "Forget the marked records, after a yes.", _CHANGE_ROW),
        _do(
            "erase",
            "X",
            "Erase the record for good, with every copy that memtui has: shown first.",
            _CHANGE_ROW,
            label="erase…",
        ),
        _do("undo", "u", "Undo the last change.", _CHANGE),
        _REDO,
        _do(
            "prune",
            "P",
            "Review which of all records could go, and why; the filter risk:any lists risky ones.",
            _SERVICE,
        ),
        _do("pin", "p", "Pin what is marked, or the record; unpin what is pinned.", _CORRECTION),
        _do(
            "expire",
            "K",
            "Let what is marked, or the record, expire or never expire.",
            _CORRECTION,
            label="expires",
        ),
        _do("summary", "", "Set the summary by which it is searched and shown.", _CORRECTION),
        _do(
            "history",
            "h",
            "Show every version of the record: since when, by whom, and why.",
            _ROW,
        ),
        _do(
            "key",
            "",
            "Show which value of the fact's key counts, why, and what it hides.",
            _ROW,
            label="its key",
        ),
        _do("queries", "w", "Show the queries that returned it.", _ROW, label="who read it"),
        _do("links", "L", "Go to a record that it links to, or that links to it.", _ROW),
        _do("tags", "number_sign", "Choose a tag, and list everything that has it.", _SERVICE),
        _do("runs", "T", "Show the runs that it was delivered to.", _ROW, label="runs given"),
        _do("open", "o", "Open where the record came from.", _ROW, label="source"),
        _do("open_file", "", "Open the file it is kept in.", _ROW, label="file"),
        _do("copy", "y", "Copy the text of the record.", _ROW),
        _do("copy_id", "", "Copy the id of the record.", _ROW),
        _do("same_source", "", "Show the records of the same source.", _ROW),
    ),
    "budget": (
        _do("mark", "space", "Mark or unmark the fact.", _ROW),
        _do("range", "v", "Mark from here to where you move.", _ROW),
        _do("mark_all", "A", "Mark all facts that are shown.", _ROW),
        _do("back", "escape", "Go back to the list; there, clear marks, then the filter."),
        _do("prune", "P", "Review which facts could go, and why.", (*_SERVICE, Need.OWNERS)),
        _do("add", "a", "Write a new fact.", _CHANGE_SCOPE),
        _do("edit", "e", "Change the fact in place.", _CORRECTION),
        _do(
            "edit_external", "E", "Change the fact in your editor.", _CORRECTION, label="in $EDITOR"
        ),
        _do("forget", "d delete", "Forget the marked facts, after a yes.", _CHANGE_ROW),
        _do("undo", "u", "Undo the last change.", _CHANGE),
        _REDO,
        _do(
            "pin",
            "p",
            "Pin the fact, or unpin it; a pinned one leads and is never suggested to go.",
            _CORRECTION,
        ),
        _do(
            "expire",
            "K",
            "Let what is marked, or the fact, expire or never expire.",
            _CORRECTION,
            label="expires",
        ),
        _do("merge", "M", "Make one fact of those that are marked.", _CORRECTION),
        _do(
            "clear",
            "D",
            "Forget all facts of this user, project or agent, after typing its name.",
            _CHANGE_SCOPE,
            label="clear all",
        ),
        _do(
            "text",
            "t",
            "Show the text exactly as the model sees it, or the list of its facts.",
            _SCOPE,
            label="as text",
        ),
        _do(
            "prompt",
            "i",
            "Type what the model is asked, to see what is found for it.",
            _SCOPE,
            label="ask",
        ),
        _do("profile", "", "Include the provider's profile, or leave it out.", _PROFILE),
        _do("model", "", "Choose the model to count and price for."),
        _do("budget", "m", "Set the token budget to look against."),
        _do(
            "whole", "", "Show the memory's share of a whole prompt.", _SCOPE, label="whole prompt"
        ),
        _do("left_out", "w", "Show every warning, and what was left out and why.", _SCOPE),
        _do("charts", "z", "Show the charts large, with how well facts serve.", _SCOPE),
        _do("record", "R", "Show the fact in Records.", _ROW),
        _do("history", "h", "Show every version of the fact: since when, by whom, why.", _ROW),
        _do("copy", "y", "Copy the text of the fact.", _ROW),
        _do("copy_text", "Y", "Copy the text that the model sees.", _SCOPE, label="copy all"),
        _do("files", "x", "Show the commands that export facts to a file and import them."),
    ),
    "analytics": (
        _do("half", "t", "Go to SQL, or back to the charts.", label="SQL"),
        _do(
            "period",
            "left_square_bracket",
            "Show a longer period; after the longest comes the shortest.",
            _CHARTS,
        ),
        _do("shorter", "right_square_bracket", "Show a shorter period.", _CHARTS),
        _do("insights", "n", "Show what nobody updates or reads, and what grows fastest.", _CHARTS),
        _do("bucket", "", "Cut time into hours, days, weeks or months.", _CHARTS, label="hour/day"),
        _do(
            "dimension",
            "b",
            "Choose what the table groups by: binding, agent, project, provider and more.",
            _CHARTS,
            label="by",
        ),
        _do(
            "hits",
            "",
            "Count a query as a hit by what was opened later, or by its scores.",
            _CHARTS,
            label="what is a hit",
        ),
        _do("large", "z", "Show one chart large, or all; in SQL, draw the result.", _SERVICE),
        _do("earlier", "left", "Select the bar before; among rows, show the columns further left."),
        _do("later", "right", "Select the bar after; among rows, show the columns further right."),
        _do(
            "export",
            "x",
            "Write the figures or the result to a file: CSV, JSON, Parquet, or a chart as SVG.",
            _SERVICE,
        ),
        _do("copy", "y", "Copy the selected figures or row as JSON."),
        _do("input", "i", "Go to the statement.", _SQL, label="statement"),
        _do("run", "ctrl+r", "Run the statement, or read again.", _SERVICE),
        _do("saved", "ctrl+o", "Open a saved or earlier statement.", _SQL),
        _do("views", "f2", "Show the views and their columns.", _SQL),
        _do(
            "back",
            "escape",
            "Stop a running statement; clear the selection, show all charts, clear the filter.",
        ),
    ),
    "prune": (
        _do("turn", "space", "Mark or unmark the record, or all of a group.", label="mark"),
        _do("all", "A", "Mark all that is not pinned, then nothing, then what was suggested."),
        _do("diff", "t", "Show what would go as a diff, or the list."),
        _do(
            "whose",
            "s",
            "Choose whose records are reviewed; each owner and binding says how many could go.",
        ),
        _do("group", "b", "Group by owner, or by reason.", label="by owner"),
        _do("filter", "slash", "Review only the records that pass a filter."),
        _do(
            "insights",
            "n",
            "Show what nobody updates or reads, and what grows fastest.",
        ),
        _do("apply", "d delete", "Forget what is marked, after a yes.", _CHANGE, label="forget"),
        _do(
            "impact",
            "c",
            "Try the log's last questions without what is marked: which answers would differ.",
            (Need.NOW,),
            label="what breaks",
        ),
        _do(
            "stays",
            "K",
            "Let this one stay of those that say the same, and what was to stay go.",
            label="keep this one",
        ),
        _do("merge", "M", "Make one record of those that say the same.", _CHANGE),
        _do("undo", "u", "Undo the last change, such as a merge.", _CHANGE),
        _do("stale", "m", "Set after how many days a record is stale.", label="stale days"),
        _do("record", "R", "Show the record in Records."),
        _do("history", "h", "Show every version of the record: since when, by whom, and why."),
        _do("queries", "w", "Show the queries that returned it.", label="who read it"),
        _do("runs", "T", "Show the runs that it was delivered to.", label="runs given"),
        _do("copy", "y", "Copy the text of the record."),
        *_of_dialog("review", words="Go back; nothing is forgotten."),
    ),
    "insights": (
        _do("prune", "P", "Review which of its owner's records could go.", _ROW),
        _do("records", "R", "Show its owner's records.", _ROW),
        _do("read", "r f5", "Look again.", label="look again"),
        _do("copy", "y", "Copy what shows.", _ROW),
        *_of_dialog("list"),
    ),
    "impact": (
        _do("operation", "O", "Show in Operations what asked for the answer last.", _ROW),
        _do("last", "m", "Set how many of the newest questions are tried.", label="how many"),
        _do("filter", "slash", "Try only operations that pass a filter."),
        _do("stop", "ctrl+c", "Stop trying."),
        _do("read", "r f5", "Try again.", label="try again"),
        _do("copy", "y", "Copy the question.", _ROW),
        *_of_dialog("list", words="Go back; nothing was changed."),
    ),
    "limits": (
        _do("add", "a", "Set a limit of the company, a project, an agent or a binding.", _CHANGE),
        _do("change", "e", "Set another amount.", _CHANGE_LISTED),
        _do("remove", "d delete", "Remove the limit, after a yes.", _CHANGE_LISTED),
        _do("undo", "u", "Undo the last change, after a yes.", _CHANGE),
        _REDO,
        _do("read", "r f5", "Add up again what was spent.", label="read again"),
        _do("copy", "y", "Copy the limit with what was spent of it.", _ROW),
        *_of_dialog("list", "escape q dollar_sign"),
    ),
    "review": (
        _do("accept", "a", "Accept it, or everything that is marked.", _CHANGE_LISTED),
        _do("fix", "e", "Edit the text and accept it.", _CHANGE_LISTED),
        _do(
            "fix_external",
            "E",
            "Edit the text in $EDITOR and accept it.",
            _CHANGE_LISTED,
            label="fix in $EDITOR",
        ),
        _do(
            "refuse",
            "d delete",
            "Refuse it, or all that is marked; you may say why.",
            _CHANGE_LISTED,
        ),
        _do(
            "rule",
            "N",
            "Always accept or refuse writes with this agent, channel, text, key or topic.",
            _CHANGE_LISTED,
            label="always",
        ),
        _do("rules", "H", "Choose what of agents' writes is held, accepted or refused.", _CHANGE),
        _do("undo", "u", "Undo the last change, after a yes.", _CHANGE),
        _REDO,
        _do("mark", "space", "Mark or unmark the row."),
        _do("mark_all", "A", "Mark all that waits."),
        _do("open", "o", "Open where it came from.", _ROW, label="source"),
        _do("operation", "O", "Show the operation that asked for it.", _ROW),
        _do("copy", "y", "Copy the text.", _ROW),
        _do("read", "r f5", "Read again what waits.", label="read again"),
        *_of_dialog("queue", "escape q Q"),
    ),
    "namespaces": (
        _do("add", "a", "Make a namespace.", _CHANGE, label="new"),
        _do(
            "expiry", "K", "Set when the namespace expires, or that it never does.", _CHANGE_LISTED
        ),
        _do(
            "delete",
            "d delete",
            "Delete the namespace with its records, after its name was typed.",
            _CHANGE_LISTED,
        ),
        _do("undo", "u", "Bring back the records of the namespace that was deleted last.", _CHANGE),
        _do("read", "r f5", "Read the namespaces again.", label="read again"),
        _do("copy", "y", "Copy the name of the namespace.", _ROW),
        *_of_dialog("list"),
    ),
    "conformance": (
        _do("run", "c", "Check the plugin against its contract, after a yes.", _CHANGE),
        _do("stop", "ctrl+c", "Stop the run; what it made is removed."),
        _do("failures", "t", "Show what failed alone, or all.", label="failed only"),
        _do("export", "x", "Write the report to a JSON file.", label="write JSON"),
        _do("copy", "y", "Copy the check with its request and reply.", _ROW),
        *_of_dialog("report", words="Go back; a run is stopped first."),
    ),
    "migration": (
        _do("plan", "r f5", "Do the dry run again.", label="dry run"),
        _do(
            "apply",
            "a",
            "Move the records, after a yes; a stopped move can be continued.",
            _CHANGE,
        ),
        _do("verify", "c", "Compare both sides: all of it, or a sample."),
        _do(
            "cut_over",
            "l",
            "Let the destination serve what the source serves, after a yes.",
            _CHANGE,
        ),
        _do(
            "back",
            "u",
            "Let the source serve again what was cut over, after a yes.",
            _CHANGE,
            label="roll back",
        ),
        _do("stop", "ctrl+c", "Stop what is running; what was done stays."),
        _do("copy", "y", "Copy the row.", _ROW),
        *_of_dialog("migration", words="Go back; what runs is stopped first."),
    ),
    "in_sync": (
        _do("look", "r f5", "Do the dry run again.", label="dry run"),
        _do("sync", "a", "Sync both; what is held back stays as it is.", _CHANGE),
        _do(
            "decide",
            "K",
            "Decide the conflict: keep one version, or both as two records.",
            _CHANGE,
            label="keep which",
        ),
        _do(
            "delete",
            "d",
            "Allow the deletions that are held back, after a yes.",
            _CHANGE,
            label="let delete",
        ),
        _do(
            "rebuild",
            "f",
            "Write again what the second binding lacks, after a yes.",
            _CHANGE,
        ),
        _do("stop", "ctrl+c", "Stop what is running; what was done stays."),
        _do("copy", "y", "Copy the row.", _ROW),
        *_of_dialog("list", words="Go back; what runs is stopped first."),
    ),
    "runs": (
        _do(
            "replay",
            "T",
            "Replay the run: what it was given, asked, got and wrote; enter does too.",
            _ROW,
        ),
        _do("operations", "O", "Show all operations of the run.", _ROW),
        _do("filter", "slash", "List the runs with an operation that passes a filter."),
        _do("read", "r f5", "Read the runs again.", label="read again"),
        _do("copy", "y", "Copy the id of the run.", _ROW),
        *_of_dialog("list", "escape q t"),
    ),
    "sources": (
        _do("records", "R", "Show the records that came from it; enter does too.", _ROW),
        _do("operations", "O", "Show its writes in Operations.", _ROW, label="its writes"),
        _do("open", "o", "Open the run, issue, comment, document or file.", _ROW, label="source"),
        _do("filter", "slash", "List the sources of the writes that match a filter."),
        _do("read", "r f5", "Read the list again.", label="read again"),
        _do("copy", "y", "Copy the source.", _ROW),
        *_of_dialog("list"),
    ),
    "replay": (
        _do(
            "assembled_now",
            "t",
            "Compare the context delivered then with what would be delivered now.",
            _NOW_ROW,
            label="given now",
        ),
        _do("operation", "O", "Show the step in Operations.", _ROW),
        _do("record", "R", "Show a record of the step in Records.", _ROW),
        _do(
            "delivered",
            "T",
            "Show the runs that got a record of the step.",
            _ROW,
            label="runs given",
        ),
        _do("read", "r f5", "Read again what is still stored.", label="read again"),
        _do("copy", "y", "Copy the delivered text, or what the step was about.", _ROW),
        *_of_dialog("replay"),
    ),
    "timeline": (
        _do(
            "see", "at", "Show everything as it was when the version began.", _ROW, label="see then"
        ),
        _do("open", "o", "Open where the version came from.", _ROW, label="source"),
        _do("operation", "O", "Show the operation that made the version.", _ROW),
        _do("read", "r f5", "Read the versions again.", label="read again"),
        _do("copy", "y", "Copy the text of the version.", _ROW),
        *_of_dialog("timeline", "escape q h"),
    ),
    "changes": (
        _do("since", "left_square_bracket", "Choose the earlier moment.", label="from"),
        _do("until", "right_square_bracket", "Choose the later moment.", label="to"),
        _do("filter", "slash", "Compare only the records that pass a filter."),
        _do("timeline", "h", "Show every version of the record.", _ROW),
        _do("operation", "O", "Show the operation that changed it last.", _ROW),
        _do("open", "o", "Open where the record came from.", _ROW, label="source"),
        _do("record", "R", "Show the record in Records.", _ROW),
        _do("copy", "y", "Copy the change as a difference.", _ROW),
        _do("export", "x", "Write all changes to a file: CSV, JSON or Parquet.", _ROW),
        _do("read", "r f5", "Compare again.", label="read again"),
        *_of_dialog("list", "escape q W"),
    ),
    "list": (
        _do("down", "j down", "Move down one row."),
        _do("up", "k up", "Move up one row."),
        _do("top", "g home", "Go to the first row."),
        _do("bottom", "G end", "Go to the last row."),
        _do("half_down", "ctrl+d", "Move down half a page.", label="half page down"),
        _do("half_up", "ctrl+u", "Move up half a page.", label="half page up"),
        _do("page_down", "pagedown ctrl+f", "Move down a page."),
        _do("page_up", "pageup ctrl+b", "Move up a page."),
        _do("open", "enter", "Open the selected row, or go into its details.", label="details"),
        _do("sort", "S", "Choose the column to sort by; clicking a header sorts too.", _TABLE),
        _do("reverse", "I", "Reverse the order.", _TABLE),
        _do("columns", "C", "Choose the columns that are shown.", _TABLE),
        _do("wider", "greater_than_sign", "Widen the sorting column.", _TABLE),
        _do("narrower", "less_than_sign", "Narrow the sorting column.", _TABLE),
        _do(
            "grow",
            "right_curly_bracket",
            "Give the list more room, and its details less; dragging the border does too.",
            label="more list",
        ),
        _do(
            "shrink",
            "left_curly_bracket",
            "Give the details more room, and the list less.",
            label="more details",
        ),
    ),
    "filter": (
        _do("apply", "enter", "Filter by what is written."),
        _do("complete", "tab shift+tab", "Complete the word that is written."),
        _do("previous", "up", "Bring back the filter used before.", label="before"),
        _do("next", "down", "Go to the filter used after.", label="after"),
        _do("leave", "escape", "Apply and leave the line; once more clears the filter."),
    ),
    "ask": (
        _do("run", "enter", "Ask what is written.", label="ask"),
        _do(
            "leave",
            "escape",
            "Leave the line for the results; what is typed in it is text, so 1 to 6 wait too.",
            label="results, where keys like 1-6 work",
        ),
    ),
    "sql": (
        _do("run", "ctrl+r f5 ctrl+enter", "Run the statement.", _SERVICE),
        _do("leave", "escape", "Stop a running statement, or leave it.", label="results"),
        _do("complete", "ctrl+n ctrl+@ ctrl+space", "Complete the word."),
        _do("save", "ctrl+s", "Save the statement under a name."),
        _do("saved", "ctrl+o", "Open a saved or earlier statement.", label="open"),
        _do("views", "f2", "Show the views and their columns."),
    ),
}

ACTIONS: Mapping[str, Action] = {
    action.id: action
    for group, actions in _GROUPS.items()
    for action in (replace(action, group=group) for action in actions)
}
"""Every action by its id."""

_FOOTERS = {
    "bindings": "add configure target read_only browse remove open",
    "operations": "open follow runs undo copy",
    "query": "input edit open record helped explain",
    "records": "edit mark forget add undo history",
    "budget": "prune add forget mark text",
    "analytics": "half period input dimension saved large export",
    "prune": "turn whose impact diff apply stays group help leave",
    "insights": "prune records read copy help leave",
    "impact": "operation last filter stop copy help leave",
    "limits": "add change remove undo copy help leave",
    "review": "accept fix refuse mark undo redo rule rules help leave",
    "namespaces": "add expiry delete undo help leave",
    "conformance": "run stop failures export help leave",
    "migration": "plan apply verify cut_over back stop help leave",
    "in_sync": "look sync decide delete stop help leave",
    "runs": "replay operations filter copy help leave",
    "sources": "records operations open filter copy help leave",
    "replay": "assembled_now operation record delivered copy help leave",
    "timeline": "see open operation copy help leave",
    "changes": "since until filter timeline export copy help leave",
    "filter": "apply complete previous next leave",
    "ask": "run leave",
    "sql": "run leave complete save saved views",
}
"""The actions that the footer shows for each group, the most used first."""


_TOGETHER = {
    verbs: sentence
    for names, sentence in (
        ("down up top bottom", "Move by a row; go to the first row or the last."),
        ("half_down half_up page_down page_up", "Move by half a page, or by a page."),
        ("sort reverse", "Choose the column to sort by; reverse the order."),
        ("columns wider narrower", "Choose the columns; widen or narrow the sorting one."),
        ("grow shrink", "Give the list more room, or its details."),
        (" ".join(f"go_{tab.mode}" for tab in SCREENS), "Go to the screen of this number."),
        ("filter clear_filter", "Narrow what every screen shows; show all of it again."),
        ("binding everywhere", "Choose the binding to look at; show all bindings at once."),
        ("picture theme suspend", "Write a picture, choose a theme, go back to the shell."),
        ("mark range", "Mark or unmark the row; mark from here to where you move."),
        ("edit edit_external", "Change the text in place, or in your editor."),
        ("undo redo", "Undo the last change, or the marked ones; redo what was undone."),
    )
    for verbs in [tuple(names.split())]
}
"""Actions whose keys share a line of the help, and what it says."""


def help_rows(group: str) -> Iterator[tuple[list[Action], str]]:
    """Yield the lines of a group's help: the actions that share one, and its sentence."""
    left = {one.verb: one for one in actions_of(group)}
    for verb, one in list(left.items()):
        shared = next((all_ for all_ in _TOGETHER if verb in all_ and left.keys() >= {*all_}), None)
        if shared is not None:
            yield [left.pop(name) for name in shared], _TOGETHER[shared]
        elif left.pop(verb, None) is not None:
            yield [one], one.description


def actions_of(group: str) -> Iterator[Action]:
    """Yield the actions of a group, in the registry's order."""
    return (action for action in ACTIONS.values() if action.group == group)


def screen_tab(mode: str) -> ScreenTab:
    """Return the screen of a mode; raises `KeyError` for one that does not exist."""
    return {tab.mode: tab for tab in SCREENS}[mode]


def groups_on(mode: str) -> tuple[str, ...]:
    """Return the groups whose keys work on a screen, the nearest first."""
    return (mode, *screen_tab(mode).groups, "app")


def footer_actions(group: str, count: int = 8) -> list[Action]:
    """Return the footer's actions of a group, the most used first.

    A screen gets at most `count`: its actions, then shared ones, `app.help` last. An input line or
    a dialog gets only its own actions, all of them.
    """
    own = [ACTIONS[f"{group}.{verb}"] for verb in _FOOTERS[group].split()]
    if group in INPUT_GROUPS | DIALOG_GROUPS:
        return own
    shared = [ACTIONS[name] for name in ("app.filter", "app.scope")]
    return [*(*own, *shared)[: count - 1], ACTIONS["app.help"]]


_KEY_WORDS = {
    "question_mark": "?",
    "exclamation_mark": "!",
    "slash": "/",
    "plus": "+",
    "minus": "-",
    "dollar_sign": "$",
    "number_sign": "#",
    "at": "@",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "space": "space",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "delete": "del",
}


def key_label(key: str) -> str:
    """Return how a key is written for a person: `ctrl+d`, `?`, `esc`."""
    *modifiers, last = key.split("+")
    return "+".join([*modifiers, _KEY_WORDS.get(last, last)])
