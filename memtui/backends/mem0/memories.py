"""Converts memories of mem0 to the contract's records and back.

A subject is mem0's user, an agent its agent, a run its run. A project is an app of the platform;
the open server and the library have no apps, so there it is the metadata `project_id`. mem0
requires an owner for each memory: those without one belong to the shared user.

Values for which mem0 has no field are stored in its metadata under the key `memtui`, as JSON text,
since some stores only accept plain values. The rest of the metadata is the record's own.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from memtui.contract import Invalid, Json, Record, RecordHandle, RecordVersion, Scope, WriteRequest
from memtui.json_text import whole
from memtui.provider_kit import read_moment
from memtui.provider_kit.kept import OWN, KeptFields, KeptMemory
from memtui.provider_kit.server_provider import ServerRows, read_rows, revision_of
from memtui.provider_kit.servers import as_text

KEY = "mem0"
PROJECT = "project_id"
"""The metadata key of a project where there are no apps."""
OWNERS = {"subject_id": "user_id", "agent_id": "agent_id", "run_id": "run_id"}
"""Scope fields, and the ids of mem0 that they become."""
_RESERVED = frozenset(
    {"id", "data", "hash", "memory", "created_at", "updated_at", "expiration_date",
     "text_lemmatized", "attributed_to", "role", "actor_id", "app_id", PROJECT,
     *OWNERS.values()}
)  # fmt: skip
"""Keys that mem0's library stores alongside a memory's metadata, which cannot use them."""


def _numbers(value: object) -> object:
    given = value if isinstance(value, dict) else {}
    return {
        name: one
        for name, one in given.items()
        if isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one)
    }


def _or(default: Callable[[], object]) -> BeforeValidator:
    return BeforeValidator(lambda value: default() if value is None else value)


Name = Annotated[str | None, BeforeValidator(lambda value: as_text(value) or None)]
Moment = Annotated[
    str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)
]


class Mem0Memory(KeptMemory):
    """A memory in the replies of any of mem0's APIs.

    memtui's part has the exact moment of the expiry, of which mem0 stores the day, the issue, and
    the metadata under keys that mem0 reserves.
    """

    id: Annotated[str, BeforeValidator(as_text), Field(min_length=1, max_length=1000)]
    memory: Annotated[str, _or(str)] = ""
    user_id: Name = None
    agent_id: Name = None
    run_id: Name = None
    app_id: Name = None
    actor_id: Name = None
    categories: Annotated[tuple[str, ...], _or(tuple)] = ()
    created_at: Moment = None
    updated_at: Moment = None
    expiration_date: Moment = None
    score: Annotated[float | None, Field(allow_inf_nan=False)] = None
    parts: Annotated[dict[str, float], BeforeValidator(_numbers)] = Field(
        default={}, validation_alias=AliasChoices("score_details", "score_breakdown")
    )
    """The parts of the score, where mem0 reports them."""

    @property
    def project(self) -> object:
        """The project: the app, or else what the metadata says."""
        return self.app_id or as_text(self.metadata.get(PROJECT))

    @model_validator(mode="after")
    def _has_a_readable_project(self) -> Self:
        if isinstance(self.project, str | None):
            return self
        raise ValueError("its project cannot be read")


@dataclass(frozen=True, slots=True)
class Mem0Draft:
    """A memory to store: its owners by mem0's ids, and the last day on which it is returned."""

    text: str
    owners: dict[str, str]
    metadata: Json
    created_at: datetime | None = None
    expires: date | None = None


MemoryPage = ServerRows[Mem0Memory]


def read_memories(reply: Any, *, more: bool = False) -> MemoryPage:
    """Return the memories of a reply: a list, or an object with `results`."""
    found = reply.get("results") if isinstance(reply, dict) else reply
    return read_rows(found, Mem0Memory.model_validate, more=more)


def handle_of(memory_id: str) -> RecordHandle:
    """Return a memory's handle."""
    return RecordHandle(provider_key=KEY, provider_record_id=memory_id)


def owners_of(scope: Scope, shared_user: str, *, has_apps: bool) -> dict[str, str]:
    """Return mem0's ids of a scope. Raises `Invalid` for one that mem0 does not accept."""
    names = OWNERS | ({"project_id": "app_id"} if has_apps else {})
    owners = {own: value for name, own in names.items() if (value := getattr(scope, name))}
    for name, value in owners.items():
        if value == "*" or any(char.isspace() for char in value):
            raise Invalid(
                f"mem0 takes no {name} {value!r}; an id of mem0 contains no spaces and is not *."
            )
    if owners.get("user_id") == shared_user:
        raise Invalid(
            f"mem0's user {shared_user} has the company's memories here; to store memories of a "
            "user of that name, set the binding's shared_user to another name."
        )
    return owners or {"user_id": shared_user}


def record_of(memory: Mem0Memory, company_id: str, shared_user: str) -> Record:
    """Return a memory as a record."""
    details = memory.kept
    created_at = details.created_at or read_moment(memory.created_at)
    return details.record(
        company_id,
        {name: value for name, value in memory.metadata.items() if name != PROJECT},
        handle=handle_of(memory.id),
        text=memory.memory,
        scope=Scope(
            company_id=company_id,
            subject_id=None if memory.user_id == shared_user else memory.user_id,
            agent_id=memory.agent_id,
            run_id=memory.run_id,
            project_id=memory.project or None,
            issue_id=details.ids.get("issue_id"),
        ),
        kind=details.kind or "memory",
        tags=memory.categories if details.tags is None else details.tags,
        created_at=created_at,
        updated_at=read_moment(memory.updated_at) or created_at,
        created_by=details.created_by or memory.actor_id,
        expires_at=details.expires_at or _end_of(memory.expiration_date),
        revision=_revision(memory),
    )


def _revision(memory: Mem0Memory) -> str:
    """Return a digest of a memory; mem0's own hash only covers the text."""
    moment = read_moment(memory.updated_at)
    return revision_of(memory.memory, str(moment), memory.metadata)


def _end_of(last_day: str | None) -> datetime | None:
    """Return the moment after which mem0 no longer returns a memory: the end of its last day."""
    last = read_moment(last_day)
    return None if last is None else last + timedelta(days=1)


def last_day(expires_at: datetime | None) -> date | None:
    """Return the last day on which mem0 is to return a memory that expires at a moment."""
    if expires_at is None:
        return None
    is_midnight = expires_at.astimezone(UTC).time() == time()
    return (expires_at - timedelta(days=1) if is_midnight else expires_at).date()


def day(text: str | None) -> date | None:
    """Return the day of a time in mem0's format."""
    moment = read_moment(text)
    return moment and moment.date()


def draft_of(request: WriteRequest, shared_user: str, *, has_apps: bool) -> Mem0Draft:
    """Return the memory to store for a write. Raises `Invalid` if mem0 cannot store it."""
    check_text(request.content)
    issue = request.scope.model_dump(include={"issue_id"}, exclude_none=True)
    details, metadata = KeptFields.of_write(request, reserved=_RESERVED, ids=issue)
    if request.scope.project_id and not has_apps:
        metadata[PROJECT] = request.scope.project_id
    return Mem0Draft(
        text=request.content,
        owners=owners_of(request.scope, shared_user, has_apps=has_apps),
        metadata=metadata | written(details),
        created_at=request.created_at,
        expires=last_day(request.expires_at),
    )


def check_text(text: str) -> None:
    """Raise `Invalid` for a text that some store of mem0 cannot store."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise Invalid(
            "mem0 cannot store a NUL or half a character (a lone surrogate); remove it from the "
            "text."
        )


def written(details: KeptFields) -> Json:
    """Return memtui's part in the form of mem0's metadata."""
    return {OWN: json.dumps(details.to_json(), ensure_ascii=False)}


def versions_of(reply: Any) -> list[RecordVersion]:
    """Return a memory's versions, newest first; changes that kept the text are left out."""
    rows = [whole(row) for row in reply if isinstance(row, dict)] if isinstance(reply, list) else []
    versions: list[RecordVersion] = []
    for row in sorted(rows, key=_changed_at):
        text, since = row.get("new_memory"), read_moment(row.get("updated_at"))
        since = since or read_moment(row.get("created_at"))
        is_same = versions and versions[-1].text == text and versions[-1].valid_to is None
        if versions and not is_same and versions[-1].valid_to is None:
            versions[-1] = versions[-1].model_copy(update={"valid_to": since})
        if isinstance(text, str) and not is_same:
            actor = row.get("actor_id")
            author = actor if isinstance(actor, str) else None
            versions.append(RecordVersion(text=text, valid_from=since, created_by=author))
    return versions[::-1]


def _changed_at(row: Json) -> datetime:
    moment = read_moment(row.get("updated_at")) or read_moment(row.get("created_at"))
    return moment or datetime.min.replace(tzinfo=UTC)
