"""Options shared by several commands, each with the same meaning everywhere."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from memtui.channels.cli.session import ASKED_BY_SHELL, Invocation, Session, build
from memtui.contract import (
    Filter,
    Invalid,
    Json,
    MemtuiError,
    Model,
    OperationStatus,
    OperationType,
    Record,
    Scope,
    SourceKind,
    SourceRef,
)
from memtui.fact_values import FACT
from memtui.filters import (
    FIELDS,
    FilterTarget,
    build_filter,
    parse_filter,
    refuse_unsupported,
    taken_for_words,
)

if TYPE_CHECKING:
    from memtui.service import BindingView, BrowseAnswer
    from memtui.store.operation import OperationDraft

    ModelT = TypeVar("ModelT", bound=Model)

T = TypeVar("T")

_COMPLETED_RUNS = 200
"""Newest runs among which an id is completed."""
_COMPLETED_OPERATIONS = 500
"""Newest operations among whose names an id is completed."""


def complete_binding(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the binding keys that begin with `incomplete`."""
    return [view.key for view in _bindings(ctx) if view.key.startswith(incomplete)]


def complete_name(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer for ids of a kind, such as `project`: served ones, and newest in the log.

    The kind is a target type or a word of the filter line.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        served = {
            target.target_id
            for view in _bindings(ctx)
            for target in view.targets
            if target.target_type == kind
        }
        names = served.union(_known(ctx).get(kind, ()))
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


def complete_filter(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions of the filter term that is being written, as on the screens."""
    from memtui.presenters.filter_words import completions

    before = [str(one) for one in ctx.params.get("line") or ()]
    # Bash takes `type:wr` for three words, and replaces the last one only.
    is_cut = os.environ.get(ASKED_BY_SHELL) == "complete_bash" and before[-1:] == [":"]
    head = "".join(before[-2:]) if is_cut else ""
    known = _known(ctx)
    found = completions(head + incomplete, known, most=None)
    if len(found) == 1 and found[0].endswith(":"):  # the shell would put a blank after it
        found = completions(found[0], known, most=None) or found
    return [one.removeprefix(head) for one in found]


def complete_from(
    names: Callable[[], Iterable[str]],
) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer for names that need no home."""

    def complete(_ctx: typer.Context, incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def complete_read(
    read: Callable[[Session], Awaitable[Iterable[str]]],
) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer for names that are read from an existing home, in their order."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return [name for name in read_completed(ctx, read) if name.startswith(incomplete)]

    return complete


async def _runs(session: Session) -> list[str]:
    page = await session.service.runs.page(session.caller, limit=_COMPLETED_RUNS)
    return [one.run_id for one in page.runs]


async def _companies(session: Session) -> list[str]:
    caller = session.caller
    found = await session.service.companies.all(caller.principal, caller.acts_for)
    return [one.company_id for one in found]


complete_run, complete_company = complete_read(_runs), complete_read(_companies)


def _bindings(ctx: typer.Context) -> list[BindingView]:
    return read_completed(ctx, lambda session: session.service.bindings.all(session.caller))


def _known(ctx: typer.Context) -> dict[str, tuple[str, ...]]:
    """Return the values of the newest operations, by the words of the filter line."""
    from memtui.presenters.filter_words import known_values

    async def read(session: Session) -> list[OperationDraft]:
        page = await session.service.log.page(session.caller, Filter(), limit=_COMPLETED_OPERATIONS)
        return list(page.operations)

    return known_values(read_completed(ctx, read))


def read_completed(
    ctx: typer.Context, read: Callable[[Session], Awaitable[Iterable[T]]]
) -> list[T]:
    """Read completions from an existing home; empty: it cannot be read."""
    import asyncio

    given = ctx.find_root().params
    invocation = Invocation(
        home=given.get("home"),
        company=given.get("company"),
        principal=given.get("principal"),
        acts_for=given.get("acts_for"),
        read_only=True,
    )

    async def opened() -> list[T]:
        async with invocation.session(make=False) as session:
            return list(await read(session))

    try:
        return asyncio.run(opened())
    except MemtuiError:
        return []  # a completion has no place to complain; the command itself will


def _not_empty(value: str) -> str:
    if not value:
        raise typer.BadParameter("an id is at least one character")
    return value


RecordId = Annotated[
    str,
    typer.Argument(
        metavar="RECORD_ID",
        help="The record's id, as printed by note and browse.",
        callback=_not_empty,
    ),
]
BindingKey = Annotated[
    str, typer.Argument(metavar="KEY", help="The binding's key.", autocompletion=complete_binding)
]
UseBinding = Annotated[
    str | None,
    typer.Option(
        help="Use this binding instead of the one that the scope resolves to.",
        autocompletion=complete_binding,
    ),
]
WorksIn = Annotated[
    str | None,
    typer.Option(
        help="The project that the agent works in.", autocompletion=complete_name("project")
    ),
]
TargetId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="The target's id, or the binding's key; the company needs none."
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="From this moment on: 7d, 6h, today, 2026-03-01."),
]
Until = Annotated[str | None, typer.Option("--until", help="Before this moment.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="WHEN", help="As it was at this moment: 7d, yesterday, 2026-03-01."
    ),
]
Before = Annotated[
    int | None, typer.Option(min=1, help="Only before this number; for the next page.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")]
Switch = Annotated[Literal["on", "off"], typer.Argument(metavar="SWITCH", help="on or off.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
]
FromFolder = Annotated[
    bool,
    typer.Option(
        "--project-from-folder", help="Name the project after the folder that the agent works in."
    ),
]
Revision = Annotated[
    str | None, typer.Option(help="Refuse unless the record still has this revision.")
]
OfKind = Annotated[str | None, typer.Option("--kind", help="Refuse a record of another sort.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact", help="CSV: put no apostrophe before cells that a spreadsheet would run."
    ),
]
AllBindings = Annotated[
    bool,
    typer.Option(
        "--all-bindings",
        help="Ask all bindings; one that is slow or fails is named, and the others' answers stand.",
    ),
]
FilterLine = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="A filter line as on the screens: agent:bob,eve -type:query since:7d words ~fuzzy.",
        autocompletion=complete_filter,
    ),
]


@dataclass(frozen=True)
class OwnerOptions:
    """The owner of memories.

    Args:
        project: The project's id.
        agent: The agent's id.
        subject: The person or identity the memory is about.
    """

    project: Annotated[str | None, typer.Option(autocompletion=complete_name("project"))] = None
    agent: Annotated[str | None, typer.Option(autocompletion=complete_name("agent"))] = None
    subject: Annotated[str | None, typer.Option(autocompletion=complete_name("user"))] = None

    def scope(self, session: Session) -> Scope:
        """Return the scope in the session's company."""
        ids = {f"{name}_id": value for name, value in asdict(self).items() if name != "binding"}
        return build(Scope, company_id=session.company.company_id, **ids)


@dataclass(frozen=True)
class BindingOptions(OwnerOptions):
    """The owner of memories, and the binding."""

    binding: UseBinding = None

    def request(self, session: Session, model: type[ModelT], /, **values: Any) -> ModelT:
        """Return a request with the scope and binding. Raises `Invalid` for an invalid value."""
        values = {"scope": self.scope(session), "binding_key": self.binding, **values}
        return build(model, **values)


RunId = Annotated[str | None, typer.Option(help="The run's id.", autocompletion=complete_run)]


@dataclass(frozen=True)
class RunOptions(BindingOptions):
    """The owner of memories, the binding and the run."""

    run: RunId = None


@dataclass(frozen=True)
class ScopeOptions(BindingOptions):
    """The owner of memories, the binding, the issue and the run.

    Args:
        issue: The issue's id.
    """

    issue: Annotated[str | None, typer.Option(autocompletion=complete_name("issue"))] = None
    run: RunId = None


@dataclass(frozen=True)
class FactScope(BindingOptions):
    """The owner of facts, and the binding."""

    def scope(self, session: Session) -> Scope:
        """Return the scope in the session's company.

        Raises:
            Invalid: it names a user and a project; a fact belongs to one of them.
        """
        if self.subject is not None and self.project is not None:
            raise Invalid("A fact is a user's or a project's; give one of --subject and --project.")
        return super().scope(session)

    def owner(self) -> str:
        """Return the id of the owner. Raises `Invalid` if none is named."""
        name = self.project or self.subject or self.agent
        if name is None:
            raise Invalid("Whose facts? Give --subject, --project or --agent.")
        return name

    async def facts(
        self, session: Session, chosen: Filter | None = None
    ) -> tuple[list[Record], BrowseAnswer]:
        """Return the owner's facts that match a filter, and the last page's answer."""
        from memtui.service.usecases.owned import owned_records

        binding = (chosen and chosen.binding_key) or self.binding
        return await owned_records(
            session.service, session.caller, self.scope(session),
            kind=FACT, chosen=chosen, binding_key=binding,
        )  # fmt: skip


@dataclass(frozen=True)
class AddedFact(FactScope, RunOptions):
    """The owner of a fact, its run, and the binding."""


@dataclass(frozen=True, slots=True)
class OperationOptions:
    """Filters of operations, apart from the scope.

    Args:
        operation_type: Only this type.
        status: Only this outcome.
        source_kind: Only this source.
        channel: Only through this channel: cli, tui …
        principal: Only by this principal: user:ana, ana, or agent for every agent. Several: with
            commas.
        text: Every word must occur.
        internal: Include what memtui read for its screens or for another answer.
    """

    operation_type: Annotated[OperationType | None, typer.Option("--type")] = None
    status: OperationStatus | None = None
    source_kind: SourceKind | None = None
    since: Since = None
    until: Until = None
    channel: str | None = None
    principal: str | None = None
    text: str | None = None
    internal: bool = False

    def filter(self, session: Session, line: list[str] | None, scope: ScopeOptions) -> Filter:
        """Return the filter from a line, these options and the scope's options."""
        return filter_of(
            session,
            line,
            FilterTarget.OPERATIONS,
            project_id=scope.project,
            agent_id=scope.agent,
            subject_id=scope.subject,
            issue_id=scope.issue,
            run_id=scope.run,
            binding_key=scope.binding,
            **asdict(self) | {"internal": self.internal or None},
        )


_NAMED_BY: dict[str, tuple[str, ...]] = {
    "issue_comment": ("issue_id", "comment_id"),
    "issue_document": ("issue_id", "document_key"),
    "issue": ("issue_id",),
    "run": ("run_id",),
    "activity": ("activity_id",),
    "external_document": ("external_ref",),
}
"""Fields that identify a source of each kind (seed 000, "Memory source reference")."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The source of a memory.

    Args:
        source: What kind of work object the memory comes from.
        issue_id: The source's issue.
        comment_id: The source's comment.
        document_key: The source's document.
        run_id: The source's run.
        activity_id: The source's activity.
        external_ref: A URL, or a path with an optional :line.
    """

    source: SourceKind = SourceKind.MANUAL_NOTE
    issue_id: str | None = None
    comment_id: str | None = None
    document_key: str | None = None
    run_id: str | None = None
    activity_id: str | None = None
    external_ref: str | None = None

    def reference(self, scope: Scope) -> SourceRef:
        """Return the source reference; a missing issue or run is taken from the scope.

        Raises:
            Invalid: a field that identifies a source of this kind is missing.
        """
        named = asdict(self)
        kind = SourceKind(named.pop("source"))
        needed = _NAMED_BY.get(kind, ())
        named |= {name: getattr(scope, name, None) for name in needed if named[name] is None}
        if any(named[name] is None for name in needed):
            options = " and ".join(f"--{name.replace('_', '-')}" for name in needed)
            raise Invalid(f"A memory from {kind} says which one; give {options}.")
        return build(SourceRef, kind=kind, company_id=scope.company_id, **named)


def filter_of(
    session: Session, line: list[str] | None, target: FilterTarget, **flags: str | bool | None
) -> Filter:
    """Return the filter from a line and flags, for `target`.

    `since` and `until` are read as moments in the session's zone.

    Raises:
        Invalid: a field is unknown, a value is empty or invalid, a term does not apply to the
            target, or line and flag give a field different values.
    """
    given: dict[str, object] = {name: value for name, value in flags.items() if value is not None}
    _refuse_empty(given)
    if not line and not given:
        return Filter()
    for field in {"since", "until"} & given.keys():
        given[field] = session.moment(str(given[field]))
    terms = list(line or ())
    if (who := given.pop("principal", None)) is not None:
        terms.append(f"by:{shlex.quote(str(who))}")
    found = parse_filter(" ".join(terms), now=session.now, zone=session.zone)
    parsed = found.model_dump(exclude_defaults=True)
    if parsed.get("text") and given.get("text"):
        given["text"] = f"{parsed['text']} {given['text']}"
    for one in found.terms:
        if not one.excluded and one.field in given:
            parsed[one.field] = one.values
    for name in parsed.keys() & given.keys() - {"text"}:
        if str(parsed[name]) != str(given[name]):
            raise Invalid(
                f"{_option(name)}: in the filter and its option differ; nothing can be both."
            )
    chosen = build_filter(**parsed | given)
    refuse_unsupported(chosen, target)
    for sentence in taken_for_words(chosen):
        session.out.say(sentence)
    return chosen


def _refuse_empty(given: dict[str, object]) -> None:
    empty = next((_option(name) for name, value in given.items() if value == ""), None)
    if empty is not None:
        raise Invalid(f"The {empty} that is given is empty; name one, or leave it out.")


def _option(name: str) -> str:
    """Return the word of a filter's field."""
    return next((word for word, field in FIELDS.items() if field == name), name)


def json_object(text: str | None, option: str) -> Json:
    """Return the JSON object of an option; None: an empty one.

    Raises:
        Invalid: the text is not a JSON object.
    """
    import json

    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{option} takes a JSON object, and this is not valid JSON.") from error
    if not isinstance(value, dict):
        raise Invalid(f'{option} takes a JSON object such as {{"team": "red"}}.')
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON


def target_id_of(session: Session, target_type: str, target_id: str | None) -> str:
    """Return the id of a target; only the company's may be left out. Raises `Invalid`."""
    if target_type == "company":
        return target_id or session.company.company_id
    if not target_id:
        raise Invalid(f"Name the {target_type}: its id goes after the word {target_type}.")
    return target_id


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Return repeated NAME=VALUE options as a mapping.

    Raises:
        Invalid: one of them has no `=`.
    """
    found: dict[str, str] = {}
    for word in given or ():
        name, sign, value = word.partition("=")
        if not name or not sign:
            raise Invalid(f"{option} takes NAME=VALUE, not {word}.")
        found[name] = value
    return found
