"""One use case through the service, the command line and the app: what is stored and logged."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from memtui.contract import Filter, Record, Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService

Way: TypeAlias = "Literal['service', 'command', 'app']"
WAYS = ("service", "command", "app")
PERSON = Caller(company_id="local", principal="user:ana", channel="test")
BOT = Caller(company_id="local", principal="agent:bot", channel="mcp")
ANA = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
_OF_THIS_HOME = {
    "together", "record_id", "record_ids", "operation_id", "inferred", "content_chars",
}  # fmt: skip


class Typed(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command: TypeAlias = "Callable[..., Awaitable[Typed]]"


async def remember(service: MemoryService, *texts: str, **fields: Any) -> list[Record]:
    """Write facts of the user ana."""
    given = {"scope": ANA, "source": SOURCE, "kind": "fact"} | fields
    requests = [WriteRequest.model_validate(given | {"content": text}) for text in texts]
    return [(await service.write(PERSON, one)).records[0] for one in requests]


async def logged(service: MemoryService, after: str) -> list[dict[str, Any]]:
    """Return the changes after an operation, each group of one undo by its number."""
    page = await service.log.page(PERSON, Filter(), limit=100)
    newer = [one for one in reversed(page.operations) if one.operation_type.mutates]
    start = [one.operation_id for one in newer].index(after) + 1
    groups: dict[object, int] = {None: 0}
    return [
        {
            "type": one.operation_type.value,
            "status": one.status.value,
            "of": one.scope.model_dump(exclude_none=True, exclude={"company_id"}),
            "binding": one.binding_key,
            "by": one.principal,
            "group": groups.setdefault(one.request.get("together"), len(groups)),
            "asked": {
                name: value if name != "revision" else True
                for name, value in one.request.items()
                if name not in _OF_THIS_HOME
            },
        }
        for one in newer[start:]
    ]


async def last(service: MemoryService) -> str:
    """Return the id of the newest change."""
    page = await service.log.page(PERSON, Filter(), limit=100)
    return next(one.operation_id for one in page.operations if one.operation_type.mutates)


def kept(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return the records as they are stored, without what each home has of its own."""
    return sorted(
        (one.text, one.pinned, one.tags, one.expires_at and one.expires_at.year) for one in records
    )
