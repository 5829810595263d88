"""The facts of Hermes Agent's plugin `holographic`: the table `facts` of its `memory_store.db`.

Hermes derives from a fact's text the entities that it names and a vector, and from the vectors of
a category a bank. An edit makes entities and vector as Hermes would. It removes the bank, which
Hermes makes anew with the category's next change; until then it searches the vectors themselves.
"""

import cmath
import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil, tau
from typing import Any, ClassVar, Self

from sqlalchemy import Connection

from memtui.contract import (
    BindingContext,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    Invalid,
    Json,
    Scope,
    WriteRequest,
    owner_of,
    owner_words,
)
from memtui.provider_kit import read_moment
from memtui.provider_kit.databases import DatabasePool
from memtui.provider_kit.rows import Row, RowTable, revision_of, row_from_json, row_to_json
from memtui.provider_kit.tables import TablesAdapter, TablesConfig

_CATEGORY = "general"
"""Hermes's category of a fact for which none is given."""
_DIMENSIONS = 1024
"""Hermes's usual size of a vector."""
_NUMBERS_A_DIGEST = 16
_NAMES = (
    re.compile(r"\b([A-Z][a-z]+(?:\s+[A-Z][a-z]+)+)\b"),
    re.compile(r'"([^"]+)"'),
    re.compile(r"'([^']+)'"),
)
"""What Hermes takes for an entity: capitalised words and quoted ones, and what is "aka" another."""
_WORDS = re.compile(r"\w+(?:\s+\w+)*")
_ALSO = re.compile(r"aka|also known as", re.IGNORECASE)
_MARKS = ".,!?;:\"'()[]{}"


class HermesFactsConfig(TablesConfig):
    """The facts of Hermes's plugin `holographic`: `memory_store.db` in its home or a profile."""

    project_id: str | None = None
    """The project that the facts belong to; unset means the whole company."""
    agent_id: str | None = None
    """The agent that the facts belong to; unset means every agent."""
    subject_id: str | None = None
    """The user that the facts are about; unset means nobody in particular."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config = super().of(context)
        if config.path is None:
            raise Invalid("Hermes keeps its facts in a SQLite file; set path, and no url.")
        return config


class HermesFactsAdapter(TablesAdapter[HermesFactsConfig]):
    """A record is a fact: its topic is the category, none is `general`; the counts are metadata."""

    key: ClassVar[str] = "hermes-facts"
    config_model = HermesFactsConfig
    lacks = frozenset({"source", "kind", "title", "created_by", "metadata"})
    table = "facts"
    keys = ("fact_id",)
    needs = frozenset({"content", "category", "tags", "trust_score", "hrr_vector", "updated_at"})
    beside = "fact_entities"
    once = "content"
    counted = frozenset({"retrieval_count"})

    def __init__(
        self, context: BindingContext, config: HermesFactsConfig, database: DatabasePool
    ) -> None:
        super().__init__(context, config, database)
        ids = config.model_dump(include={"project_id", "agent_id", "subject_id"})
        self._scope = Scope(company_id=context.company_id, **ids)

    def key_of(self, record_id: str) -> Row | None:
        """Return the number of a fact."""
        return {"fact_id": int(record_id)} if re.fullmatch("[0-9]{1,18}", record_id) else None

    def scope_of(self, row: Row) -> Scope:
        """Return the binding's owner: Hermes keeps one user's facts."""
        del row
        return self._scope

    def record_of(self, row: Row) -> Json:
        """Return the record of a fact."""
        created_at = read_moment(row["created_at"])
        return {
            "text": row["content"],
            "kind": "fact",
            "topic": None if row["category"] == _CATEGORY else row["category"],
            "tags": tuple(tag for one in (row["tags"] or "").split(",") if (tag := one.strip())),
            "created_at": created_at,
            "updated_at": read_moment(row["updated_at"]) or created_at,
            "metadata": {
                name: row[name]
                for name in ("trust_score", "retrieval_count", "helpful_count")
                if name in row
            },
        }

    def new_row(self, request: WriteRequest, record_id: str | None, now: datetime) -> Row:
        """Return the row of a write; Hermes's table gives number, trust and counts."""
        del record_id
        if owner_of(request.scope) != owner_of(self._scope):
            raise Invalid(
                f"The facts of the binding {self.context.binding_key} are those of "
                f"{owner_words(self._scope)}, not of {owner_words(request.scope)}; write there."
            )
        return {
            "content": _as_written(request.content),
            "category": request.topic or _CATEGORY,
            "tags": _joined(request.tags),
            "created_at": _spelled(request.created_at or now),
            "updated_at": _spelled(now),
        }

    def corrected(self, row: Row, request: CorrectRequest, now: datetime) -> Row:
        """Return the new text, category and tags, and the time."""
        del row
        changes: dict[str, Any] = {"updated_at": _spelled(now)}
        if request.text is not None:
            changes["content"] = _as_written(request.text)
        if request.topic is not None:
            changes["category"] = request.topic or _CATEGORY
        if request.tags is not None:
            changes["tags"] = _joined(request.tags)
        return changes

    def derive(self, connection: Connection, before: Row | None, after: Row | None) -> None:
        """Link a new text's entities, make its vector, and remove the banks that are now wrong."""
        was, now = before or {}, after or {}
        if after is not None and was.get("content") != after["content"]:
            self._derive(connection, after)
        elif was.get("category") == now.get("category"):
            return
        for category in {one["category"] for one in (was, now) if one}:
            _run(connection, "DELETE FROM memory_banks WHERE bank_name = ?", f"cat:{category}")

    def _derive(self, connection: Connection, row: Row) -> None:
        number, text = row["fact_id"], row["content"]
        for name in entities_in(text):
            values = "(fact_id, entity_id) VALUES (?, ?)"
            entity = _entity(connection, name)
            _run(connection, f"INSERT OR IGNORE INTO fact_entities {values}", number, entity)
        others, size = _run(
            connection, "SELECT count(*), max(length(hrr_vector)) FROM facts WHERE fact_id <> ?",
            number,
        )[0]  # fmt: skip
        vector = None
        # Without numpy Hermes makes no vectors, and with one vector alone it would find no others.
        if size or not others:
            names = [one["name"] for one in _entities_of(connection, row)]
            vector = fact_vector(text, names, (size or 8 * _DIMENSIONS) // 8)
        _run(connection, "UPDATE facts SET hrr_vector = ? WHERE fact_id = ?", vector, number)

    def noted(self, connection: Connection, rows: Sequence[Row | None]) -> Sequence[Json]:
        """Return the entities of each fact and, with the first, the banks of all."""
        [(last,)] = _run(connection, "SELECT coalesce(max(entity_id), 0) FROM entities")
        notes: list[Json] = [
            {
                "category": row and row["category"],
                "entities": list(map(row_to_json, _entities_of(connection, row) if row else ())),
                "last_entity": last,
            }
            for row in rows
        ]
        categories = {f"cat:{row['category']}" for row in rows if row}
        banks = RowTable.find(connection, "memory_banks")
        if notes and banks is not None:
            notes[0]["banks"] = [
                {**row_to_json(one), "of": _bank_digest(connection, one["bank_name"])}
                for one in banks.every(connection)
                if one["bank_name"] in categories or None in rows
            ]
        return notes

    def put_back(
        self, connection: Connection, wanted: Sequence[Json], found: Sequence[Json]
    ) -> None:
        """Restore the facts' entities, and the banks whose vectors are what they were."""
        entities, banks = (RowTable.find(connection, one) for one in ("entities", "memory_banks"))
        if entities is None or banks is None:
            return
        for want, there in zip(wanted, found, strict=True):
            for one in map(row_from_json, want.get("entities", ())):
                if not entities.of_key(connection, {"entity_id": one["entity_id"]}):
                    entities.insert(connection, one)
            for one in there["entities"]:
                _run(
                    connection, "DELETE FROM entities WHERE entity_id = ? AND entity_id > ? AND "
                    "entity_id NOT IN (SELECT entity_id FROM fact_entities)",
                    one["entity_id"], want.get("last_entity", one["entity_id"]),
                )  # fmt: skip
        for category in {one.get("category") for one in (*wanted, *found)} - {None}:
            banks.delete(connection, {"bank_name": f"cat:{category}"})
        for one in (one for want in wanted for one in want.get("banks", ())):
            bank = row_from_json({name: value for name, value in one.items() if name != "of"})
            if _bank_digest(connection, bank["bank_name"]) == one["of"]:
                banks.delete(connection, {"bank_name": bank["bank_name"]})
                banks.insert(connection, bank)

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Say what the file keeps of erased facts."""
        reply = await super().erase(request)
        names = "Hermes keeps the names that it found in facts in its table entities."
        return reply.model_copy(update={"beyond": (*reply.beyond, names)})


def _run(connection: Connection, statement: str, *values: Any) -> Sequence[Any]:
    found = connection.exec_driver_sql(statement, values)
    return found.fetchall() if found.returns_rows else ()


def _as_written(text: str) -> str:
    if not text.strip() or text != text.strip():
        raise Invalid("Hermes takes the blanks around a fact away; remove them.")
    return text


def _joined(tags: Sequence[str]) -> str:
    if any("," in tag or tag != tag.strip() for tag in tags):
        raise Invalid("Hermes separates tags by commas; use tags without commas and outer blanks.")
    return ",".join(tags)


def _spelled(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def entities_in(text: str) -> list[str]:
    """Return the entities that Hermes finds in a text, each in its first spelling."""
    names = [one[1].strip() for pattern in _NAMES for one in pattern.finditer(text)]
    names += (one for run in _WORDS.finditer(text) for one in _also_known(run[0]))
    found: dict[str, str] = {}
    for name in filter(None, names):
        found.setdefault(name.lower(), name)
    return list(found.values())


def _also_known(words: str) -> tuple[str, ...]:
    """Return the words before and after the last "aka" or "also known as".

    Hermes has one expression for it, which takes minutes for a page of text.
    """
    spans = [one.span() for one in re.finditer(r"\w+", words)]
    for first in range(len(spans) - 2, 0, -1):
        for last in (first, first + 2):
            if last < len(spans) - 1 and _ALSO.fullmatch(words, spans[first][0], spans[last][1]):
                return words[: spans[first - 1][1]], words[spans[last + 1][0] :]
    return ()


def _entity(connection: Connection, name: str) -> int:
    """Return the number of an entity, which is added if there is none of such a name or alias."""
    for test in ("name LIKE ?", "',' || aliases || ',' LIKE '%,' || ? || ',%'"):
        if there := _run(connection, f"SELECT entity_id FROM entities WHERE {test}", name):  # noqa: S608
            return int(there[0][0])
    added = _run(connection, "INSERT INTO entities (name) VALUES (?) RETURNING entity_id", name)
    return int(added[0][0])


def _entities_of(connection: Connection, row: Row) -> list[Row]:
    """Return the entities of a fact."""
    chosen = connection.exec_driver_sql(
        "SELECT e.* FROM entities e JOIN fact_entities USING (entity_id) WHERE fact_id = ?",
        (row["fact_id"],),
    )
    return [dict(one) for one in chosen.mappings()]


def _bank_digest(connection: Connection, name: str) -> str:
    """Return a digest of the vectors of which a bank is made."""
    vectors = _run(
        connection, "SELECT fact_id, hrr_vector FROM facts WHERE 'cat:' || category = ? "
        "AND hrr_vector IS NOT NULL ORDER BY fact_id", name,
    )  # fmt: skip
    return revision_of({str(number): vector for number, vector in vectors})


def fact_vector(text: str, entities: Sequence[str], size: int) -> bytes:
    """Return Hermes's vector of a fact: `size` angles, each 8 bytes.

    A word's angles are the numbers of SHA-256 digests. Words are summed as points of the unit
    circle; so are the text and each entity, each turned by the angles of its role.
    """
    words = [one for part in text.lower().split() if (one := part.strip(_MARKS))]
    as_text, as_entity = (_angles(f"__hrr_role_{one}__", size) for one in ("content", "entity"))
    bare = _summed(Counter(words), size) if words else _angles("__hrr_empty__", size)
    parts = [_turned(bare, as_text)]
    parts += (_turned(_angles(one.lower(), size), as_entity) for one in entities)
    points = ([cmath.rect(1, angle) for angle in part] for part in parts)
    return struct.pack(f"{size}d", *_angles_of(points))


def _summed(words: Counter[str], size: int) -> list[float]:
    return _angles_of(
        [count * cmath.rect(1, angle) for angle in _angles(word, size)]
        for word, count in words.items()
    )


def _angles_of(vectors: Iterable[list[complex]]) -> list[float]:
    """Return the angles of the sums of points."""
    return [cmath.phase(sum(points)) % tau for points in zip(*vectors, strict=True)]


def _turned(angles: list[float], by: list[float]) -> list[float]:
    return [(one + other) % tau for one, other in zip(angles, by, strict=True)]


def _angles(word: str, size: int) -> list[float]:
    """Return a word's angles."""
    blocks = range(ceil(size / _NUMBERS_A_DIGEST))
    digits = b"".join(hashlib.sha256(f"{word}:{one}".encode()).digest() for one in blocks)
    return [one * (tau / 2**16) for one in struct.unpack(f"<{len(digits) // 2}H", digits)[:size]]
