"""The knowledge graph file of the MCP memory server (npm `@modelcontextprotocol/server-memory`).

Observations and relations are records. So are entities, but they are listed only if they have no
observations, or by `kind:entity`. A name may occur on several lines: the observations of all its
lines belong to one entity, each with its own line, in the order of the file. A relation may name
an entity that does not exist. Unknown keys are shown in the metadata.

The server rewrites the whole file at each change, from a version it read just before. So a change
here watches for `settle_ms` whether the server's next version still contains it, and is repeated
on that version if not (`memtui.provider_kit.files.shared`).
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from memtui.backends.mcp_memory.graph import (
    ARROW,
    ENTITY,
    OBSERVATION,
    RELATION,
    Graph,
    GraphRecord,
    is_whole,
    lines_found_by_server,
    merged,
    relation_ends,
)
from memtui.contract import (
    Adapter,
    BindingContext,
    Capabilities,
    Conflict,
    CorrectReply,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    Link,
    Links,
    MemtuiError,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    WriteMode,
    WriteReply,
    WriteRequest,
    owner_of,
    sees,
)
from memtui.provider_kit import blocking, check_revision
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.reading import FileReader, ParsedFile
from memtui.provider_kit.files.shared import SharedFile, content_of
from memtui.provider_kit.files.writing import WritableFilesAdapter, WrittenRecord
from memtui.provider_kit.pages import MOST_BACKLINKS

_OWNER_TYPES = {
    "project_id": "project",
    "subject_id": "person",
    "agent_id": "agent",
    "company_id": "company",
}
"""The type of an entity that is named after an owner, by the owner's scope field."""
_OWN_KINDS = frozenset({ENTITY, OBSERVATION, RELATION, "note"})


class McpMemoryConfig(FilesConfig):
    """The knowledge graph of an MCP memory server: the file that `MEMORY_FILE_PATH` names."""

    entity: str | None = None
    """The entity that gets observations without a title; unset: the entity named after the project,
    user, agent or company that they are written for."""
    settle_ms: int = Field(default=100, ge=0, le=10_000)
    """How long to watch after each change, in milliseconds, whether the server undoes it; at least
    a second if the server has just written. 0: not at all."""


class McpMemoryAdapter(WritableFilesAdapter[McpMemoryConfig]):
    """Shows a knowledge graph, one record per observation, and changes it while the server runs.

    An observation is written to the entity that the title names, or else to the `entity` of the
    config, or else to one named after the owner; a new entity from a title gets the topic as its
    type. A record of the kind `entity` has the name as its text, one of the kind `relation`
    `from → relation → to`. Ids are made from the content, so a correction changes them.
    """

    key: ClassVar[str] = "mcp-memory"
    config_model = McpMemoryConfig
    holds = "file"
    capabilities = Capabilities(
        browse=True, correction=True, restore=True, full_text=True, agents_search=True, watch=True,
        links=True,
    )  # fmt: skip

    def __init__(self, context: BindingContext, config: McpMemoryConfig) -> None:
        super().__init__(context, config)
        self._file = SharedFile(
            Path(os.path.realpath(config.path)),
            marker=self.marker,
            is_whole=is_whole,
            merge=merged,
            settle_seconds=config.settle_ms / 1000,
        )

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:
        """Return the entity for writes in a scope without a title."""
        return f"entity {_entity_for(McpMemoryConfig.model_validate(config), scope)[0]}"

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:
        """Raise `Invalid` for a record that the graph cannot represent."""
        del config
        if record.pinned or record.expires_at is not None:
            raise Invalid("A knowledge graph stores no pins and no expiry; leave them out.")
        if record.kind == RELATION:
            relation_ends(record.text)

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the one file."""
        parsed = reader.parse(self.config.path, parse_graph)
        return [] if parsed is None else [(self.config.path, parsed)]

    def is_listed(self, record: Record) -> bool:
        """Whether the record is listed: an entity with observations is not."""
        return not (record.kind == ENTITY and record.metadata.get("observations"))

    def found_by_agents(self, query: str, records: dict[str, Record]) -> Iterable[Record]:
        """Return the matches of the server's `search_nodes`: entities and their relations.

        Raises:
            Unavailable: the server would fail at this query.
        """
        text = self._content().decode("utf-8", "replace")
        lines = lines_found_by_server(text.split("\n"), query)
        return (
            record
            for record in records.values()
            if record.location and record.location.line in lines and self.is_listed(record)
        )

    @blocking
    def links(self, handles: Sequence[RecordHandle], scope: Scope) -> Mapping[str, Links]:
        """Return the relations from and to each record's entity; for a relation, its ends."""
        records = {name: one for name, one in self._load()[0].items() if sees(scope, one.scope)}
        entities = {one.text: one for one in records.values() if one.kind == ENTITY}
        going: dict[str, list[Link]] = defaultdict(list)
        coming: dict[str, list[Link]] = defaultdict(list)
        for one in records.values():
            if one.kind == RELATION:
                start, relation, end = _ends_of(one)
                going[start].append(_link(end, entities.get(end), relation, one))
                coming[end].append(_link(start, entities.get(start) or one, relation, one))
        found: dict[str, Links] = {}
        for record_id in (handle.provider_record_id for handle in handles):
            record = records.get(record_id)
            if record is not None and record.kind == RELATION:
                start, _, end = _ends_of(record)
                links = [_link(name, entities.get(name), "", record) for name in (start, end)]
                found[record_id] = Links(links=tuple(links))
            elif record is not None:
                name = record.text if record.kind == ENTITY else record.title or ""
                to_it = coming[name]
                found[record_id] = Links(
                    links=tuple(going[name]),
                    backlinks=tuple(to_it[:MOST_BACKLINKS]),
                    backlinks_capped=len(to_it) > MOST_BACKLINKS,
                )
        return {name: one for name, one in found.items() if one.links or one.backlinks}

    async def without(self, record_ids: Collection[str]) -> Adapter:
        """Raise `Unsupported`: forgetting a record can remove others, or list its entity again."""
        return await Adapter.without(self, record_ids)

    # Changes. Each is an edit of a given graph, and is repeated if the server overwrites the file
    # with an older version; so each edit aims at a final state.

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Add an observation, an entity or a relation; an upsert of one that is there adds none."""
        wanted, entity_type = self._wanted(request)
        topic = None if wanted.kind == ENTITY else request.topic  # the file has an entity's type
        kind = None if request.kind in _OWN_KINDS else request.kind
        known = self.known_of(request.model_copy(update={"topic": topic}), kind=kind)
        count = 0
        """Number of equal records in the final state; 0: not determined yet."""
        there: list[str] = []
        """Ids of equal records that make an upsert unnecessary."""

        def edit(graph: Graph) -> None:
            nonlocal count
            same = graph.ids(wanted)
            if not count:
                there.extend(self._upserted(graph, same, request))
                if same and wanted.kind == ENTITY and not there:
                    raise Conflict(f"The entity {wanted.entity} exists already; add to it.")
                count = len(same) + (not there)
            if len(same) >= count:
                return
            if wanted.kind == OBSERVATION:
                graph.add_observation(wanted.entity, entity_type, wanted.text)
            elif wanted.kind == ENTITY:
                graph.add_entity(wanted.entity, entity_type)
            else:
                graph.add_relation(wanted.ends)

        def written(graph: Graph) -> str:
            ids = graph.ids(wanted)
            return there[-1] if there and there[-1] in ids else ids[-1]

        def known_then(before: Graph, after: Graph) -> dict[str, WrittenRecord | None]:
            if there and before.find(written(after)) is not None:
                return {}
            new = _new_entity(before, after, wanted)
            own: Json = {"kind": None, "topic": None, "tags": (), "metadata": {}}
            return {written(after): known, **dict.fromkeys(new, known.model_copy(update=own))}

        with self.changing():
            before, after = self._change(edit, known_then)
            handle = self._handle(written(after))
            old = self._snapshot(before, handle, request.scope)
        return WriteReply(records=(handle,), before=(old,))

    def _upserted(self, graph: Graph, same: list[str], request: WriteRequest) -> Iterator[str]:
        """Yield the equal records, visible to the scope, that make an upsert unnecessary."""
        for one in same if request.mode is WriteMode.UPSERT else ():
            if self._visible(graph, self._handle(one), request.scope) is not None:
                yield one

    def _wanted(self, request: WriteRequest) -> tuple[GraphRecord, str]:
        """Return the record to write, and the type of its entity if that is new."""
        text, title = request.content, (request.title or "").strip()
        if request.kind == RELATION:
            return _relation(text), ""
        if request.kind == ENTITY:
            return _entity(text), request.topic or ENTITY
        own = _entity_for(self.config, request.scope)
        kind = ENTITY if request.kind in _OWN_KINDS else request.kind
        name, entity_type = (title, request.topic or kind) if title else own
        return GraphRecord(id="", text=text, kind=OBSERVATION, entity=name), entity_type

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records; an entity with its observations and its relations."""
        chosen: dict[str, tuple[GraphRecord, Record]] = {}
        left: dict[str, int] = {}
        """Number of equal records that stay, by the id of each record to remove."""

        def edit(graph: Graph) -> None:
            if not left:
                chosen.update(self._to_forget(graph, request))
                for record_id, (found, _) in chosen.items():
                    left[record_id] = len(set(graph.ids(found)) - chosen.keys())
            gone: set[str] = set()
            for record_id, (found, record) in chosen.items():
                remaining = [one for one in graph.ids(found) if one not in gone]
                if len(remaining) > left[record_id]:
                    now = record_id if record_id in remaining else remaining[-1]
                    self._remove(graph, now, record)
                    gone.add(now)
            self._remove_unused(graph, [found for found, _ in chosen.values()])

        def known_then(before: Graph, after: Graph) -> dict[str, WrittenRecord | None]:
            return self._known_without(before, after, set(chosen))

        with self.changing():
            self._change(edit, known_then)
        ids = ((handle, handle.provider_record_id) for handle in request.handles)
        return ForgetReply(missing=tuple(handle for handle, one in ids if one not in chosen))

    def _to_forget(
        self, graph: Graph, request: ForgetRequest
    ) -> Iterator[tuple[str, tuple[GraphRecord, Record]]]:
        """Yield the existing records of a request. Raises `Conflict` for a stale revision."""
        for handle in request.handles:
            record_id = handle.provider_record_id
            record, found = self._visible(graph, handle, request.scope), graph.find(record_id)
            if record is not None and found is not None:
                check_revision(record, request.revisions.get(record_id))
                if found.kind == ENTITY:
                    self._refuse_others(graph, record)
                yield record_id, (found, record)

    def _refuse_others(self, graph: Graph, entity: Record) -> None:
        """Raise `Denied` if a record of an entity has another owner than the entity."""
        for record_id in graph.ids_about(entity.text):
            found = graph.find(record_id)
            if found is None:
                continue
            field, owner = owner_of(self._record(found, self.config.path, record_id).scope)
            if (field, owner) != owner_of(entity.scope):
                raise Denied(
                    f"The entity {entity.text} holds {record_id}, which belongs to the "
                    f"{_OWNER_TYPES[field]} {owner}; forget or move that first."
                )

    def _remove(self, graph: Graph, record_id: str, chosen: Record) -> None:
        """Remove a record. Raises `Conflict` for an entity that changed since it was chosen."""
        if (found := graph.find(record_id)) is not None:
            if found.kind == ENTITY:
                check_revision(self._record(found, self.config.path, record_id), chosen.revision)
            graph.remove(found)

    def _remove_unused(self, graph: Graph, gone: Iterable[GraphRecord]) -> None:
        """Remove entities that were created for observations, once those are removed."""
        for name in {one.entity for one in gone if one.kind == OBSERVATION}:
            if not self._known.keys().isdisjoint(graph.ids(_entity(name))):
                graph.remove_if_empty(name)

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a record's text; the topic of an entity is its type.

        Renaming an entity changes its relations too.
        """
        record_id = request.handle.provider_record_id
        old, new = GraphRecord(id="", text=""), GraphRecord(id="", text="")
        left = count = 0
        """Numbers of records with the old and with the new text in the final state."""

        def edit(graph: Graph) -> None:
            nonlocal old, new, left, count
            if not count:
                record = self._visible(graph, request.handle, request.scope)
                found = graph.find(record_id)
                if record is None or found is None:
                    raise self.missing(request.handle)
                check_revision(record, request.revision, request.text)
                old, new = found, _corrected(graph, found, request.text)
                if old.kind == ENTITY and new is not old:
                    self._refuse_others(graph, record)
                left, count = len(graph.ids(old)) - 1, len(graph.ids(new)) + 1
            if new is not old and len(graph.ids(new)) < count:
                graph.correct(_still_there(graph, record_id, old, left, request), new)
            if request.topic is not None and old.kind == ENTITY:
                graph.set_type({old.entity, new.entity}, request.topic)

        def corrected(graph: Graph) -> str:
            return record_id if new is old else graph.ids(new)[-1]

        def known_then(before: Graph, after: Graph) -> dict[str, WrittenRecord | None]:
            is_known = record_id in self._known or (request.topic, request.tags) != (None, None)
            its_own = known if is_known else None
            if new.kind == ENTITY:
                names = before.ids_about(old.entity), after.ids_about(new.entity)
                moved = {name: self._known.get(one) for one, name in zip(*names, strict=False)}
                own = its_own and its_own.model_copy(update={"topic": None})
                return {**dict.fromkeys(names[0]), **moved, corrected(after): own}
            changes = {} if new is old else self._known_without(before, after, {record_id})
            return {**changes, corrected(after): its_own}

        with self.changing():
            known = self.corrected(record_id, request)
            _, after = self._change(edit, known_then)
        return CorrectReply(handle=self._handle(corrected(after)))

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record with its place, an entity with its observations and relations."""
        self._load()
        graph = Graph(self._content())
        return [self._snapshot(graph, handle, scope) for handle in handles]

    def _snapshot(self, graph: Graph, handle: RecordHandle, scope: Scope) -> Snapshot:
        record = self._visible(graph, handle, scope)
        found = graph.find(handle.provider_record_id)
        if record is None or found is None:
            return Snapshot(handle=handle, record=None)
        ids = [handle.provider_record_id]
        if found.kind == OBSERVATION:
            ids += graph.ids(_entity(found.entity))
        elif found.kind == ENTITY:
            ids += graph.ids_about(found.entity)
        known = {one: kept for one in ids if (kept := self.known_json(one))}
        return Snapshot(handle=handle, record=record, state=graph.state(found) | {"known": known})

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put records back in their places; remove those whose snapshot has no record."""
        del scope
        back = [one for one in snapshots if one.record is not None]
        back.sort(key=lambda one: (one.state["line"], one.state.get("at", 0)))
        away = [one for one in snapshots if one.record is None]

        def edit(graph: Graph) -> None:
            ids = (one.handle.provider_record_id for one in away)
            gone = [found for one in ids if (found := graph.find(one)) is not None]
            for found in gone:
                graph.remove(found)
            self._remove_unused(graph, gone)
            graph.put_back({one.handle.provider_record_id: one.state for one in back})

        def known_then(before: Graph, after: Graph) -> dict[str, WrittenRecord | None]:
            gone = {one.handle.provider_record_id for one in away}
            changes = self._known_without(before, after, gone)
            for one in back:
                then: Mapping[str, Json] = one.state.get("known", {})
                changes |= {name: WrittenRecord.model_validate(kept) for name, kept in then.items()}
            return changes

        with self.changing():
            self._change(edit, known_then, is_undo=True)
        return WriteReply(records=tuple(one.handle for one in snapshots))

    def _content(self) -> bytes:
        self._require()
        return content_of(self.config.path) or b""

    def _change(
        self,
        edit: Callable[[Graph], None],
        known_then: Callable[[Graph, Graph], dict[str, WrittenRecord | None]],
        *,
        is_undo: bool = False,
    ) -> tuple[Graph, Graph]:
        """Change the file and the records' stored metadata; return the graph before and after.

        The metadata of new records (`known_then`) is stored before the file has them, so that a
        record with an owner is never shown to everybody.
        """
        first: Graph | None = None
        early: dict[str, WrittenRecord | None] = {}

        def changed(content: bytes) -> bytes:
            nonlocal first
            graph = Graph(content)
            if why := graph.why_foreign(is_undo=is_undo):
                raise Invalid(
                    f"{self.config.path} is no knowledge graph that memtui can change: {why}. Name "
                    "the file of the memory server, in which each line is an entity or a relation."
                )
            edit(graph)
            fresh = graph.content()
            if first is None:
                first = graph
                then = known_then(graph, Graph(fresh))
                early.update((name, one) for name, one in then.items() if not graph.find(name))
                self.keep_known(early)
            return fresh

        try:
            after = Graph(self._file.change(changed))
        except MemtuiError:
            self.keep_known(dict.fromkeys(early))
            raise
        before = first or after
        self.keep_known({**dict.fromkeys(early), **known_then(before, after)})
        return before, after

    def _visible(self, graph: Graph, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a record of the graph; None if no record of this id is visible to the scope."""
        found = graph.find(handle.provider_record_id)
        if found is None or handle.provider_key != self.key:
            return None
        record = self._record(found, self.config.path, handle.provider_record_id)
        return record if sees(scope, record.scope) else None

    def _known_without(
        self, before: Graph, after: Graph, gone: set[str]
    ) -> dict[str, WrittenRecord | None]:
        """Return the changes of stored metadata once records are gone.

        The next equal record inherits a removed record's id. With an entity, the metadata of its
        observations and relations is removed.
        """
        found = [one for record_id in gone if (one := before.find(record_id)) is not None]
        for name in {one.entity for one in found if one.kind != RELATION} - after.lines_of.keys():
            gone = gone | (set(before.ids_about(name)) - set(after.ids_about(name)))
        changes: dict[str, WrittenRecord | None] = {}
        for record_id in gone:
            if (one := before.find(record_id)) is not None:
                ids = before.ids(one)
                stay = [self._known.get(one) for one in ids if one not in gone]
                changes |= dict(zip_longest(ids, stay))
        return changes


def parse_graph(text: str) -> ParsedFile:
    """Parse the file; every line that is not blank yields records or a flaw."""
    return Graph(text.encode()).parsed()


def _ends_of(relation: Record) -> tuple[str, str, str]:
    """Return from, relation and to; not from the text, as a name may contain an arrow."""
    start, kind, end = (str(relation.metadata[name]) for name in ("from", "relation", "to"))
    return start, kind, end


def _link(name: str, end: Record | None, relation: str, stated: Record) -> Link:
    """Return a link to the entity of a name; `stated` is the relation's record."""
    return Link(
        target=name,
        relation=relation or None,
        handle=end.handle if end else None,
        title=name if end else None,
        scope=end.scope if end else None,
        location=stated.location,
    )


def _entity_for(config: McpMemoryConfig, scope: Scope) -> tuple[str, str]:
    """Return the entity for writes without a title, and its type if it is new."""
    field, owner = owner_of(scope)
    return (config.entity, ENTITY) if config.entity else (owner, _OWNER_TYPES[field])


def _entity(text: str) -> GraphRecord:
    return GraphRecord(id="", text=text.strip(), kind=ENTITY, entity=text.strip())


def _new_entity(before: Graph, after: Graph, wanted: GraphRecord) -> list[str]:
    """Return the id of the entity that was created for an observation, if any."""
    is_new = wanted.kind == OBSERVATION and wanted.entity not in before.lines_of
    return after.ids(_entity(wanted.entity)) if is_new else []


def _relation(text: str) -> GraphRecord:
    ends = relation_ends(text)
    return GraphRecord(id="", text=ARROW.join(ends), kind=RELATION, ends=ends)


def _corrected(graph: Graph, old: GraphRecord, text: str | None) -> GraphRecord:
    """Return the corrected record.

    Raises:
        Conflict: an entity would get the name of another one.
        Invalid: the text is no relation.
    """
    if text is None or text == old.text:
        return old
    if old.kind == OBSERVATION:
        return replace(old, text=text)
    new = _entity(text) if old.kind == ENTITY else _relation(text)
    if new.kind == ENTITY and graph.is_named(new.entity):
        raise Conflict(
            f"The graph has an entity {new.entity} already; move the observations there one by one."
        )
    return new


def _still_there(
    graph: Graph, record_id: str, old: GraphRecord, left: int, request: CorrectRequest
) -> GraphRecord:
    """Return the record to correct. Raises `Conflict` if it was removed meanwhile."""
    ids = graph.ids(old)
    found = graph.find(record_id if record_id in ids else ids[-1]) if ids else None
    if found is None or len(ids) <= left:
        raise Conflict(
            "The record was removed while you changed it; write it again if it is still true.",
            proposed=request.text,
        )
    return found
