"""Members, roles and tokens. Every change is an operation."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence

from memtui.contract import Denied, Invalid, Model, NotFound, UtcDatetime
from memtui.service.home.companies import awaits_owner
from memtui.service.runtime import ServiceModule, check_target_id, find_company, to_its_end
from memtui.service.visibility import (
    AGENT_PREFIX,
    USER_PREFIX,
    Caller,
    Membership,
    Role,
    membership,
    own_subject,
    person_of,
)
from memtui.store import bindings
from memtui.store.database import DatabaseConnection
from memtui.store.details import SettingDetails
from memtui.store.rows import MemberRow, TokenRow
from memtui.threads import in_thread
from memtui.wording import bare

REVOKED = "A token that was revoked stays revoked; `memtui companies tokens add` makes another one."
_NO_OWNER = "The first member must be an owner of the whole company; add one first."
_NO_OWNER_LEFT = "{} is the last owner; make somebody else one first."


class TokenView(Model):
    """A token without its secret, which is not stored."""

    label: str
    principal: str
    acts_for: str | None = None
    project_id: str | None = None
    """The only project that it gives access to; None: any."""
    created_at: UtcDatetime


class NewToken(TokenView):
    """A new token with its secret, which cannot be read again."""

    token: str


class Members(ServiceModule):
    """The members of companies and their roles."""

    @in_thread
    def all(self, caller: Caller) -> list[Membership]:
        """Return the company's members; empty: everybody may see and do everything.

        Raises:
            Denied: the company has members, and the caller is not one.
        """
        self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            return _members(database, caller.company_id)

    @in_thread
    def own_subject(self, caller: Caller) -> str:
        """Return the `subject_id` of the caller's memories; for an agent, of its person's.

        It is the subject of the membership, else the person's name. Callers who are not members
        are not refused here, but in their later operations, where that is logged.
        """
        person = person_of(caller) or caller.principal
        with self._runtime.database.read() as database:
            rows = bindings.roles_of(database, caller.company_id, person) or []
        return own_subject(map(membership, rows), caller)

    @to_its_end
    async def set(self, caller: Caller, member: Membership) -> Membership:
        """Give a principal a role and return it; a company with members always has an owner.

        Without a subject the member gets the user of their name (`ana` for `user:ana`), unless
        somebody else has it already. The first owner opens a company that a repair left read-only.

        Raises:
            Invalid: no owner of the whole company would be left, or the principal is an agent.
            Denied: the caller may not change the settings.
        """
        runtime, company_id = self._runtime, caller.company_id
        asked = SettingDetails(
            set_member=member.principal, role=member.role, project_id=member.project_id
        )
        async with runtime.configured(caller, asked, in_read_only=True) as entry:
            if member.principal.startswith(AGENT_PREFIX):
                raise Invalid("An agent acts for a person and cannot be a member; add the person.")
            _refuse_bare(member.principal)
            closed = await asyncio.to_thread(awaits_owner, runtime, company_id)

            def add(database: DatabaseConnection) -> Membership:
                known = _members(database, company_id)
                opens = closed and not known
                read_only = find_company(database, company_id).read_only
                runtime.refuse_read_only(company_id if read_only and not opens else None)
                given = _with_subject(member, known)
                if not _owners([*_without(known, given.principal, given.project_id), given]):
                    raise Invalid(_NO_OWNER_LEFT.format(given.principal) if known else _NO_OWNER)
                row = MemberRow(
                    company_id=company_id,
                    principal=given.principal,
                    project_id=given.project_id or "",
                    role=given.role,
                    subject_id=given.subject_id,
                )
                bindings.set_member(database, row)
                if opens:
                    bindings.update_company(database, company_id, {"read_only": False})
                return given

            return await runtime.configure(entry, add)

    async def remove(self, caller: Caller, principal: str, project_id: str | None = None) -> None:
        """Remove a role; not the last owner's while there are other members.

        Raises:
            NotFound: the principal has no such role.
            Invalid: it is the last owner.
        """

        def change(database: DatabaseConnection) -> None:
            left = _without(_members(database, caller.company_id), principal, project_id)
            place = caller.company_id, principal, project_id or ""
            if not bindings.remove_member(database, *place):
                raise NotFound(
                    f"{principal} has no such role; `memtui companies members list` shows them."
                )
            if left and not _owners(left):
                raise Invalid(_NO_OWNER_LEFT.format(principal))

        asked = SettingDetails(remove_member=principal, project_id=project_id)
        await self._runtime.change(caller, asked, change)


class Tokens(ServiceModule):
    """The bearer tokens of companies."""

    @in_thread
    def all(self, caller: Caller) -> list[TokenView]:
        """Return the tokens that the caller may see, oldest first: managers all, others their own.

        Raises:
            Denied: the caller is not a member.
        """
        visibility = self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            rows = bindings.tokens(database, caller.company_id)
        return [
            TokenView.like(row)
            for row in rows
            if visibility is None
            or visibility.manages
            or visibility.person in {row.principal, row.acts_for}
        ]

    async def add(
        self,
        caller: Caller,
        label: str,
        principal: str,
        *,
        acts_for: str | None = None,
        project_id: str | None = None,
    ) -> NewToken:
        """Create a bearer token for a principal; its secret is readable only in this answer.

        `acts_for`: the person on whose behalf an agent acts. A token for one project gives no
        access to others, whatever the role.

        Raises:
            Conflict: the label is taken.
            Invalid: a name is empty or not valid.
        """
        secret = f"memtui_{secrets.token_urlsafe(32)}"

        def change(database: DatabaseConnection) -> TokenRow:
            if not label.strip():
                raise Invalid("A token needs a label.")
            _refuse_bare(principal)
            if project_id is not None:
                check_target_id("project", project_id)
            row = TokenRow(
                digest=_digest(secret),
                company_id=caller.company_id,
                label=label,
                principal=principal,
                acts_for=acts_for,
                project_id=project_id,
                created_at=self._runtime.clock(),
            )
            bindings.add_token(database, row)
            return row

        asked = SettingDetails(
            add_token=True,  # the label as a value here would be redacted as a secret
            label=label,
            principal=principal,
            acts_for=acts_for,
            project_id=project_id,
        )
        return NewToken.like(await self._runtime.change(caller, asked, change), token=secret)

    async def remove(self, caller: Caller, label: str) -> None:
        """Revoke a token.

        Raises:
            NotFound: no token has this label.
        """

        def change(database: DatabaseConnection) -> None:
            if not bindings.remove_token(database, caller.company_id, label):
                raise NotFound(
                    f"There is no token {label}; `memtui companies tokens list` shows them."
                )

        await self._runtime.change(
            caller, SettingDetails(remove_token=True, label=label), change, irreversible=REVOKED
        )

    @in_thread
    def authenticate(self, company_id: str, secret: str, channel: str) -> Caller:
        """Return the caller of a company's bearer token.

        Raises:
            Denied: the token is not valid, or another company's.
        """
        with self._runtime.database.read() as database:
            row = bindings.token(database, _digest(secret))
        if row is None:
            raise Denied(
                "The bearer token is not known here; make one with `memtui companies tokens add`."
            )
        if row.company_id != company_id:
            raise Denied("The bearer token is another company's; use one of this company's.")
        return Caller.like(row, channel=channel)


def _members(database: DatabaseConnection, company_id: str) -> list[Membership]:
    return [membership(row) for row in bindings.members(database, company_id)]


def _with_subject(member: Membership, known: Sequence[Membership]) -> Membership:
    if member.subject_id is not None:
        return member
    named = [one for one in known if one.subject_id]
    own = next((one.subject_id for one in named if one.principal == member.principal), None)
    subject = own or member.principal.removeprefix(USER_PREFIX)
    taken = any(one.subject_id == subject and one.principal != member.principal for one in named)
    return member if taken else member.model_copy(update={"subject_id": subject})


def _without(
    known: Sequence[Membership], principal: str, project_id: str | None
) -> list[Membership]:
    place = principal, project_id or None
    return [member for member in known if (member.principal, member.project_id or None) != place]


def _owners(known: Sequence[Membership]) -> list[Membership]:
    """The owners of the whole company, without whom nobody could change its settings again."""
    return [m for m in known if m.role is Role.OWNER and not m.project_id]


def _refuse_bare(principal: str) -> None:
    """Raise `Invalid` for a name without `user:` or `agent:`: its kind would be unclear."""
    if why := bare(principal):
        raise Invalid(f"{why}.")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
