"""Converts a plugin's memories to records and back, and their ids.

A record id is `<namespace>/<id>`, or the id that the caller gave, which the memory then stores: a
UUID is also the plugin's id, any other text is hashed into one.

Values for which the plugin contract has no field are stored in `propagation`, under memtui's key.
The rest of `propagation` belongs to others: it is shown as `metadata["propagation"]`, and every
write of the memory sends it back unchanged.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime

from memtui.backends.plugin_v1.config import NamespaceMap, is_namespace
from memtui.backends.plugin_v1.wire import Place, PluginMemory
from memtui.contract import Json, Record, RecordHandle, Scope, UtcDatetime, WriteRequest
from memtui.json_text import whole
from memtui.provider_kit import is_uuid
from memtui.provider_kit.kept import OWN, KeptFields, ScopeId

KEY = "plugin-v1"
_SEED = uuid.UUID("6a0f3f6e-5f0b-5c55-9a53-0d3c7a9b8e11")
_NOT_ADDRESSABLE = {".", ".."}
FOREIGN = "propagation"
IN_DETAILS = frozenset(KeptFields.model_fields) - {"expires_at", "pinned", "ids"}
"""The fields of a record for which the plugin contract has no field."""


def wire_id(namespace: str, given: str) -> str:
    """Return the UUID under which a caller's own id is stored."""
    if is_uuid(given):
        return given
    name = f"{namespace}/{given}".encode("utf-8", "surrogatepass")
    return str(uuid.uuid5(_SEED, name.hex()))


def split(record_id: str) -> Place | None:
    """Split `<namespace>/<id>`; None for any other id."""
    namespace, _, identity = record_id.partition("/")
    if not identity or identity in _NOT_ADDRESSABLE or not is_namespace(namespace):
        return None
    return namespace, identity


def places(record_id: str, readable: Sequence[str]) -> list[Place]:
    """Return the possible places of a record id within the readable namespaces."""
    place = split(record_id)
    if place is not None:
        return [place] if place[0] in readable else []
    found = [(namespace, wire_id(namespace, record_id)) for namespace in readable]
    if not is_uuid(record_id) and record_id not in _NOT_ADDRESSABLE:
        found += [(namespace, record_id) for namespace in readable]
    return found


def handle_of(memory: PluginMemory) -> RecordHandle:
    """Return a memory's handle.

    A caller's id counts only if the memory has its UUID, so that no memory claims another's id.
    """
    given = details_of(memory).id
    if given and split(given) is None and wire_id(memory.namespace, given) == memory.id:
        return handle(given)
    return handle(f"{memory.namespace}/{memory.id}")


def handle(record_id: str) -> RecordHandle:
    """Return the handle of an id."""
    return RecordHandle(provider_key=KEY, provider_record_id=record_id)


def record_of(memory: PluginMemory, namespaces: NamespaceMap) -> Record:
    """Return a memory as a record; `created_by` is the principal, or else the plugin's source."""
    details = details_of(memory)
    metadata = details.metadata
    if others := foreign(memory):
        metadata = {**metadata, FOREIGN: whole(others)}
    created_at = details.created_at or memory.created_at
    own = {"company_id": namespaces.company_id}
    return Record.like(
        details,
        handle=handle_of(memory),
        text=whole(memory.content),
        scope=Scope(**details.scope | namespaces.ids_of(memory.namespace) | own),
        source=details.source and details.source.model_copy(update=own),
        kind=details.kind or whole(memory.kind),
        created_at=created_at,
        updated_at=details.updated_at or created_at,
        created_by=details.created_by or whole(memory.source),
        expires_at=memory.expires_at or details.expires_at,
        pinned=memory.pin or details.pinned,
        revision=memory.revision,
        metadata=metadata,
    )


class PluginDetails(KeptFields):
    """memtui's own part of a memory; expiry and pin where the plugin itself keeps none."""

    id: str | None = None
    """The caller's id, where it is not the plugin's."""
    tags: tuple[str, ...] = ()
    updated_at: UtcDatetime | None = None
    scope: dict[ScopeId, str] = {}


def details_of(memory: PluginMemory) -> PluginDetails:
    """Return memtui's part of a memory, empty if there is none.

    Raises:
        ValueError: it cannot be read, so the memory's owner is unknown.
    """
    return PluginDetails.found_in(memory.raw["propagation"]) if is_ours(memory) else PluginDetails()


def is_readable(memory: PluginMemory) -> bool:
    """Whether memtui's part of a memory can be read, if there is one."""
    try:
        details_of(memory)
    except ValueError:
        return False
    return True


def is_ours(memory: PluginMemory) -> bool:
    """Whether the memory has memtui's part."""
    pending = memory.raw.get("propagation")
    return OWN in (pending if isinstance(pending, dict) else str(pending))


def foreign(memory: PluginMemory | None) -> Json:
    """Return the parts of a memory's propagation that are not memtui's."""
    pending = memory.raw.get("propagation") if memory else None
    if not isinstance(pending, dict):
        return {}
    return {name: value for name, value in pending.items() if name != OWN}


def propagation(details: PluginDetails, others: Json) -> Json:
    """Return the whole propagation of a memory."""
    return {**others, OWN: details.to_json()}


def details_for(
    request: WriteRequest, *, given_id: str | None, carry_expiry: bool, carry_pin: bool
) -> tuple[PluginDetails, Json]:
    """Return memtui's part of a new memory, and the others' from `metadata["propagation"]`."""
    metadata = dict(request.metadata)
    others: Json = {}
    if isinstance(metadata.get(FOREIGN), dict):
        others = {name: value for name, value in metadata.pop(FOREIGN).items() if name != OWN}
    details = PluginDetails.like(
        request,
        id=given_id,
        expires_at=request.expires_at if carry_expiry else None,
        pinned=request.pinned and carry_pin,
        scope=request.scope.model_dump(exclude={"company_id"}, exclude_none=True),
        metadata=metadata,
    )
    return details, others


def is_expired(memory: PluginMemory, now: datetime) -> bool:
    """Whether the memory has expired, by the plugin's field or by memtui's."""
    details = details_of(memory)
    ends = [memory.expires_at, details.expires_at]
    return any(end is not None and end <= now for end in ends)
