"""Where the contract states its rules: in the guide for plugin authors or the OpenAPI file."""

from __future__ import annotations

GUIDE = "Writing a Memory Plugin"
IMPLEMENT = f"{GUIDE}, What you implement"
CONTRACT = f"{GUIDE}, What the contract is"
CAPABILITIES = f"{GUIDE}, Capability negotiation"
IDEMPOTENCY = f"{GUIDE}, Memory idempotency"
CARE = f"{GUIDE}, What workspace-server takes care of"
HEALTH = "OpenAPI v1, GET /v1/health"
PUT = "OpenAPI v1, PUT /v1/namespaces/{name}"
PATCH = "OpenAPI v1, PATCH /v1/namespaces/{name}"
DELETE = "OpenAPI v1, DELETE /v1/namespaces/{name}"
WRITE = "OpenAPI v1, POST /v1/namespaces/{name}/memories"
SEARCH = "OpenAPI v1, POST /v1/search"
FORGET = "OpenAPI v1, DELETE /v1/memories/{id}"
ERRORS = "OpenAPI v1, Error"
