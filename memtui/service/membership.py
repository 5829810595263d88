"""Members, roles and tokens: who there is, and changing it. Every change is an operation."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from memtui.contract import (
    Denied,
    Filter,
    Invalid,
    Model,
    NotFound,
    OperationType,
    Scope,
    UtcDatetime,
    owner_scope,
)
from memtui.service.answers import AGENT_PREFIX, USER_PREFIX, Caller
from memtui.service.companies import find
from memtui.service.configuring import configured, refuse_read_only, write
from memtui.service.core import Core
from memtui.service.permissions import (
    Action,
    Membership,
    Role,
    held_by,
    membership,
    person_of,
    refusal,
)
from memtui.service.recorder import Entry
from memtui.store import bindings
from memtui.store import members as table
from memtui.store.tables import MemberRow, TokenRow

REVOKED = "A token that was revoked stays revoked; `memtui tokens add` makes another one."


class TokenView(Model):
    """A token as a person sees it; the token itself is not kept."""

    label: str
    principal: str
    acts_for: str | None = None
    created_at: UtcDatetime


class NewToken(TokenView):
    """A token at the only moment when it can be read."""

    token: str


async def members(core: Core, caller: Caller) -> list[Membership]:
    """Return the company's members, to a member.

    Raises:
        Denied: the caller is none.
    """

    def read() -> list[Membership]:
        core.sight(caller)
        with core.database.read() as database:
            return [membership(row) for row in table.members(database, caller.company_id)]

    return await asyncio.to_thread(read)


async def own_subject(core: Core, caller: Caller) -> str:
    """Return the user that a person's membership names, and else the user of their own name.

    It is told to strangers too: what they then ask is refused, and logged as that.
    """
    person = person_of(caller) or caller.principal

    def read() -> list[MemberRow]:
        with core.database.read() as database:
            return table.roles_of(database, caller.company_id, person) or []

    named = [row.subject_id for row in await asyncio.to_thread(read) if row.subject_id]
    return named[0] if named else person.removeprefix(USER_PREFIX)


async def set_member(core: Core, caller: Caller, member: Membership) -> Membership:
    """Give a principal a role and return it; a company with members always has an owner.

    Where no subject is named the person's memories are those of the user of their own name, unless
    they are somebody else's already: `ana` for `user:ana`. The first owner opens a company that a
    repair left read-only.

    Raises:
        Invalid: no owner of the whole company would be left, or the principal is an agent.
        Denied: the caller may not change the settings.
    """
    asked = {"set_member": member.principal, "role": member.role, "project_id": member.project_id}
    async with configured(core, caller, asked, in_read_only=True) as entry:
        if member.principal.startswith(AGENT_PREFIX):
            raise Invalid("An agent acts for a person and is no member; add the person.")
        known = await members(core, caller)
        opens = not known and await awaits_owner(core, caller.company_id)
        if not opens:
            await refuse_read_only(core, caller.company_id)
        member = _with_subject(member, known)
        if not _owners([*_without(known, member.principal, member.project_id), member]):
            raise Invalid(
                f"{member.principal} is the last owner; make somebody else one first."
                if known
                else "The first member must be an owner of the whole company; add one first."
            )
        row = MemberRow(
            company_id=caller.company_id,
            principal=member.principal,
            project_id=member.project_id or "",
            role=member.role,
            subject_id=member.subject_id,
        )

        def add(database: Connection) -> None:
            table.set_member(database, row)
            if opens:
                bindings.set_read_only(database, caller.company_id, read_only=False)

        await write(core, entry, add)
    return member


def _with_subject(member: Membership, known: Sequence[Membership]) -> Membership:
    if member.subject_id is not None:
        return member
    named = [one for one in known if one.subject_id]
    own = next((one.subject_id for one in named if one.principal == member.principal), None)
    subject = own or member.principal.removeprefix(USER_PREFIX)
    taken = any(one.subject_id == subject and one.principal != member.principal for one in named)
    return member if taken else member.model_copy(update={"subject_id": subject})


async def awaits_owner(core: Core, company_id: str) -> bool:
    """Whether a repair left the company read-only until it has an owner again."""
    if not (await find(core, company_id)).read_only:
        return False
    repairs = Filter(operation_type=OperationType.REPAIR)
    page = await asyncio.to_thread(
        lambda: core.log.page(company_id, repairs, limit=1, before=None, after=None, sight=None)
    )
    return page.total > 0


async def remove_member(core: Core, caller: Caller, principal: str, project_id: str | None) -> None:
    """Take a role away; the last owner stays as long as there are other members.

    Raises:
        NotFound: the principal has no such role.
        Invalid: it is the last owner.
    """
    asked = {"remove_member": principal, "project_id": project_id}
    async with configured(core, caller, asked) as entry:
        known = await members(core, caller)
        left = _without(known, principal, project_id)
        if len(left) == len(known):
            raise NotFound(f"{principal} has no such role; `memtui members list` shows the roles.")
        if left and not _owners(left):
            raise Invalid(f"{principal} is the last owner; make somebody else one first.")
        await write(
            core,
            entry,
            lambda database: table.remove_member(
                database, caller.company_id, principal, project_id or ""
            ),
        )


def _without(
    known: Sequence[Membership], principal: str, project_id: str | None
) -> list[Membership]:
    place = principal, project_id or None
    return [member for member in known if (member.principal, member.project_id or None) != place]


def _owners(known: Sequence[Membership]) -> list[Membership]:
    """The owners of the whole company, without whom nobody could change its settings again."""
    return [m for m in known if m.role is Role.OWNER and not m.project_id]


async def tokens(core: Core, caller: Caller) -> list[TokenView]:
    """Return the company's tokens, the oldest first: all to its managers, others their own.

    Raises:
        Denied: the caller is no member.
    """

    def read() -> list[TokenView]:
        sight = core.sight(caller)
        with core.database.read() as database:
            rows = table.tokens(database, caller.company_id)
        return [
            _token_view(row)
            for row in rows
            if sight is None or sight.manages or sight.person in {row.principal, row.acts_for}
        ]

    return await asyncio.to_thread(read)


async def add_token(
    core: Core, caller: Caller, label: str, principal: str, acts_for: str | None
) -> NewToken:
    """Make a bearer token for a principal; an agent's names the person it acts for.

    Raises:
        Conflict: the label is taken.
    """
    asked = {"add_token": label, "principal": principal, "acts_for": acts_for}
    async with configured(core, caller, asked) as entry:
        if not label.strip() or not principal.strip():
            raise Invalid("A token needs a label and a principal.")
        secret = f"memtui_{secrets.token_urlsafe(32)}"
        row = TokenRow(
            digest=_digest(secret),
            company_id=caller.company_id,
            label=label,
            principal=principal,
            acts_for=acts_for,
            created_at=core.clock(),
        )
        await write(core, entry, lambda database: table.add_token(database, row))
    return NewToken(**dict(_token_view(row)), token=secret)


async def remove_token(core: Core, caller: Caller, label: str) -> None:
    """Revoke a token.

    Raises:
        NotFound: there is none of this label.
    """
    async with configured(core, caller, {"remove_token": label}) as entry:
        entry.lasting = REVOKED

        def remove(database: Connection) -> None:
            if not table.remove_token(database, caller.company_id, label):
                raise NotFound(f"There is no token {label}; `memtui tokens list` shows them.")

        await write(core, entry, remove)


async def authenticate(core: Core, secret: str, door: str) -> Caller:
    """Return the caller that a bearer token stands for.

    Raises:
        Denied: it is no token of ours.
    """

    def read() -> TokenRow | None:
        with core.database.read() as database:
            return table.token(database, _digest(secret))

    row = await asyncio.to_thread(read)
    if row is None:
        raise Denied("The bearer token is not known here; make one with `memtui tokens add`.")
    return Caller(
        company_id=row.company_id, principal=row.principal, acts_for=row.acts_for, door=door
    )


async def may_change(core: Core, entry: Entry, scopes: Iterable[Scope]) -> None:
    """Hold the change of records, each named by its own scope, against the roles.

    The scope of a request is not enough: what it shows may belong to others, as a project's shows
    the company's records too.

    Raises:
        Denied: the caller may not change one of them.
    """

    def read() -> list[MemberRow] | None:
        with core.database.read() as database:
            person = person_of(entry.caller)
            return table.roles_of(database, entry.caller.company_id, person)

    rows = await asyncio.to_thread(read)
    if rows is None:
        return
    held = held_by(rows, entry.caller)
    for scope in dict.fromkeys(map(owner_scope, scopes)):
        if (why := refusal(held, Action.DELETE, scope)) is not None:
            raise Denied(why)


def _token_view(row: TokenRow) -> TokenView:
    return TokenView(
        label=row.label,
        principal=row.principal,
        acts_for=row.acts_for,
        created_at=row.created_at,
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
