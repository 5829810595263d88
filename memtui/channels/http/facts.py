"""The endpoints of fact memory (seed 004 §6.4); `memtui.backends.facts_http` is their client.

An id in the API is opaque: it encodes the record's id and, for a drive's fact, the drive, because
`DELETE /api/memory/drive/{id}` names no drive.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Path
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response

from memtui.channels.http.app import (
    Authenticated,
    ErrorStyle,
    ExactJson,
    Served,
    build_app,
    documented,
    json_body,
    read_json,
    served_by,
)
from memtui.contract import (
    ForgetRequest,
    Model,
    NotFound,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    UtcDatetime,
    WriteRequest,
    owned,
)
from memtui.fact_values import FACT
from memtui.service import Caller, MemoryService, MutationAnswer
from memtui.service.operations.feedback import Verdict
from memtui.service.usecases.owned import owned_records
from memtui.service.visibility import AGENT_PREFIX


def encode_id(*parts: str) -> str:
    """Return an id of `parts`: each in base64 for URLs, joined by dots."""
    return ".".join(
        base64.urlsafe_b64encode(part.encode("utf-8", "surrogatepass")).decode().rstrip("=")
        for part in parts
    )


def decode_id(wire_id: str, count: int) -> Sequence[str] | None:
    """Return the `count` parts of an id; None if `encode_id` could not have made it."""
    words = wire_id.split(".")
    if len(words) != count:
        return None
    try:
        parts = [_decoded(word) for word in words]
    except (binascii.Error, UnicodeError):
        return None
    return parts if all(parts) and encode_id(*parts) == wire_id else None


def _decoded(word: str) -> str:
    padded = word + "=" * (-len(word) % 4)
    return base64.urlsafe_b64decode(padded.encode("ascii")).decode("utf-8", "surrogatepass")


Maker = Literal["ai", "user"]
_MADE_BY = "fact_source"


class FactsBody(Model):
    """Base of the bodies: names in camel case, as the seed writes them."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class WireSource(FactsBody):
    """The work object that a fact comes from."""

    kind: SourceKind
    issue_id: str | None = None
    comment_id: str | None = None
    document_key: str | None = None
    run_id: str | None = None
    activity_id: str | None = None
    external_ref: str | None = None


class NewFact(FactsBody):
    """A fact to remember."""

    fact: Annotated[str, Field(min_length=1)]
    """One line, of 200 characters at most unless the server is set to take more."""
    source_ref: WireSource | None = None
    """What it comes from; left out, it counts as noted by hand."""


class UserFact(FactsBody):
    """A fact about a user."""

    id: str
    fact: str
    created_at: UtcDatetime | None
    source: Maker | None
    """Who made it."""


class DriveFact(UserFact):
    """A fact about a drive."""

    created_by: str | None
    """The principal that added it."""


class UserFacts(FactsBody):
    """A user's facts, the oldest first."""

    memories: list[UserFact]
    at_least: bool
    """True: the provider cut the list, there may be more."""


class DriveFacts(FactsBody):
    """A drive's facts, the oldest first."""

    memories: list[DriveFact]
    at_least: bool
    """True: the provider cut the list, there may be more."""


class Accepted(FactsBody):
    """It was taken and is not done yet: the provider does it later, or a person lets it first."""

    operation_id: str
    status: Literal["later", "pending"] = "later"
    """`pending`: it waits for review, and nothing is changed until then."""
    pending_id: str | None = None
    """What `memtui review show` takes."""
    reasons: tuple[str, ...] = ()
    """The names of the review rules that match it."""

    @classmethod
    def of(cls, answer: MutationAnswer) -> Self:
        """Return the body for a pending or later change."""
        if answer.pending is None:
            return cls(operation_id=answer.operation_id)
        return cls(
            operation_id=answer.operation_id,
            status="pending",
            pending_id=answer.pending.pending_id,
            reasons=answer.pending.reasons,
        )


class Judgement(FactsBody):
    """Whether a fact that the token's principal was given helped."""

    id: Annotated[str, Field(min_length=1)]
    """The fact's id, as these endpoints have it."""
    helped: bool
    operation_id: str | None = None
    """The query or context that gave it; left out: the newest one that did."""


class Judged(FactsBody):
    """The judgement was logged; the last one on each result counts."""

    operation_id: str
    judged: str
    """The query or context that gave the fact."""


class ErrorDetail(FactsBody):
    """What went wrong."""

    kind: str
    message: str


class ErrorBody(FactsBody):
    """A refusal."""

    error: ErrorDetail


def user_fact(record: Record) -> UserFact:
    """Return a record as a user's fact."""
    return UserFact(
        id=encode_id(record.handle.provider_record_id),
        fact=record.text,
        created_at=record.created_at,
        source=_maker(record),
    )


def drive_fact(record: Record) -> DriveFact:
    """Return a record as a drive's fact."""
    of_drive = encode_id(record.scope.project_id or "", record.handle.provider_record_id)
    fields = {**dict(user_fact(record)), "id": of_drive}
    return DriveFact(**fields, created_by=record.created_by)


def _maker(record: Record) -> Maker | None:
    match record.metadata.get(_MADE_BY), record.created_by:
        case ("ai", _):
            return "ai"
        case ("user", _):
            return "user"
        case (_, None):
            return None
        case (_, principal):
            return "ai" if principal.startswith(AGENT_PREFIX) else "user"


@dataclass(frozen=True, slots=True)
class FactCalls:
    """The facts of one company, with one caller's rights."""

    service: MemoryService
    caller: Caller

    async def user(self) -> Scope:
        """Return the scope of the caller's own memory; for an agent, its person's."""
        subject = await self.service.members.own_subject(self.caller)
        return Scope(company_id=self.caller.company_id, subject_id=subject)

    def drive(self, drive_id: str) -> Scope:
        """Return the scope of a drive's memory."""
        return Scope(company_id=self.caller.company_id, project_id=drive_id)

    async def listed(self, scope: Scope) -> tuple[list[Record], bool]:
        """Return the facts that a scope owns, oldest first, and whether the list was truncated."""
        records, last = await owned_records(self.service, self.caller, scope, kind=FACT)
        return records, last.at_least

    async def add(self, scope: Scope, new: NewFact) -> MutationAnswer:
        """Store a fact; a run that an agent names as the source counts as the agent's run."""
        given = new.source_ref or WireSource(kind=SourceKind.MANUAL_NOTE)
        source = SourceRef(company_id=scope.company_id, **dict(given))
        request = WriteRequest(scope=scope, source=source, content=new.fact, kind=FACT)
        caller = self.caller
        if caller.by_ai and given.run_id:
            caller = caller.model_copy(update={"run_id": given.run_id})
        return await self.service.write(caller, request)

    async def delete_of_user(self, wire_id: str) -> MutationAnswer:
        """Delete a fact of the caller's user."""
        parts = decode_id(wire_id, 1)
        return await self._delete(await self.user(), parts[0] if parts else wire_id)

    async def delete_of_drive(self, wire_id: str) -> MutationAnswer:
        """Delete a fact of the drive in its id.

        For a malformed id, the call goes to the caller's own facts, so that it is logged as an
        operation; it always ends as not found.
        """
        parts = decode_id(wire_id, 2)
        if parts is None:
            return await self._delete(await self.user(), wire_id, found=False)
        return await self._delete(self.drive(parts[0]), parts[1])

    async def judge(self, asked: Judgement) -> Judged:
        """Record whether a fact from a query or a context helped."""
        parts = decode_id(asked.id, 2) or decode_id(asked.id, 1)
        answer = await self.service.feedback.say(
            self.caller,
            parts[-1] if parts else asked.id,
            Verdict.HELPED if asked.helped else Verdict.NOT_HELPED,
            operation_id=asked.operation_id,
        )
        return Judged(operation_id=answer.operation_id, judged=answer.judged)

    async def _delete(self, scope: Scope, record_id: str, *, found: bool = True) -> MutationAnswer:
        record = (await self.service.get(self.caller, record_id, scope)).record
        if not found or record.kind != FACT or not owned([record], scope):
            raise NotFound("This fact does not exist here; list the facts again.")
        answer = await self.service.forget(self.caller, ForgetRequest.of([record], scope))
        if answer.ghosts:
            raise Unavailable(
                "The provider says that the fact is deleted, and still returns it; try again."
            )
        return answer


MAX_BODY_BYTES = 65_536

_REFUSALS = {
    400: "The address or the body cannot be read.",
    401: "No token, or one that is not known.",
    403: "The caller's role does not allow it, or something on the way is read-only.",
    404: "There is no such fact, or no memory serves it.",
    409: "The fact changed meanwhile.",
    413: f"The body is larger than {MAX_BODY_BYTES:,} bytes.",
    415: "The body is not said to be JSON.",
    422: "The request cannot be right: a fact of two lines, a full list, an impossible id.",
    503: "The memory behind the server is slow, down or answers nonsense.",
}


async def _calls(request: Request, caller: Authenticated) -> FactCalls:
    return FactCalls(served_by(request).service, caller)


async def _new_fact(request: Request, _: Authenticated) -> NewFact:
    return await read_json(request, NewFact, max_bytes=MAX_BODY_BYTES)


async def _judgement(request: Request, _: Authenticated) -> Judgement:
    return await read_json(request, Judgement, max_bytes=MAX_BODY_BYTES)


async def _key(key: Annotated[str, Path(alias="id", min_length=1)]) -> str:
    """Return the path's last segment, which the guard percent-encodes."""
    return unquote(key)


Calls = Annotated[FactCalls, Depends(_calls)]
Fresh = Annotated[NewFact, Depends(_new_fact)]
Asked = Annotated[Judgement, Depends(_judgement)]
Key = Annotated[str, Depends(_key)]


def _documented(*refused: int, **replies: type[FactsBody]) -> dict[int | str, dict[str, Any]]:
    responses = documented(ErrorBody, _REFUSALS, {400, 401, 403, 404, 422, 503, *refused}, replies)
    headers = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    responses[401]["headers"] = headers
    return responses


router = APIRouter(prefix="/api/memory")


@router.get("/user", responses=_documented(s200=UserFacts))
async def list_user_facts(calls: Calls) -> Response:
    """List the facts of the token's user."""
    records, is_cut = await calls.listed(await calls.user())
    return _reply(UserFacts(memories=[user_fact(one) for one in records], at_least=is_cut))


@router.post(
    "/user",
    status_code=201,
    responses=_documented(413, 415, s201=UserFact, s202=Accepted),
    openapi_extra=json_body(NewFact),
)
async def add_user_fact(calls: Calls, new: Fresh) -> Response:
    """Remember a fact about the token's user."""
    return _added(await calls.add(await calls.user(), new), user_fact)


@router.delete("/user/{id}", status_code=204, responses=_documented(409, s202=Accepted))
async def delete_user_fact(calls: Calls, wire_id: Key) -> Response:
    """Delete the fact of that id, of the token's user."""
    return _deleted(await calls.delete_of_user(wire_id))


@router.get("/drive/{id}", responses=_documented(s200=DriveFacts))
async def list_drive_facts(calls: Calls, drive_id: Key) -> Response:
    """List the facts of the drive of that id."""
    records, is_cut = await calls.listed(calls.drive(drive_id))
    return _reply(DriveFacts(memories=[drive_fact(one) for one in records], at_least=is_cut))


@router.post(
    "/drive/{id}",
    status_code=201,
    responses=_documented(413, 415, s201=DriveFact, s202=Accepted),
    openapi_extra=json_body(NewFact),
)
async def add_drive_fact(calls: Calls, drive_id: Key, new: Fresh) -> Response:
    """Remember a fact about the drive of that id."""
    return _added(await calls.add(calls.drive(drive_id), new), drive_fact)


@router.delete("/drive/{id}", status_code=204, responses=_documented(409, s202=Accepted))
async def delete_drive_fact(calls: Calls, wire_id: Key) -> Response:
    """Delete the fact of that id: here the id is a drive's fact's, and no drive's."""
    return _deleted(await calls.delete_of_drive(wire_id))


@router.post(
    "/feedback",
    status_code=201,
    responses=_documented(413, 415, s201=Judged),
    openapi_extra=json_body(Judgement),
)
async def say_whether_it_helped(calls: Calls, asked: Asked) -> Response:
    """Say whether a fact helped that a query or a context gave the token's principal."""
    return _reply(await calls.judge(asked), 201)


def facts_app(served: Served, *, names: frozenset[str] | None) -> FastAPI:
    """Return the app that serves a company's facts; `names` are the hosts it answers to."""
    return build_app(
        served,
        title="memtui facts",
        description="Facts about users and projects, kept by memtui.",
        router=router,
        bodies=(NewFact, Judgement),
        style=ErrorStyle(lambda kind, why: {"error": {"kind": kind, "message": why}}, invalid=422),
        names=names,
    )


def _reply(body: FactsBody, status: int = 200) -> Response:
    return ExactJson(body.model_dump(mode="json", by_alias=True), status)


def _added(answer: MutationAnswer, form: Callable[[Record], FactsBody]) -> Response:
    if answer.records:
        return _reply(form(answer.records[0]), 201)
    return _reply(Accepted.of(answer), 202)


def _deleted(answer: MutationAnswer) -> Response:
    return _reply(Accepted.of(answer), 202) if answer.pending else Response(status_code=204)
