"""`companies`: whose memory this is, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.channels.cli.input import confirm_name
from memtui.channels.cli.options import Switch, complete_name, pairs
from memtui.channels.cli.output import Line, columns, fields, jsonable, table
from memtui.channels.cli.records import say_unknown_of_operations
from memtui.channels.cli.session import FirstSession, Session, build
from memtui.contract import Filter, Invalid, SourceKind
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service import Caller, CompanyView


Links = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND=URL",
        help="Address that opens a source of this kind, with parts such as {issue_id}; repeatable.",
    ),
]


async def companies_list(session: Session) -> None:
    """List the companies of this home that you may enter."""
    own = session.caller.principal, session.caller.acts_for
    companies = await session.service.companies.all(*own)
    rows = [[one.company_id, one.name, "read-only" if one.read_only else ""] for one in companies]
    session.out.answer({"companies": companies}, table(columns("id", "name", "access"), rows))


async def companies_add(
    session: FirstSession,
    company_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    name: str | None = None,
    link: Links = None,
    read_only: bool = False,
) -> None:
    """Add a company.

    Args:
        company_id: Its id, used in scopes.
        name: Its name for people; left out: the id.
        read_only: Refuse every change in it.
    """
    caller = _in(session, company_id)
    company = await session.service.companies.add(
        caller, name or company_id, link_templates=pairs(link, "--link"), read_only=read_only
    )
    session.out.answer(company, [company.company_id])


CompanyId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="Its id; left out: the company that you work in."),
]


async def companies_show(session: Session, company_id: CompanyId = None) -> None:
    """Show one company: its name, its access, its spending limits and its link templates."""
    from memtui.channels.cli.budget import limits_of

    company = await session.service.companies.get(_in(session, company_id))
    there = replace(session, caller=_in(session, company_id))
    limits, sentences = await limits_of(there, "company", company.company_id)
    session.out.answer({**jsonable(company), "limits": limits}, _detail(company, sentences))


async def companies_configure(
    session: FirstSession,
    company_id: CompanyId = None,
    *,
    name: str | None = None,
    link: Links = None,
    no_link: Annotated[list[SourceKind] | None, typer.Option(metavar="KIND")] = None,
    second_yes: Annotated[
        Literal["on", "off"] | None,
        typer.Option(help=shown.ABOUT_SECOND_YES),
    ] = None,
) -> None:
    """Change a company's name, its link templates, and whether changes need a second person.

    Options left out change nothing; `memtui undo` undoes it. A link template is an address with
    parts of a source in braces, as in `--link 'issue=https://tracker.example/{issue_id}'`.

    Args:
        name: Its name for people.
        no_link: Remove the link template of this kind.
    """
    links = pairs(link, "--link")
    if both := sorted(links.keys() & set(no_link or ())):
        raise Invalid(f"--link and --no-link both name {both[0]}; give one of them.")
    company = await session.service.companies.update(
        _in(session, company_id),
        name=name,
        link_templates={**links, **dict.fromkeys(no_link or (), "")},
        second_yes=None if second_yes is None else second_yes == "on",
    )
    session.out.answer(company, _detail(company))


def _in(session: Session, company_id: str | None) -> Caller:
    """Return the caller in the company of this id; None: in the current company."""
    if company_id is None:
        return session.caller
    return session.caller.model_copy(update={"company_id": company_id})


def _detail(company: CompanyView, more: Sequence[tuple[str, str]] = ()) -> Iterator[Line]:
    links = company.link_templates
    yield from fields(
        ("id", company.company_id),
        ("name", company.name),
        ("access", "read-only" if company.read_only else "open for changes"),
        ("second yes", shown.second_yes(company)),
        *((f"{kind} opens", links[kind]) for kind in SourceKind if kind in links),
        *more,
    )


async def companies_read_only(
    session: Session, company_id: Annotated[str, typer.Argument(metavar="ID")], switch: Switch
) -> None:
    """Refuse every change in a company, or allow them again.

    A read-only company can still be read, its archive sealed and fetched, and a company made by an
    import extended by another import, or removed.

    Args:
        company_id: Its id.
    """
    caller = _in(session, company_id)
    company = await session.service.companies.set_read_only(caller, read_only=switch == "on")
    access = "read-only" if company.read_only else "open for changes"
    session.out.answer(company, [f"{company.company_id} is {access}"])


async def companies_remove(
    session: Session,
    company_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    confirm: Annotated[str | None, typer.Option(metavar="ID")] = None,
) -> None:
    """Remove a company that an import made.

    It deletes the company's operations for good, including sealed ones and their copy in the object
    store: no undo brings them back, but the log can be imported again. Your own company logs it.

    Args:
        company_id: Its id.
        confirm: The id again, instead of typing it when asked.
    """
    warning = ""
    if confirm is None:
        there = await session.service.companies.content(_in(session, company_id))
        what = shown.counted(there.operations, "operation")
        warning = f"This removes {there.name} and {what} for good."
    confirm_name(company_id, confirm, warning, "--confirm")
    gone = await session.service.companies.remove(session.caller, company_id)
    what = shown.counted(gone.operations, "operation")
    session.out.answer(gone, [f"removed {company_id} with {what}; its log is gone"])


RoleName = Literal["owner", "admin", "member"]
Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="The person, as in the operation log: user:ana.")
]
Project = Annotated[
    str | None,
    typer.Option(
        help="In this project only; left out: in the whole company.",
        autocompletion=complete_name("project"),
    ),
]


async def companies_members_list(session: Session) -> None:
    """List the company's members and their roles.

    Until there is one, everybody who can open the database may do everything.
    """
    members = await session.service.members.all(session.caller)
    titles = columns("principal", "role", "project", "user")
    rows = [[m.principal, m.role, m.project_id or "all", m.subject_id or ""] for m in members]
    none = "" if members else "There are no members, so everyone may do everything."
    session.out.answer({"members": members}, table(titles, rows), none)


async def companies_members_add(
    session: FirstSession,
    principal: Principal,
    *,
    role: RoleName = "member",
    project: Project = None,
    subject: str | None = None,
) -> None:
    """Give a person a role.

    It replaces the person's earlier role there. The first member must be an owner of the whole
    company; from then on roles apply.

    Args:
        role: What the person may do.
        subject: The person's user id in memories; default: ana for user:ana.
    """
    from memtui.service import Membership

    member = build(
        Membership, principal=principal, role=role, project_id=project, subject_id=subject
    )
    own, members = session.caller.principal, session.service.members
    is_first = not await members.all(session.caller)
    given = await members.set(session.caller, member)
    locked_out = (
        f"From now on only members may enter, and {own} is not one; with --principal {principal} "
        "you are the owner."
    )
    session.out.answer(given, [principal], locked_out if is_first and principal != own else "")


async def companies_members_remove(
    session: Session, principal: Principal, *, project: Project = None
) -> None:
    """Remove a person's role."""
    await session.service.members.remove(session.caller, principal, project)
    session.out.answer({"removed": principal, "project_id": project}, [principal])


Label = Annotated[str, typer.Argument(metavar="LABEL", help="Its name among the company's tokens.")]


async def companies_tokens_list(session: Session) -> None:
    """List the company's bearer tokens.

    The tokens themselves are not stored.
    """
    tokens = await session.service.tokens.all(session.caller)
    rows = [
        [
            t.label, t.principal, t.acts_for or "", t.project_id or "any",
            shown.ago(t.created_at, session.now),
        ]
        for t in tokens
    ]  # fmt: skip
    titles = columns("label", "principal", "acts for", "project", "made>")
    session.out.answer({"tokens": tokens}, table(titles, rows))


async def companies_tokens_add(
    session: FirstSession,
    label: Label,
    *,
    holder: Annotated[str, typer.Option("--for", metavar="PRINCIPAL")],
    acts_for: Annotated[str | None, typer.Option(metavar="PRINCIPAL")] = None,
    project: Annotated[str | None, typer.Option(autocompletion=complete_name("project"))] = None,
) -> None:
    """Make a bearer token and print it.

    It cannot be shown again.

    Args:
        holder: The token's holder, such as user:ana.
        acts_for: The person on whose behalf an agent acts.
        project: The only project whose memories the token may reach.
    """
    token = await session.service.tokens.add(
        session.caller, label, holder, acts_for=acts_for, project_id=project
    )
    members = await session.service.members.all(session.caller)
    session.out.answer(
        token,
        [token.token],
        "Keep it now; it cannot be shown again.",
        _opens_nothing(holder, acts_for, {one.principal for one in members}),
    )
    if project is not None:
        await say_unknown_of_operations(session, Filter(project_id=project))


def _opens_nothing(holder: str, acts_for: str | None, members: set[str]) -> str:
    """Return a warning if a token's holder has no role in a company with members; else empty."""
    person = acts_for if holder.startswith("agent:") else holder
    if not members or person in members:
        return ""
    if person is None:
        return f"{holder} acts for no member, so it opens nothing; name one with --acts-for."
    return (
        f"{person} is no member, so it opens nothing before "
        f"`memtui companies members add {person}`."
    )


async def companies_tokens_remove(session: Session, label: Label) -> None:
    """Revoke a bearer token."""
    await session.service.tokens.remove(session.caller, label)
    session.out.answer({"removed": label}, [label])
