"""Reads and changes facts as rows; a row is changed only if it is still as it was read.

Times are read and written as text, so that a fact is restored with exactly the same digits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Delete,
    Integer,
    RowMapping,
    Select,
    Text,
    Update,
    and_,
    case,
    cast,
    delete,
    exists,
    false,
    func,
    insert,
    literal,
    literal_column,
    not_,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from memtui.backends.fact_base import DRIVE_PREFIX, MAKER, OWNER_IDS
from memtui.backends.facts.database import DETAILS, DRIVES, OWNERS, TABLES, USERS
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    Invalid,
    Json,
    Model,
    Namespace,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
    folded,
    owner_of,
)
from memtui.fuzzy import pattern
from memtui.provider_kit import read_moment
from memtui.provider_kit.databases import is_missing_parent, is_postgres
from memtui.provider_kit.matching import Test, translated
from memtui.provider_kit.pages import read_cursor, write_cursor
from memtui.text_analysis import FOLDED_AWAY, LETTERS, SPELLED_OUT
from memtui.text_analysis import folded as folded_text

KEY = "facts"
_CHUNK = 500
_SCOPE_IDS = ("agent_id", "issue_id", "run_id")
"""Ids of a scope for which the seed's tables have no column."""


def written(moment: datetime) -> str:
    """Return a moment in the format that both databases read."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec="microseconds")


def as_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return a time column as text, with all its digits."""
    return cast(column, Text)


class FactDetails(Model):
    """A row of `memtui_fact_details`: the values for which the seed's tables have no column."""

    updated_at: str | None = None
    expires_at: str | None = None
    pinned: bool = False
    topic: str | None = None
    tags: str = ""
    """One JSON string per line, with a line end before and after each."""
    source_kind: str | None = None
    agent_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    extra: str = "{}"
    """JSON: the scope's other ids, the source, the metadata, and who wrote it."""

    @classmethod
    def of(cls, request: WriteRequest, updated_at: str) -> FactDetails:
        """Return the details of a write."""
        scope, source = request.scope, request.source
        extra = {
            "scope": scope.model_dump(include={*_SCOPE_IDS}),
            "source": source and source.model_dump(mode="json", exclude_none=True),
            "metadata": {k: v for k, v in request.metadata.items() if k != MAKER},
            "created_by": request.created_by,
        }
        return cls(
            updated_at=updated_at,
            expires_at=written(request.expires_at) if request.expires_at else None,
            pinned=request.pinned,
            topic=request.topic,
            tags=tag_lines(request.tags),
            source_kind=source and source.kind.value,
            agent_id=scope.agent_id,
            issue_id=scope.issue_id or (source and source.issue_id),
            run_id=scope.run_id or (source and source.run_id),
            extra=json.dumps(extra, sort_keys=True),
        )

    def corrected(self, request: CorrectRequest, updated_at: str) -> FactDetails:
        """Return these details with the fields that a correction sets."""
        changes: Json = {"updated_at": updated_at, **request.changes("pinned", "topic")}
        if request.tags is not None:
            changes["tags"] = tag_lines(request.tags)
        if request.sets_expiry:
            changes["expires_at"] = written(request.expires_at) if request.expires_at else None
        return self.model_copy(update=changes)

    def fields(self) -> Json:
        """Return the record fields in these details; foreign JSON yields none."""
        extra = self._extra
        metadata, created_by = extra.get("metadata"), extra.get("created_by")
        try:
            source = SourceRef.model_validate(extra.get("source"))
        except ValidationError:
            source = None
        return {
            "source": source,
            "topic": self.topic,
            "tags": read_tags(self.tags),
            "created_by": created_by if isinstance(created_by, str) else None,
            "updated_at": read_moment(self.updated_at),
            "expires_at": read_moment(self.expires_at),
            "pinned": self.pinned,
            "metadata": metadata if isinstance(metadata, dict) else {},
        }

    def scope_ids(self) -> Json:
        """Return the scope ids in these details; foreign JSON yields none."""
        ids = self._extra.get("scope")
        given = ids if isinstance(ids, dict) else {}
        return {name: given[name] for name in _SCOPE_IDS if isinstance(given.get(name), str)}

    @property
    def _extra(self) -> Json:
        try:
            value = json.loads(self.extra)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class MemoryRow(Model):
    """A row of `user_memories` or `drive_memories`."""

    scope: str
    """`user` or `drive`."""
    owner: str
    id: str
    text: str
    created_at: str
    """With all digits that the database stores."""
    created_by: str | None = None
    source: str | None = None
    record_id: str
    """The record id: the row's id, with a prefix if both tables have it."""
    details: FactDetails | None = None

    @classmethod
    def of_row(cls, row: RowMapping) -> MemoryRow:
        """Return the fact of a row of the select in `rows`."""
        own = {name: row[name] for name in cls.model_fields if name != "details"}
        more = row.get("extra") is not None
        details = (
            FactDetails(**{name: row[name] for name in FactDetails.model_fields}) if more else None
        )
        return cls(**own, details=details)

    @property
    def handle(self) -> RecordHandle:
        """The record's handle."""
        return RecordHandle(provider_key=KEY, provider_record_id=self.record_id)

    @property
    def revision(self) -> str:
        """A digest of all of the fact's stored values."""
        text = self.model_dump_json(exclude={"record_id"})
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def record(self, company_id: str) -> Record:
        """Return the fact as the contract's record."""
        details = self.details or FactDetails()
        given = details.fields()
        created_at, own = read_moment(self.created_at), {OWNER_IDS[self.scope]: self.owner}
        given |= {
            "updated_at": given["updated_at"] or created_at,
            "created_by": given["created_by"] or self.created_by,
            "metadata": {**given["metadata"], **({MAKER: self.source} if self.source else {})},
        }
        return Record(
            handle=self.handle,
            text=self.text,
            scope=Scope(company_id=company_id, **details.scope_ids(), **own),
            kind="fact",
            created_at=created_at,
            revision=self.revision,
            **given,
        )


def tag_lines(tags: tuple[str, ...]) -> str:
    """Return tags in their stored form, each folded for comparison and as written."""
    return "".join(f"\n{json.dumps([folded(tag), tag])}\n" for tag in tags)


def read_tags(lines: str) -> tuple[str, ...]:
    """Return the tags as written of their stored form; a foreign line is none."""
    found = []
    for line in filter(None, lines.split("\n")):
        try:
            _, tag = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        found += [tag] if isinstance(tag, str) else []
    return tuple(found)


def _of_comment(comment_id: str) -> str:
    """Return the JSON at the start of a stored source that names this comment, to search for."""
    return f'"source": {{"comment_id": {json.dumps(comment_id)}, '


_u, _d = USERS.c, DRIVES.c
_SHARED_ID = exists(select(_u.id).where(_u.id == _d.id).correlate(DRIVES))
_ROWS = union_all(
    select(
        literal_column("'user'", Text).label("scope"),
        _u.userId.label("owner"), _u.id, _u.fact, _u.createdAt.label("created"),
        null().cast(Text).label("created_by"), _u.source, _u.id.label("record_id"),
    ),
    select(
        literal_column("'drive'", Text).label("scope"),
        _d.driveId.label("owner"), _d.id, _d.fact, _d.createdAt.label("created"),
        _d.createdBy.label("created_by"), _d.source,
        case((_SHARED_ID, literal(DRIVE_PREFIX, Text) + _d.id), else_=_d.id).label("record_id"),
    ),
).subquery("facts")  # fmt: skip
_r, _e = _ROWS.c, DETAILS.c
_COLUMNS = (
    _r.scope, _r.owner, _r.id, _r.fact.label("text"), as_text(_r.created).label("created_at"),
    _r.created_by, _r.source, _r.record_id,
)  # fmt: skip
_DETAIL_COLUMNS = (
    as_text(_e.updated_at).label("updated_at"), as_text(_e.expires_at).label("expires_at"),
    _e.pinned, _e.topic, _e.tags, _e.source_kind, _e.agent_id, _e.issue_id, _e.run_id, _e.extra,
)  # fmt: skip
_DETAIL_FIELDS = ("source_kind", "topic", "agent_id", "issue_id", "run_id", "tags")
_MOMENTS = ("updated_at", "expires_at")

Condition = ColumnElement[bool]


class FactRows:
    """Reads and changes facts in one transaction. Blocking."""

    def __init__(self, connection: Connection, *, has_details: bool) -> None:
        self._connection = connection
        self._has_details = has_details

    def by_handles(self, record_ids: Iterable[str], scope: Scope) -> dict[str, MemoryRow]:
        """Return the facts of these ids that are visible to the scope, expired ones included.

        Raises:
            Invalid: two rows have the same id.
        """
        # Some databases fail on text that they cannot store, even in a condition.
        names = {
            name
            for name in record_ids
            if "\0" not in name and not any("\ud800" <= char <= "\udfff" for char in name)
        }
        ids = sorted(names | {name.removeprefix(DRIVE_PREFIX) for name in names})
        found: dict[str, MemoryRow] = {}
        for start in range(0, len(ids), _CHUNK):
            chosen = self._select(_r.id.in_(ids[start : start + _CHUNK]), *_seen_by(scope))
            for fact in self._facts(chosen):
                if fact.record_id not in names:
                    continue
                if fact.record_id in found:
                    raise Invalid(
                        f"Two facts have the id {fact.record_id}; change one of them in the "
                        "database."
                    )
                found[fact.record_id] = fact
        return found

    def all_of(self, request: QueryRequest, now: datetime) -> list[MemoryRow]:
        """Return the facts of a query's scope, the oldest first."""
        conditions = [
            *_seen_by(request.scope), *_owned_by(request.owners), *self._not_expired(now),
        ]  # fmt: skip
        if request.topic is not None and self._has_details:
            conditions.append(or_(_e.topic.is_(None), _e.topic == request.topic))
        if request.as_of is not None:
            conditions.append(_r.created <= self._moment(written(request.as_of)))
        return list(self._facts(self._select(*conditions).order_by(_r.created, _r.record_id)))

    def every(self) -> Iterator[MemoryRow]:
        """Yield every fact, expired ones included."""
        return self._facts(self._select())

    def fill(self, facts: Sequence[MemoryRow]) -> None:
        """Insert facts unchanged into empty tables."""
        for kind, table in TABLES.items():
            values = [
                {
                    "id": one.id,
                    OWNERS[kind]: one.owner,
                    "fact": one.text,
                    "createdAt": one.created_at,
                    "source": one.source,
                    **({"createdBy": one.created_by} if kind == "drive" else {}),
                }
                for one in facts
                if one.scope == kind
            ]
            if values:
                self._connection.execute(insert(table), values)
        details = [
            one.details.model_dump() | {"scope": one.scope, "id": one.id}
            for one in facts
            if one.details
        ]
        if details:
            self._connection.execute(insert(DETAILS), details)

    def browse(
        self, request: BrowseRequest, now: datetime
    ) -> tuple[list[MemoryRow], int, str | None]:
        """Return a page, the exact total, and the next page's cursor.

        Raises:
            Invalid: the sort field is not supported, or the cursor is of another sort.
        """
        base = self._select(
            *_seen_by(request.scope),
            *_owned_by(request.owners),
            *self._matching(request.filter),
            *(() if request.expired else self._not_expired(now)),
        )
        total = self._connection.execute(
            select(func.count()).select_from(base.with_only_columns(_r.id).subquery())
        ).scalar_one()
        place = self._place(request.sort)
        if request.cursor is not None:
            base = base.where(self._behind(request.cursor, request.sort, place))
        is_down = request.sort.startswith("-")
        order = [place.desc(), _r.record_id.desc()] if is_down else [place, _r.record_id]
        shown_place = place if isinstance(place.type, Integer) else as_text(place)
        rows = self._connection.execute(
            base.add_columns(shown_place.label("place")).order_by(*order).limit(request.limit + 1)
        ).mappings().all()  # fmt: skip
        shown = rows[: request.limit]
        last = shown[-1] if len(rows) > request.limit else None
        cursor = write_cursor(request.sort, last["place"], last["record_id"]) if last else None
        return [MemoryRow.of_row(row) for row in shown], total, cursor

    def namespaces(self, now: datetime) -> list[Namespace]:
        """Return every user and drive that has facts."""
        owner = (_r.scope, _r.owner)
        chosen = self._select(*self._not_expired(now)).with_only_columns(*owner, func.count())
        rows = self._connection.execute(chosen.group_by(*owner).order_by(*owner)).all()
        return [Namespace(name=f"{kind}:{name}", kind=kind, records=n) for kind, name, n in rows]

    def _select(self, *conditions: Condition) -> Select[Any]:
        same = and_(_e.scope == _r.scope, _e.id == _r.id)
        rows = _ROWS.outerjoin(DETAILS, same) if self._has_details else _ROWS
        details = _DETAIL_COLUMNS if self._has_details else ()
        return select(*_COLUMNS, *details).select_from(rows).where(*conditions)

    def _facts(self, chosen: Select[Any]) -> Iterator[MemoryRow]:
        return map(MemoryRow.of_row, self._connection.execute(chosen).mappings())

    def _moment(self, text: str | None) -> ColumnElement[Any]:
        """Return a moment's text as a value of the time columns' type; None is NULL."""
        if text is None:
            return null()
        value = literal(text, Text)
        return cast(value, DateTime) if is_postgres(self._connection) else value

    def _not_expired(self, now: datetime) -> list[Condition]:
        if not self._has_details:
            return []
        return [or_(_e.expires_at.is_(None), _e.expires_at > self._moment(written(now)))]

    def _matching(self, wanted: Filter) -> Iterator[Condition]:
        columns: dict[str, ColumnElement[Any]] = {
            "subject_id": case((_r.scope == "user", _r.owner)),
            "project_id": case((_r.scope == "drive", _r.owner)),
            "kind": literal("fact", Text),
            "created_at": _r.created,
            "text": _folded(_r.fact, self._connection),
        }
        if self._has_details:
            columns |= {name: _e[name] for name in _DETAIL_FIELDS}
            columns["comment_id"] = _e.extra
        find = func.strpos if is_postgres(self._connection) else func.instr
        tests: dict[Test, Callable[[ColumnElement[Any], Any], Condition]] = {
            "is": lambda column, value: (
                find(column, _of_comment(value)) > 0 if column is _e.extra else column == str(value)
            ),
            "has": lambda column, tag: or_(
                *(find(column, f"\n[{json.dumps(folded(tag))[:-1]}{end}") > 0 for end in '"/')
            ),
            "from": lambda column, moment: column >= self._moment(written(moment)),
            "before": lambda column, moment: column < self._moment(written(moment)),
            "holds": lambda column, word: find(column, folded_text(word)) > 0,
            "finds": lambda column, word: column.regexp_match(pattern(folded_text(word))),
        }
        for clauses, excluded in translated(wanted, columns, tests):
            found = or_(false(), *clauses)
            yield not_(func.coalesce(found, false())) if excluded else found
        if wanted.alternatives:
            yield or_(*(and_(true(), *self._matching(one)) for one in wanted.alternatives))

    def _place(self, sort: str) -> ColumnElement[Any]:
        updated = func.coalesce(_e.updated_at, _r.created) if self._has_details else _r.created
        places: dict[str, ColumnElement[Any]] = {
            "created_at": _r.created,
            "updated_at": updated,
            "title": _r.fact,
            "size": func.length(_r.fact, type_=Integer),
        }
        name = sort.removeprefix("-")
        if name not in places:
            raise Invalid(f"Facts cannot be sorted by {name}; use {', '.join(places)}.")
        return places[name]

    def _behind(self, cursor: str, sort: str, place: ColumnElement[Any]) -> Condition:
        value, record_id = read_cursor(cursor, sort, int if sort.endswith("size") else str, str)
        is_moment = sort.endswith("_at")
        if is_moment and read_moment(value) is None:
            raise Invalid("The cursor belongs to another sort; start from the first page.")
        there = self._moment(str(value)) if is_moment else literal(value)
        if sort.startswith("-"):
            return or_(place < there, and_(place == there, _r.record_id < record_id))
        return or_(place > there, and_(place == there, _r.record_id > record_id))

    def check_room(self, scope: str, owner: str, max_facts: int) -> None:
        """Raise `Invalid` if the user or drive has no room for one more fact."""
        table = TABLES[scope]
        counted = select(func.count()).select_from(table).where(table.c[OWNERS[scope]] == owner)
        count = self._connection.execute(counted).scalar_one()
        if count >= max_facts:
            raise Invalid(
                f"The {scope} {owner} has {count} facts, and {max_facts} is the limit; forget one "
                "that is no longer needed."
            )

    def check_free(self, record_id: str) -> None:
        """Raise `Conflict` if either table has the id."""
        for table in TABLES.values():
            taken = select(table.c.id).where(table.c.id == record_id)
            if self._connection.execute(taken).first():
                raise Conflict(
                    f"A fact {record_id} exists already; write it with mode upsert in that fact's "
                    "scope, or leave the id out."
                )

    def add(self, fact: MemoryRow, creators: Sequence[str | None]) -> None:
        """Insert a fact, with the first of `creators` that the table accepts.

        Raises:
            NotFound: the user or the drive does not exist.
        """
        values = {
            "id": fact.id,
            OWNERS[fact.scope]: fact.owner,
            "fact": fact.text,
            "createdAt": self._moment(fact.created_at),
            "source": fact.source,
        }
        for created_by in creators:
            maker = {"createdBy": created_by} if fact.scope == "drive" else {}
            try:
                with self._connection.begin_nested():
                    self._connection.execute(insert(TABLES[fact.scope]).values(values | maker))
            except IntegrityError as error:
                if not is_missing_parent(error):
                    raise
                continue
            self._put_details(fact)
            return
        raise NotFound(
            f"There is no {fact.scope} {fact.owner} in this database, so it can have no facts; "
            "check the id."
        )

    def replace(self, before: MemoryRow, after: MemoryRow) -> None:
        """Change a fact's own row and details. Raises `Conflict` if it is no longer `before`."""
        values: dict[str, Any] = {"fact": after.text, "source": after.source}
        if after.created_at != before.created_at:
            values["createdAt"] = self._moment(after.created_at)
        if after.created_by != before.created_by:
            values["createdBy"] = after.created_by
        if values != {"fact": before.text, "source": before.source}:
            self._change(update(TABLES[before.scope]).values(values), before)
        if after.details != before.details:
            self._put_details(after)

    def remove(self, fact: MemoryRow) -> None:
        """Delete a fact. Raises `Conflict` if it is no longer as it was read."""
        self._change(delete(TABLES[fact.scope]), fact)
        self._drop_details(fact)

    def _put_details(self, fact: MemoryRow) -> None:
        self._drop_details(fact)
        if self._has_details and fact.details is not None:
            values = fact.details.model_dump() | {"scope": fact.scope, "id": fact.id}
            values |= {name: self._moment(values[name]) for name in _MOMENTS}
            self._connection.execute(insert(DETAILS).values(values))

    def _drop_details(self, fact: MemoryRow) -> None:
        if self._has_details:
            same = and_(DETAILS.c.scope == fact.scope, DETAILS.c.id == fact.id)
            self._connection.execute(delete(DETAILS).where(same))

    def _change(self, statement: Update | Delete, fact: MemoryRow) -> None:
        """Change a row if it is exactly as it was read; otherwise raise `Conflict`."""
        column = TABLES[fact.scope].c
        conditions = [
            column.id == fact.id,
            column[OWNERS[fact.scope]] == fact.owner,
            column.fact == fact.text,
            as_text(column.createdAt) == fact.created_at,
            column.source.is_not_distinct_from(fact.source),
        ]
        if fact.scope == "drive":
            conditions.append(column.createdBy.is_not_distinct_from(fact.created_by))
        if self._connection.execute(statement.where(*conditions)).rowcount != 1:
            raise Conflict(
                f"Another program changed the fact {fact.record_id} at this moment; read it again."
            )


def _folded(column: ColumnElement[str], connection: Connection) -> ColumnElement[str]:
    """Return the SQL of `memtui.text_analysis.folded`."""
    if not is_postgres(connection):
        return func.memtui_folded(column)
    normalize = func.pg_catalog.normalize
    plain = func.lower(func.regexp_replace(normalize(column, "NFKD"), f"[{FOLDED_AWAY}]", "", "g"))
    plain = func.translate(plain, "".join(LETTERS), "".join(LETTERS.values()))
    for letter, two in SPELLED_OUT.items():
        plain = func.replace(plain, letter, two)
    return normalize(plain, "NFC")


def _seen_by(scope: Scope) -> list[Condition]:
    """Return the condition for the facts of the scope's project and of its subject.

    For a scope that names neither, there is no condition.
    """
    named = [("drive", scope.project_id), ("user", scope.subject_id)]
    owned = [and_(_r.scope == kind, _r.owner == owner) for kind, owner in named if owner]
    return [or_(*owned)] if owned else []


def _owned_by(owners: Sequence[Scope]) -> list[Condition]:
    """Return the condition for the facts of these owners; no owners: no condition.

    Agents and the company own no facts.
    """
    named = [owner_of(scope) for scope in owners]
    drives = [value for field, value in named if field == "project_id"]
    users = [value for field, value in named if field == "subject_id"]
    chosen = or_(
        and_(_r.scope == "drive", _r.owner.in_(drives)),
        and_(_r.scope == "user", _r.owner.in_(users)),
    )
    return [chosen] if owners else []
