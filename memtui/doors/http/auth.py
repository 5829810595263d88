"""Who calls: bearer tokens (RFC 6750) stand for principals."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request

from memtui.contract import Denied
from memtui.doors.http.app import served_by
from memtui.service import Caller

DOOR = "http"

_log = logging.getLogger(__name__)
_bearer = HTTPBearer(auto_error=False, description="A token made with `memtui tokens add`.")


async def authenticated(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Caller:
    """Return the caller that the request's token stands for.

    Raises:
        HTTPException: 401, there is no token or it is not known in the company that is served.
    """
    if given is None:
        raise _refused('Bearer realm="memtui"', "Send a token: Authorization: Bearer TOKEN.")
    served = served_by(request)
    challenge = 'Bearer realm="memtui", error="invalid_token"'
    try:
        caller = await served.service.tokens.authenticate(given.credentials, DOOR)
    except Denied as error:
        _log.warning("a request with an unknown token was refused")
        raise _refused(challenge, str(error)) from error
    if caller.company_id != served.company_id:
        _log.warning("a request with another company's token was refused")
        raise _refused(challenge, "The bearer token is another company's; use one of this one.")
    return caller


def _refused(challenge: str, message: str) -> HTTPException:
    return HTTPException(401, message, {"WWW-Authenticate": challenge})


Authenticated = Annotated[Caller, Depends(authenticated)]
"""A parameter of this type makes an endpoint ask for a token, before it reads anything else."""
