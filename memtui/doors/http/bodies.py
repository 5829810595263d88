"""JSON bodies, read whole and checked before anything is done with them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TypeVar

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from memtui.contract import Invalid, Model

ModelT = TypeVar("ModelT", bound=Model)


async def read_json(request: Request, model: type[ModelT], *, max_bytes: int) -> ModelT:
    """Return the body as a `model`.

    Raises:
        HTTPException: it is no JSON (400), too large (413) or said to be something else (415).
        Invalid: it is JSON that does not fit.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != "application/json":
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send JSON, with Content-Type: application/json."
        )
    body = await _read(request, max_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"The body is no JSON text: {first['ctx']['error']}."
            ) from error
        field = ".".join(str(part) for part in first["loc"]) or "body"
        said = first["msg"].removeprefix("Value error, ")
        raise Invalid(f"The {field} does not fit: {said}.") from error


async def _read(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The body broke off.") from error
    return bytes(body)


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is larger than {max_bytes:,} bytes."
    )
