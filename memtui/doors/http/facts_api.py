"""The endpoints of fact memory (seed 004 §6.4)."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Path
from starlette.requests import Request
from starlette.responses import Response

from memtui.contract import Json
from memtui.doors.http.app import Api, Served, build_app, json_body, served_by
from memtui.doors.http.auth import Authenticated
from memtui.doors.http.bodies import read_json
from memtui.doors.http.errors import ErrorStyle, ExactJson, statuses
from memtui.doors.http.facts_calls import FactCalls
from memtui.doors.http.facts_wire import (
    Accepted,
    DriveFact,
    DriveFacts,
    ErrorBody,
    NewFact,
    UserFact,
    UserFacts,
    Wire,
    drive_fact,
    user_fact,
)

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


async def _key(key: Annotated[str, Path(alias="id", min_length=1)]) -> str:
    """Return the path's last segment, which the guard has left percent-encoded."""
    return unquote(key)


Calls = Annotated[FactCalls, Depends(_calls)]
Fresh = Annotated[NewFact, Depends(_new_fact)]
Key = Annotated[str, Depends(_key)]


def _documented(*refused: int, **replies: type[Wire]) -> dict[int | str, dict[str, Any]]:
    """Return the replies of an endpoint: `s200=Model`, and the statuses of its refusals."""
    told: dict[int | str, dict[str, Any]] = {
        int(status[1:]): {"model": model} for status, model in replies.items()
    }
    for status in sorted({400, 401, 403, 404, 422, 503, *refused}):
        told[status] = {"model": ErrorBody, "description": _REFUSALS[status]}
    headers = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    told[401]["headers"] = headers
    return told


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
    record, operation_id = await calls.add(await calls.user(), new)
    return _reply(user_fact(record), 201) if record else _accepted(operation_id)


@router.delete("/user/{id}", status_code=204, responses=_documented(409))
async def delete_user_fact(calls: Calls, wire_id: Key) -> Response:
    """Delete the fact of that id, of the token's user."""
    await calls.delete_of_user(wire_id)
    return Response(status_code=204)


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
    record, operation_id = await calls.add(calls.drive(drive_id), new)
    return _reply(drive_fact(record), 201) if record else _accepted(operation_id)


@router.delete("/drive/{id}", status_code=204, responses=_documented(409))
async def delete_drive_fact(calls: Calls, wire_id: Key) -> Response:
    """Delete the fact of that id: here the id is a drive's fact's, and no drive's."""
    await calls.delete_of_drive(wire_id)
    return Response(status_code=204)


def facts_app(served: Served, *, names: frozenset[str] | None) -> FastAPI:
    """Return the app that serves a company's facts; `names` are the hosts it answers to."""
    api = Api(
        title="memtui facts",
        description="Facts about users and drives, kept by memtui.",
        router=router,
        bodies=(NewFact,),
        style=ErrorStyle(statuses(invalid=422), _error_body),
    )
    return build_app(api, served, names=names)


def _error_body(kind: str, message: str) -> Json:
    return {"error": {"kind": kind, "message": message}}


def _reply(body: Wire, status: int = 200) -> Response:
    return ExactJson(body.model_dump(mode="json", by_alias=True), status)


def _accepted(operation_id: str) -> Response:
    return _reply(Accepted(operation_id=operation_id), 202)
