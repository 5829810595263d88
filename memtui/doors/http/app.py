"""The app factory that every contract shares: its endpoints, guarded, described and mapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.requests import Request

from memtui import __version__
from memtui.contract import Json, Model
from memtui.doors.http.errors import ErrorStyle, install
from memtui.doors.http.guard import Guard
from memtui.service import MemoryService

_REF = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: one company of an open service."""

    service: MemoryService
    company_id: str


@dataclass(frozen=True, slots=True)
class Api:
    """One contract: its endpoints, the bodies that they read, and how they refuse."""

    title: str
    description: str
    router: APIRouter
    bodies: Sequence[type[Model]]
    style: ErrorStyle


def build_app(api: Api, served: Served, *, names: frozenset[str] | None) -> FastAPI:
    """Return the ASGI app of a contract; it answers to these host `names`, to any if None."""
    app = FastAPI(
        title=api.title,
        description=api.description,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.served, app.state.style = served, api.style
    app.router.routes.extend(api.router.routes)  # flat, so that a 405 can name every method
    app.add_middleware(Guard, style=api.style, names=names)
    install(app, api.style)
    app.openapi = lambda: _describe(app, api)  # type: ignore[method-assign]  # as FastAPI says
    return app


def served_by(request: Request) -> Served:
    """Return what the app of a request serves."""
    return cast("Served", request.app.state.served)


def json_body(model: type[Model]) -> dict[str, Any]:
    """Return the description of an endpoint's body, for its `openapi_extra`."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _describe(app: FastAPI, api: Api) -> Json:
    """Return the OpenAPI document, with the bodies that the endpoints read themselves."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            description=app.description,
            version=app.version,
            routes=app.routes,
        )
        _, known = models_json_schema(
            [(model, "validation") for model in api.bodies], ref_template=_REF
        )
        if 422 not in api.style.statuses.values():
            _drop_automatic_422(document)
        components = document.setdefault("components", {})
        components["schemas"] = {**components.get("schemas", {}), **known.get("$defs", {})}
        app.openapi_schema = document
    return app.openapi_schema


def _drop_automatic_422(document: Json) -> None:
    """Take out the refusal that FastAPI adds to every endpoint with a parameter."""
    for item in document.get("paths", {}).values():
        for operation in item.values():
            operation["responses"].pop("422", None)
    for model in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(model, None)
