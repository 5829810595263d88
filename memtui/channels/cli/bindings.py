"""`bindings`: which memory serves whom, and other memories found on this machine."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from memtui.channels.cli.input import confirm, confirm_name
from memtui.channels.cli.options import (
    BindingKey,
    ScopeOptions,
    SourceOptions,
    Switch,
    TargetId,
    Yes,
    complete_binding,
    complete_from,
    json_object,
    pairs,
    target_id_of,
)
from memtui.channels.cli.output import Dim, Line, columns, fields, jsonable, table, ticker
from memtui.channels.cli.session import FirstSession, Invocation, Session
from memtui.contract import Conflict, Embedding, Health, Invalid, Json, NotFound, Scope
from memtui.paths import project_here
from memtui.presenters.format import (
    counted,
    embedding_words,
    exact,
    record_count,
    records_words,
    target_words,
)
from memtui.visible import visible
from memtui.wording import unknown

if TYPE_CHECKING:
    from memtui.backends.discovery import DiscoveredMemory
    from memtui.service import BindingHealth, BindingView, Capture
    from memtui.service.home.provider_views import ProviderView
    from memtui.service.operations.namespaces import NamespaceDeleted


TargetType = Annotated[
    Literal["company", "project", "agent"],
    typer.Argument(metavar="TYPE", help="company, project or agent."),
]
ConfigPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A value of its config, which may be JSON; may be repeated.",
    ),
]
Trial = Annotated[
    bool, typer.Option("--try", help="Only open it once, and show its health and what it holds.")
]
ConfigJson = Annotated[str | None, typer.Option("--config", help="Its config as a JSON object.")]


async def bindings_list(session: Session) -> None:
    """List the company's bindings.

    It shows what each one serves and can do.
    """
    views = await session.service.bindings.all(session.caller)
    rows = [
        [
            one.key,
            one.provider_key,
            _state(one),
            ", ".join(map(target_words, one.targets)),
            ", ".join(map(_words, one.captures)),
            ", ".join(one.capabilities.words()),
        ]
        for one in views
    ]
    titles = columns("key", "provider", "state", "serves", "captures", "can*")
    session.out.answer({"bindings": views}, table(titles, rows))


async def bindings_show(session: Session, key: BindingKey) -> None:
    """Show one binding.

    It shows the config with secrets masked, what the provider can do, and the spending limits
    (`memtui budget set binding KEY`).
    """
    from memtui.channels.cli.budget import limits_of

    view = await _view(session, key)
    limits, sentences = await limits_of(session, "binding", key)
    session.out.answer({**jsonable(view), "limits": limits}, _detail(view, sentences))


def _provider_names() -> list[str]:
    from memtui.service.providers import Providers

    return Providers().names()


async def bindings_add(
    session: FirstSession,
    key: str,
    provider: Annotated[str, typer.Argument(autocompletion=complete_from(_provider_names))],
    setting: ConfigPairs = None,
    config: ConfigJson = None,
    *,
    trial: Trial = False,
    read_only: bool = False,
    disabled: bool = False,
    serves: Annotated[str | None, typer.Option(metavar="TARGET")] = None,
    yes: Yes = False,
) -> int:
    """Add a binding to a provider.

    With --try nothing is added; exit 3 if the provider is down. A provider that starts a program
    shows the command and asks first.

    Args:
        key: A short name for it.
        provider: The provider; `memtui bindings providers` lists them.
        read_only: Refuse every change through it.
        disabled: Add it switched off.
        serves: Whom it serves: company, project:ID, agent:ID or nobody; left out: asked on a
            terminal.
    """
    here, given = project_here(), _config(setting, config)
    starts = await _agreed(session, key, provider, given, yes=yes)
    if trial:
        found = await session.service.bindings.trial(
            session.caller, key, provider, given, read_only=read_only, starts=starts
        )
        return _tried(session, key, found)
    if serves is None and sys.stdin.isatty() and not session.out.as_json:
        default = f"project:{here}" if here else "nobody"
        asked = f"Who should {key} serve: company, project:ID, agent:ID or nobody? [{default}]"
        serves = str(typer.prompt(visible(asked), default=default, show_default=False, err=True))
    target = _target(session, serves or "nobody")
    before = await _serving(session, target)
    view = await session.service.bindings.add(
        session.caller,
        key,
        provider,
        given,
        read_only=read_only,
        enabled=not disabled,
        serves=target,
        starts=starts,
    )
    _answer(session, view)
    if target is not None:
        _say_replaced(session, before, key, target)
    else:
        whom = f"project {shlex.quote(here)}" if here else "company"
        served = "this folder's project" if here else "the company"
        session.out.say(
            f"It serves nobody yet: name it with --binding {key}, or let it serve {served} with "
            f"`memtui bindings target set {key} {whom}`."
        )
    return 0


async def _agreed(
    session: Session, key: str, provider: str, config: Json, *, yes: bool
) -> str | None:
    """Return the command that the binding starts, after a yes to it; None: there is none to ask."""
    found = await session.service.bindings.to_agree(session.caller, key, provider, config)
    if found is not None and not yes:
        confirm(f"{key} starts this program, now and whenever it is opened: {found}  Start it?")
    return found


def _target(session: Session, written: str) -> tuple[str, str] | None:
    """Parse whom a binding serves; None: nobody. Raises `Invalid`."""
    sort, _, name = written.strip().partition(":")
    if sort == "nobody" and not name:
        return None
    if sort not in get_args(get_args(TargetType)[0]):
        raise Invalid(f"{written!r} is no target; write company, project:ID, agent:ID or nobody.")
    return sort, target_id_of(session, sort, name or None)


async def _serving(session: Session, target: tuple[str, str] | None) -> str | None:
    """Return the key of the binding that is set for a target."""
    views = await session.service.bindings.all(session.caller) if target else ()
    named = ((one.key, (each.target_type, each.target_id)) for one in views for each in one.targets)
    return next((key for key, served in named if served == target), None)


def _say_replaced(session: Session, before: str | None, key: str, target: tuple[str, str]) -> None:
    if before is not None and before != key:
        sort, name = target
        words, whom = f"the {sort} {name}", f"{sort} {shlex.quote(name)}"
        if sort == "company":
            words, whom = "the company", sort
        session.out.say(
            f"{before} served {words} until now; `memtui bindings target set {before} {whom}` "
            "gives it back."
        )


async def bindings_configure(
    session: FirstSession,
    key: BindingKey,
    setting: ConfigPairs = None,
    config: ConfigJson = None,
    *,
    trial: Trial = False,
    yes: Yes = False,
) -> int:
    """Change a binding's config.

    Values that --set does not name stay; --config replaces all of them. With --try nothing is
    changed; exit 3 if the provider is down. A command that is new is shown, and starts after a yes.
    """
    if setting is None and config is None:
        raise Invalid("Nothing to change; give --set NAME=VALUE or --config JSON.")
    bindings, now = session.service.bindings, await _view(session, key)
    wanted = ({} if config is not None else now.config) | _config(setting, config)
    starts = await _agreed(session, key, now.provider_key, wanted, yes=yes)
    if trial:
        found = await bindings.trial(
            session.caller, key, now.provider_key, wanted, read_only=now.read_only,
            configures=True, starts=starts,
        )  # fmt: skip
        return _tried(session, key, found)
    _answer(session, await bindings.update(session.caller, key, config=wanted, starts=starts))
    return 0


def _tried(session: Session, key: str, found: Health) -> int:
    first = [Dim(f"  {visible(one)}") for one in found.first]
    session.out.answer(found, [_health_line(key, found), *first])
    return 3 if found.status == "down" else 0


async def bindings_remove(session: Session, key: BindingKey, *, yes: Yes = False) -> None:
    """Remove a binding.

    The memories stay where they are.
    """
    await _view(session, key)
    if not yes:
        confirm(f"Remove the binding {key}? Its memories stay where they are.")
    await session.service.bindings.remove(session.caller, key)
    session.out.answer({"removed": key}, [f"removed {key}"])


async def bindings_enable(session: Session, key: BindingKey) -> None:
    """Switch a binding on."""
    _answer(session, await session.service.bindings.update(session.caller, key, enabled=True))


async def bindings_disable(session: Session, key: BindingKey) -> None:
    """Switch a binding off.

    No scope resolves to it then.
    """
    _answer(session, await session.service.bindings.update(session.caller, key, enabled=False))


async def bindings_read_only(session: Session, key: BindingKey, switch: Switch) -> None:
    """Refuse or allow changes through a binding."""
    view = await session.service.bindings.update(session.caller, key, read_only=switch == "on")
    _answer(session, view)


OnOff = Literal["on", "off"]


async def bindings_capture(
    session: FirstSession,
    key: BindingKey,
    *,
    post_run: OnOff | None = None,
    comments: OnOff | None = None,
    documents: OnOff | None = None,
) -> None:
    """Choose what hooks may write to a binding by themselves.

    They may write nothing until an option turns it on. Without an option it shows what is on.

    Args:
        post_run: A note of each run, from `memtui hook post-run`.
        comments: Comments of issues, from `memtui hook comment`.
        documents: Documents of issues, from `memtui hook document`.
    """
    from memtui.service import Capture

    given = {
        Capture.POST_RUN: post_run,
        Capture.COMMENTS: comments,
        Capture.DOCUMENTS: documents,
    }
    capture = {one: switch == "on" for one, switch in given.items() if switch is not None}
    view = await _view(session, key)
    if capture:
        view = await session.service.bindings.update(session.caller, key, capture=capture)
    document = {"key": view.key, **{one.value: one in view.captures for one in Capture}}
    lines = fields(*((_words(one), "on" if one in view.captures else "off") for one in Capture))
    session.out.answer(document, lines)


def _words(capture: Capture) -> str:
    return capture.replace("_", "-")


Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="The address, such as `https://api.openai.com`."),
]


async def bindings_embedding(
    session: FirstSession,
    key: BindingKey,
    *,
    build: bool = False,
    allow: Address = None,
    disallow: Address = None,
    background: OnOff | None = None,
) -> int:
    """Show how many texts of a binding are embedded, so that they are found by meaning.

    The model is the binding's setting `embedding`. --allow agrees that texts, without their
    secrets, are sent to another machine for embedding; --disallow withdraws that. Exit 1 if --build
    did not finish because another program is embedding.

    Args:
        build: Embed all texts that have no vector yet.
        background: Whether the app embeds new texts automatically.
    """
    service = session.service
    if disallow is not None:
        await service.embedding.agree(session.caller, key, disallow, agreed=False)
    if allow is not None:
        await service.embedding.agree(session.caller, key, allow)
    if background is not None:
        await service.bindings.update(session.caller, key, embeds=background == "on")
    found = await service.embedding.state(session.caller, key)
    if build:
        if not found.agreed and sys.stdin.isatty():
            confirm(f"The texts of {key} go to {found.address}, without their secrets. Send them?")
            await service.embedding.agree(session.caller, key, found.address or "")
        found = await _embedded(session, key)
    view = await _view(session, key)
    lines = fields(
        ("key", key),
        ("embedding", embedding_words(found)),
        ("dimensions", str(found.dimensions or "")),
        ("texts go to", found.address or "this machine"),
        ("agreed to", ", ".join(view.agreed)),
        ("in the background", "on" if view.embeds else "off"),
    )
    document = {"key": key, "embeds": view.embeds, "agreed": view.agreed, "embedding": found}
    how = f"memtui bindings embedding {key} --allow {found.address} lets texts go there."
    session.out.answer(document, lines, *([] if found.agreed else [how]))
    return 1 if build and not found.is_done else 0


async def _embedded(session: Session, key: str) -> Embedding:
    with ticker() as show:
        return await session.service.embedding.build(
            session.caller, key, lambda found: show(embedding_words(found))
        )


async def bindings_target_set(
    session: FirstSession, key: BindingKey, target_type: TargetType, target_id: TargetId = None
) -> None:
    """Let a binding serve a target.

    A target is the whole company, a project or an agent.
    """
    target = target_type, target_id_of(session, target_type, target_id)
    before = await _serving(session, target)
    await session.service.bindings.set_target(session.caller, *target, key)
    _answer(session, await _view(session, key))
    _say_replaced(session, before, key, target)


async def bindings_target_clear(
    session: Session, target_type: TargetType, target_id: TargetId = None
) -> None:
    """Remove the binding of a target.

    The target then resolves to the next binding: the agent's, or the company's.
    """
    named = target_id_of(session, target_type, target_id)
    await session.service.bindings.clear_target(session.caller, target_type, named)
    session.out.answer(
        {"cleared": {"target_type": target_type, "target_id": named}},
        [f"cleared {target_type} {named}"],
    )


async def _view(session: Session, key: str) -> BindingView:
    """Return the binding. Raises `NotFound`, which names near keys."""
    views = await session.service.bindings.all(session.caller)
    for view in views:
        if view.key == key:
            return view
    raise NotFound(unknown("binding", key, [view.key for view in views]))


def _answer(session: Session, view: BindingView) -> None:
    session.out.answer(view, _detail(view))


def _detail(view: BindingView, more: Sequence[tuple[str, str]] = ()) -> Iterator[Line]:
    yield from fields(
        ("key", view.key),
        ("provider", view.provider_key),
        ("state", _state(view)),
        ("serves", ", ".join(map(target_words, view.targets))),
        ("captures", ", ".join(map(_words, view.captures))),
        ("can", ", ".join(view.capabilities.words())),
        ("config", json.dumps(view.config, ensure_ascii=False, default=str)),
        ("id", view.binding_id),
        *more,
    )


def _state(view: BindingView) -> str:
    words = ["on" if view.enabled else "off"]
    words += ["read-only"] if view.read_only else []
    return ", ".join([*words, "shared with another company"] if view.shared else words)


def _config(setting: list[str] | None, config: str | None) -> Json:
    """Return a config: the JSON object, overridden by each NAME=VALUE."""
    return json_object(config, "--config") | {
        name: _value(text) for name, text in pairs(setting, "--set").items()
    }


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def bindings_resolve(session: Session, scope: ScopeOptions) -> None:
    """Show which binding serves a scope, and why."""
    found = await session.service.resolve(session.caller, scope.scope(session), scope.binding)
    session.out.answer(found, [f"{found.binding_key}  {found.provider_key}  {found.reason}"])


async def bindings_health(
    session: Session,
    key: Annotated[str | None, typer.Argument(autocompletion=complete_binding)] = None,
) -> int:
    """Ask bindings whether they can serve now.

    Exit 3 if one is down.

    Args:
        key: The binding; left out: all that are on.
    """
    if key is None:
        views = await session.service.bindings.all(session.caller)
        keys = [view.key for view in views if view.enabled]
    else:
        keys = [key]
    answers = [await session.service.bindings.health(session.caller, each) for each in keys]
    session.out.answer({"health": answers}, _health(answers))
    return 3 if any(answer.health.status == "down" for answer in answers) else 0


async def bindings_providers(
    invocation: Invocation, key: Annotated[str | None, typer.Argument(metavar="PROVIDER")] = None
) -> int:
    """Show what the installed providers open, their settings and their abilities.

    It says why a provider cannot be used; exit 1 if that is PROVIDER.

    Args:
        key: The provider to show in full; left out: all, one a line.
    """
    from memtui.service.providers import Providers
    from memtui.threads import use_loose_threads

    use_loose_threads()  # a third-party import may hang
    timeout_ms = invocation.settings().provider_timeout_ms
    installed = Providers(timeout_ms=timeout_ms, is_demo=invocation.paths().is_demo)
    if key is not None:
        found = await installed.view(key)
        invocation.out.answer(found, _provider(found))
        return 0 if found.usable else 1
    views = [await installed.view(name) for name in installed.names()]
    rows = [
        [one.key, _package(one), one.opens if one.usable else f"✗ {one.problem}"] for one in views
    ]
    titles = columns("provider", "package", "opens*")
    taken = (one.problem or "" for one in views if one.usable)
    invocation.out.answer({"providers": views}, table(titles, rows), *taken)
    return 0


def _package(view: ProviderView) -> str:
    return f"{view.package} {view.version or ''}".rstrip()


def _provider(view: ProviderView) -> Iterator[Line]:
    able = view.capabilities
    yield from fields(
        ("provider", view.key),
        ("package", _package(view)),
        ("problem", view.problem or ""),
        ("opens", view.opens),
        ("about", view.about),
        ("can", ", ".join(able.words()) if able else ""),
    )
    for one in view.config:
        if one.required:
            default = "needed"
        elif one.default in (None, "", [], {}):
            default = "not needed"
        else:
            default = f"default {json.dumps(one.default, ensure_ascii=False)}"
        yield f"--set {one.name}=…  {one.words}; {default}"
        if one.help:
            yield Dim(f"  {one.help}")


async def bindings_sync(session: Session, key: BindingKey, part: SourceOptions) -> None:
    """Let a provider read its source again, or rebuild its index and vectors.

    The source options name the part to read, for a provider that reads parts; without them it reads
    everything.
    """
    scope = Scope(company_id=session.company.company_id)
    source = None if part == SourceOptions() else part.reference(scope)
    reply = await session.service.sync(session.caller, key, source)
    words = f"saw {reply.seen}, changed {reply.changed}, removed {reply.removed}"
    health = (await session.service.bindings.health(session.caller, key)).health
    if health.embedding is not None and health.embedding.agreed:
        words += f", {embedding_words(await _embedded(session, key))}"
    session.out.answer(reply, [words])


async def bindings_namespaces(session: Session, key: BindingKey) -> None:
    """List the namespaces of a provider."""
    found = await session.service.namespaces.all(session.caller, key)
    rows = [
        [
            one.kind,
            one.name,
            record_count(one),
            exact(one.expires_at, session.zone) if one.expires_at else "",
        ]
        for one in found
    ]
    titles = columns("kind", "name", "records>", "expires>")
    session.out.answer({"namespaces": found}, table(titles, rows))


def _health(answers: list[BindingHealth]) -> Iterator[Line]:
    for answer in answers:
        waiting = "resting after failures" if answer.breaker_open else ""
        yield _health_line(answer.key, answer.health, waiting)
        for problem in answer.health.problems:
            yield Dim(f"  {problem.sentence()}")


def _health_line(key: str, found: Health, *more: str) -> str:
    records = "" if found.records is None else counted(found.records, "record")
    meaning = embedding_words(found.embedding) if found.embedding else ""
    words = [key, found.status, records, found.message, meaning, *more]
    return "  ".join(word for word in words if word)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The namespace, such as workspace:web.")]


async def bindings_namespace_put(
    session: Session,
    key: BindingKey,
    name: Name,
    *,
    expires: Annotated[str | None, typer.Option(metavar="WHEN")] = None,
) -> None:
    """Make a namespace, or set its expiry.

    Without --expires it never expires, and an expiry that it had is removed.

    Args:
        expires: When it expires: 30d, 2027-01-31; left out: never. Some providers then hide its
            records, others keep them.
    """
    moment = session.ahead(expires or None)
    made = await session.service.namespaces.put(session.caller, key, name, expires_at=moment)
    until = exact(made.expires_at, session.zone) if made.expires_at else "never"
    lines = fields(("name", made.name), ("kind", made.kind), ("expires", until))
    session.out.answer(made, lines)


async def bindings_namespace_delete(
    session: Session,
    key: BindingKey,
    name: Name,
    *,
    confirm: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    unseen: bool = False,
) -> None:
    """Delete a namespace with all its records.

    The records are forgotten first, and undo brings them back. Exit 5 if it holds more records than
    can be listed, unless --unseen is given.

    Args:
        confirm: The name again, instead of typing it when asked.
        unseen: Delete it even if it holds records that cannot be listed and brought back.
    """
    warning = ""
    if confirm is None:
        there = {one.name: one for one in await session.service.namespaces.all(session.caller, key)}
        if name not in there:
            raise NotFound(f"{key} has no namespace {name} that memtui knows of.")
        warning = f"This removes {name} and {records_words(there[name])}."
    confirm_name(name, confirm, warning, "--confirm")
    try:
        gone = await session.service.namespaces.delete(session.caller, key, name, unseen=unseen)
    except Conflict as error:
        if unseen:
            raise
        raise Conflict(f"{error} Add --unseen to remove them too.") from error
    session.out.answer(gone, _deleted(gone))


def _deleted(gone: NamespaceDeleted) -> Iterator[Line]:
    more = ", and more that were not listed" if gone.at_least else ""
    yield f"removed {gone.name} with {counted(gone.records, 'record')}{more}"
    if gone.forget_operation_id is not None:
        yield f"memtui undo {gone.forget_operation_id} brings the listed records back"


async def bindings_discover(
    invocation: Invocation,
    *,
    add: Annotated[list[str] | None, typer.Option(metavar="KEY")] = None,
    add_all: bool = False,
) -> int:
    """List the memories found on this machine.

    It adds nothing without --add or --add-all. What it adds is read-only until `memtui bindings
    read-only KEY off`. Memory servers of MCP clients come with the command that binds them.

    Args:
        add: Add this one as a read-only binding; repeatable.
        add_all: Add all that can be opened and are not yet bound.
    """
    import asyncio

    from memtui.backends.discovery import discover_here
    from memtui.channels.mcp.wrapping import servers_to_bind

    findings = await asyncio.to_thread(discover_here)
    servers = await asyncio.to_thread(servers_to_bind, Path.home())
    wanted = [_named(findings, key) for key in add or ()]
    adds = add_all or bool(add)
    added: list[BindingView] = []
    problems: tuple[str, ...] = ()
    bound: dict[str, str] = {}
    if adds or invocation.paths().is_begun or invocation.settings().database_url:
        async with invocation.session(make=adds) as session:
            service, caller = session.service.bindings, session.caller
            for each in wanted:
                new = each.key, each.provider, each.config
                added.append(await service.add(caller, *new, read_only=True))
            if add_all:
                done = await service.add_found(caller, findings)
                added, problems = [*added, *done.added], done.problems
            bound = _bound(findings, await service.all(caller))
    document = {
        "findings": [
            jsonable(each) | {"usable": each.usable, "binding_key": bound.get(each.key)}
            for each in findings
        ],
        "servers": servers,
        "added": [view.key for view in added],
        "problems": list(problems),
    }
    notices = [f"Added {view.key}, read-only." for view in added]
    if not adds and any(each.usable and each.key not in bound for each in findings):
        notices.append("--add KEY adds one of them as a read-only binding, --add-all adds all.")
    invocation.out.answer(document, _lines(findings, bound, servers), *notices, *problems)
    return 1 if problems else 0


def _named(findings: Sequence[DiscoveredMemory], key: str) -> DiscoveredMemory:
    """Return the usable finding with this key. Raises `NotFound` or `Invalid`."""
    for finding in findings:
        if finding.key == key:
            if finding.usable:
                return finding
            raise Invalid(f"{key} cannot be opened: {' '.join(finding.problems)}")
    known = ", ".join(finding.key for finding in findings if finding.usable)
    raise NotFound(f"Nothing was found under {key}; found are: {known or 'none'}.")


def _bound(findings: Sequence[DiscoveredMemory], views: Sequence[BindingView]) -> dict[str, str]:
    """Return the bindings that read findings already, by finding key."""
    return {
        finding.key: view.key
        for finding in findings
        for view in sorted(views, key=lambda one: one.provider_key == finding.provider)
        if finding.is_read_by(view.provider_key, view.config)
    }


def _lines(
    findings: Sequence[DiscoveredMemory], bound: dict[str, str], servers: Sequence[Json]
) -> Iterator[Line]:
    if not (findings or servers):
        yield "no memories were found outside memtui"
    for finding in findings:
        about = "about " if finding.estimated else ""
        size = "" if finding.records is None else counted(finding.records, "record")
        records = f"  {about}{size}" if size else ""
        state = f"  bound as {bound[finding.key]}" if finding.key in bound else ""
        yield f"{finding.key}  {finding.title}{records}{state}"
        yield Dim(f"  {finding.path}  {finding.why}")
        for problem in finding.problems:
            yield Dim(f"  {problem}")
    for one in servers:
        needs = f"; its client gives it {', '.join(one['needs'])}" if one["needs"] else ""
        yield f"{one['server']}  MCP server of {one['client']}{needs}"
        yield Dim(f"  {one['command']}")
