"""Refusals over HTTP: one place gives every error its status and its body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    Unavailable,
    Unsupported,
)

_SENTENCES = {
    404: "There is nothing at this address; /openapi.json lists the addresses there are.",
    405: "This address does not take that method; the Allow header lists those it takes.",
}
_KINDS = {401: "denied", 403: "denied", 404: "not_found", 409: "conflict", 503: "unavailable"}
_FAULT = "memtui ran into a fault of its own; the details are in its log file."

Body = Callable[[str, str], Json]
"""Makes the body of a refusal from its kind and its sentence."""


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """How one contract tells a refusal: its status by the error's class, and its body."""

    statuses: Mapping[type[MemtuiError], int]
    body: Body

    def reply(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> ExactJson:
        """Return a refusal."""
        kind = _KINDS.get(status, "internal" if status >= 500 else "invalid")
        return ExactJson(self.body(kind, message), status, headers=headers)

    def status_of(self, error: MemtuiError) -> int:
        """Return the status of one of the contract's errors."""
        found = next((kind for kind in type(error).__mro__ if kind in self.statuses), None)
        return self.statuses[found] if found else HTTPStatus.INTERNAL_SERVER_ERROR


class ExactJson(JSONResponse):
    """JSON that carries any text unchanged, lone surrogates too."""

    def render(self, content: Any) -> bytes:
        """Return the document in ASCII, all else escaped."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def statuses(*, invalid: int) -> dict[type[MemtuiError], int]:
    """Return the statuses of the contract's errors; contracts differ in that of a bad request."""
    return {
        Invalid: invalid,
        Unsupported: invalid,
        Denied: 403,
        NotFound: 404,
        Conflict: 409,
        Unavailable: 503,
    }


def install(app: FastAPI, style: ErrorStyle) -> None:
    """Let an app answer every error in the style of its contract."""

    async def tell(_: Request, error: Exception) -> ExactJson:
        assert isinstance(error, MemtuiError)  # noqa: S101 - registered for these alone
        return style.reply(style.status_of(error), str(error))

    async def tell_http(request: Request, error: Exception) -> ExactJson:
        assert isinstance(error, HTTPException)  # noqa: S101
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods(app.routes, request.scope))
        sentence = _SENTENCES.get(error.status_code, error.detail)
        return style.reply(error.status_code, sentence, headers)

    async def tell_fault(_: Request, error: Exception) -> ExactJson:
        del error  # the server writes its traceback to the log
        return style.reply(HTTPStatus.INTERNAL_SERVER_ERROR, _FAULT)

    app.add_exception_handler(MemtuiError, tell)
    app.add_exception_handler(HTTPException, tell_http)
    app.add_exception_handler(Exception, tell_fault)


def _methods(routes: list[BaseRoute], scope: Scope) -> list[str]:
    """Return every method that some route takes at this address."""
    found: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)
