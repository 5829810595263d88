"""The statements that most commands run, as SQLAlchemy expressions over the tables.

`python -m memtui.store.statements` writes their SQL for SQLite into `memtui/store/compiled.py`, so
that a command need not import SQLAlchemy. SQL for PostgreSQL is made here at run time. The command
also writes the schema of an empty SQLite file, from the migrations, to `memtui/store/schema.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import PydanticUndefined
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Dialect,
    Double,
    Executable,
    Integer,
    LargeBinary,
    String,
    and_,
    bindparam,
    create_engine,
    delete,
    exists,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine
from sqlmodel import SQLModel

from memtui.store import tables
from memtui.store.columns import ForeignText, PicoDollars, Portable, UtcMicroseconds
from memtui.store.database import IDS_AT_ONCE, Compiled, Convert, migrate

Statement: TypeAlias = "Executable | dict[str, Any]"
"""One statement for every database, or one for each dialect by name."""

ROWS: tuple[type[SQLModel], ...] = (
    tables.CompanyTable,
    tables.BindingTable,
    tables.TargetTable,
    tables.MemberTable,
    tables.TokenTable,
    tables.SpendingLimitTable,
    tables.IntentTable,
    tables.PendingTable,
)
"""The tables that get a row class in `memtui.store.compiled`."""


def _is(columns: Any, *names: str) -> ColumnElement[bool]:
    return and_(*(columns[name] == bindparam(name) for name in names))


_COMPANIES, _BINDINGS, _TARGETS, _MEMBERS, _TOKENS, _LIMITS, _INTENTS, _PENDING = map(
    tables.table_of, ROWS
)
_company, _binding, _target, _member = _COMPANIES.c, _BINDINGS.c, _TARGETS.c, _MEMBERS.c
_token, _limit, _intent, _head = _TOKENS.c, _LIMITS.c, _INTENTS.c, tables.HEADS.c
_step, _link, _pending = tables.JOURNAL.c, tables.LINKS.c, _PENDING.c

COMPANIES = select(_COMPANIES).order_by(_company.created_at, _company.company_id)
COMPANY = select(_COMPANIES).where(_is(_company, "company_id"))
IS_USED = select(or_(select(_company.company_id).exists(), select(_head.company_id).exists()))
ADD_COMPANY = insert(_COMPANIES)
SET_READ_ONLY = (
    update(_COMPANIES)
    .where(_company.company_id == bindparam("company"))
    .values(read_only=bindparam("value"))
)
KEEP_PURGING = (
    update(_COMPANIES)
    .where(_company.company_id == bindparam("company"))
    .values(purge_after_days=bindparam("value"))
)

BINDINGS = (
    select(_BINDINGS).where(_is(_binding, "company_id")).order_by(_binding.created_at, _binding.key)
)
BINDING = select(_BINDINGS).where(_is(_binding, "company_id", "key"))
ADD_BINDING = insert(_BINDINGS)
REMOVE_BINDING = delete(_BINDINGS).where(_is(_binding, "binding_id"))

TARGETS = (
    select(_TARGETS)
    .where(_is(_target, "company_id"))
    .order_by(_target.target_type, _target.target_id)
)
ADD_TARGET = insert(_TARGETS)
REMOVE_TARGET = delete(_TARGETS).where(_is(_target, "company_id", "target_type", "target_id"))
REMOVE_TARGETS = delete(_TARGETS).where(_is(_target, "binding_id"))

MEMBERS = (
    select(_MEMBERS)
    .where(_is(_member, "company_id"))
    .order_by(_member.principal, _member.project_id)
)
ROLES = select(_MEMBERS).where(_is(_member, "company_id", "principal"))
ANY_MEMBER = select(_member.principal).where(_is(_member, "company_id")).limit(1)
ADD_MEMBER = insert(_MEMBERS)
REMOVE_MEMBER = delete(_MEMBERS).where(_is(_member, "company_id", "principal", "project_id"))

TOKENS = select(_TOKENS).where(_is(_token, "company_id")).order_by(_token.created_at)
TOKEN = select(_TOKENS).where(_is(_token, "digest"))
ADD_TOKEN = insert(_TOKENS)
REMOVE_TOKEN = delete(_TOKENS).where(_is(_token, "company_id", "label"))

LIMITS = (
    select(_LIMITS)
    .where(_is(_limit, "company_id"))
    .order_by(_limit.target_type, _limit.target_id, _limit.measure, _limit.period)
)
SET_LIMIT = {
    name: made.on_conflict_do_update(
        index_elements=list(_LIMITS.primary_key), set_={"amount": made.excluded.amount}
    )
    for name, made in (
        ("sqlite", sqlite.insert(_LIMITS)),
        ("postgresql", postgresql.insert(_LIMITS)),
    )
}
REMOVE_LIMIT = delete(_LIMITS).where(
    _is(_limit, "company_id", "target_type", "target_id", "measure", "period")
)


def _route(chosen_by: Any, bindings: Any, on: ColumnElement[bool]) -> Executable:
    """Return the SELECT of a row for each candidate binding and role of the person."""
    own = _member.company_id == _company.company_id
    is_persons = and_(own, _member.principal == bindparam("person"))
    return (
        select(
            _company.read_only,
            exists().where(own).correlate(_COMPANIES).label("closed"),
            chosen_by,
            *_binding,
            *_member,
        )
        .select_from(_COMPANIES.outerjoin(bindings, on).outerjoin(_MEMBERS, is_persons))
        .where(_company.company_id == bindparam("company"))
    )


ROUTE_BY_KEY = _route(
    literal("key"),
    _BINDINGS,
    and_(_binding.company_id == _company.company_id, _binding.key == bindparam("key")),
)
ROUTE_BY_TARGET = _route(
    _target.target_type,
    _TARGETS.join(_BINDINGS, _binding.binding_id == _target.binding_id),
    and_(
        _target.company_id == _company.company_id,
        or_(
            *(
                and_(_target.target_type == kind, _target.target_id == bindparam(kind))
                for kind in ("project", "agent", "company")
            )
        ),
    ),
)

HEAD = select(_head.seq, _head.digest, _head.salt).where(_is(_head, "company_id")).with_for_update()
HEAD_SEQ = select(_head.seq).where(_is(_head, "company_id"))
ADD_HEAD = {
    "sqlite": sqlite.insert(tables.HEADS).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(tables.HEADS).on_conflict_do_nothing(),
}
ADVANCE_HEAD = (
    update(tables.HEADS)
    .where(_head.company_id == bindparam("company"))
    .values(seq=bindparam("last_seq"), digest=bindparam("last_digest"))
)
_operation = tables.OPERATIONS.c

_written = (
    # COALESCE keeps SQLite off these indexes: run or hour narrows more.
    func.coalesce(_operation.operation_type, "") == "write",
    or_(*(func.coalesce(_operation.status, "") == one for one in ("ok", "unknown", "pending"))),
    func.coalesce(_operation.principal, "") == bindparam("principal", type_=ForeignText),
    func.coalesce(_operation.channel, "") != bindparam("excluding"),
)
WRITES_OF_RUN = select(func.count()).where(_is(_operation, "company_id", "run_id"), *_written)
WRITES_SINCE = select(func.count()).where(
    _is(_operation, "company_id"), _operation.started_at >= bindparam("since"), *_written
)
_saved = (_operation.operation_type == "write", _operation.status == "ok")
WRITE_OF_PROJECT = (
    select(_operation.seq).where(_is(_operation, "company_id", "project_id"), *_saved).limit(1)
)
WRITE_OF_SUBJECT = (
    select(_operation.seq).where(_is(_operation, "company_id", "subject_id"), *_saved).limit(1)
)
LOGGED_BY_ONE_DOOR = select(
    _head.seq
    == select(func.count())
    .where(_operation.company_id == _head.company_id, _operation.channel == bindparam("channel"))
    .scalar_subquery()
).where(_is(_head, "company_id"))
FIRST_HOT = select(func.min(_operation.seq)).where(_is(_operation, "company_id"))
CONTEXTS_OF_RUN = (
    select(_operation.request)
    .where(
        _is(_operation, "company_id", "run_id"),
        _operation.operation_type == "context",
        _operation.status == "ok",
    )
    .order_by(_operation.seq.desc())
)
ADD_OPERATION = insert(tables.OPERATIONS)
ADD_USAGE = insert(tables.USAGE)
ADD_HANDLE = insert(tables.HANDLES)

INTENTS = select(_INTENTS).order_by(_intent.started_at)
BEGIN_INTENT = insert(_INTENTS)
END_INTENT = delete(_INTENTS).where(_is(_intent, "operation_id"))

PENDING = (
    select(_PENDING)
    .where(_is(_pending, "company_id"))
    .order_by(_pending.pending_since, _pending.pending_id)
)
PENDING_ONE = select(_PENDING).where(_is(_pending, "company_id", "pending_id"))
PENDING_ALIKE = select(_pending.pending_id).where(_is(_pending, "company_id", "likeness"))
COUNT_PENDING = select(func.count()).where(_is(_pending, "company_id", "binding_key"))
ADD_PENDING = insert(_PENDING)
ASK_PENDING_AGAIN = (
    update(_PENDING)
    .where(_pending.company_id == bindparam("company"), _pending.pending_id == bindparam("pending"))
    .values(times=_pending.times + 1, last_at=bindparam("now"))
)
CLAIM_PENDING = (
    update(_PENDING)
    .where(_pending.company_id == bindparam("company"), _pending.pending_id == bindparam("pending"))
    .where(_pending.decider.is_(None))
    .values(decider=bindparam("operation"))
)
RELEASE_PENDING = (
    update(_PENDING)
    .where(_pending.company_id == bindparam("company"), _pending.decider == bindparam("operation"))
    .values(decider=null())
)
REMOVE_PENDING = delete(_PENDING).where(_is(_pending, "company_id", "pending_id"))

ADD_STEP = insert(tables.JOURNAL)
REMOVE_STEPS = delete(tables.JOURNAL).where(_is(_step, "company_id", "operation_id"))
STEPS = (
    select(_step.before, _step.after)
    .where(_is(_step, "company_id", "operation_id"), _step.erased_by.is_(None))
    .order_by(_step.ordinal)
)
STEPS_OF_RECORD = (
    select(_step.operation_id, _step.undoes, _step.before, _step.after)
    .where(_is(_step, "company_id", "binding_key", "provider_record_id"), _step.erased_by.is_(None))
    .order_by(_step.seq, _step.ordinal)
)
NEXT_STEP = (
    select(_step.seq, _step.before)
    .where(
        _is(_step, "company_id", "binding_key", "provider_record_id"),
        _step.operation_id != bindparam("operation"),
        or_(_step.seq > bindparam("after"), _step.started_at > bindparam("since")),
    )
    .order_by(_step.seq, _step.ordinal)
    .limit(1)
)
STEPS_SINCE = (
    select(
        _step.provider_record_id,
        _step.operation_id,
        _step.operation_type,
        _step.undoes,
        _step.started_at,
        _step.before,
        _step.after,
    )
    .where(
        _is(_step, "company_id", "binding_key"),
        _step.started_at > bindparam("since"),
        _step.provider_record_id != "",
        _step.erased_by.is_(None),
    )
    .order_by(_step.seq, _step.ordinal)
)
CHANGED_SINCE = select(_step.provider_record_id, _step.operation_id).where(
    _is(_step, "company_id", "binding_key"), _step.seq > bindparam("seq")
)
SETTINGS_SINCE = (
    select(_step.before)
    .where(
        _is(_step, "company_id"),
        _step.seq > bindparam("seq"),
        _step.provider_record_id == "",
        _step.erased_by.is_(None),
    )
    .order_by(_step.seq, _step.ordinal)
)
LAST_STEP = (
    select(_step.after)
    .where(
        _is(_step, "company_id", "binding_key", "provider_record_id"),
        _step.started_at <= bindparam("by"),
        _step.erased_by.is_(None),
    )
    .order_by(_step.seq.desc(), _step.ordinal.desc())
    .limit(1)
)
LAST_STEPS = (
    select(_step.provider_record_id, _step.after)
    .where(
        _is(_step, "company_id", "binding_key"),
        or_(*(_step.provider_record_id == bindparam(f"id_{n}") for n in range(IDS_AT_ONCE))),
        _step.started_at >= bindparam("since"),
        _step.erased_by.is_(None),
    )
    .order_by(_step.seq, _step.ordinal)
)
FIRST_STEP = select(_step.status, _step.before, _step.erased_by).where(
    _is(_step, "company_id", "operation_id"), _step.ordinal == 0
)
COUNT_STEPS = select(func.count()).where(
    _is(_step, "company_id", "operation_id"), _step.erased_by.is_(None)
)
FINDINGS = (
    select(_step.operation_id, _step.started_at, _step.before)
    .where(_is(_step, "company_id", "undoes"), _step.operation_type == "check")
    .order_by(_step.seq.desc())
)
UNDOING = (
    select(_step.operation_id, _step.started_at, _step.status)
    .where(
        _is(_step, "company_id", "undoes"),
        _step.operation_type == "undo",
        _step.ordinal == 0,
        or_(_step.status == "ok", _step.status == "unknown"),
    )
    .order_by(_step.seq.desc())
)
CHANGES = (
    select(_step.operation_id, _step.operation_type, _step.status)
    .where(
        _is(_step, "company_id"),
        _step.ordinal == 0,
        _step.operation_type != "check",
        or_(_step.status == "ok", _step.status == "unknown"),
    )
    .order_by(_step.seq.desc())
)
JOURNAL_BINDINGS = select(_step.binding_key).where(_is(_step, "company_id")).distinct()
_undone = tables.JOURNAL.alias()
FORGOTTEN_BY_HAND = (
    select(_step.before, _step.started_at)
    .where(
        _is(_step, "company_id"),
        _step.operation_type == "forget",
        _step.status == "ok",
        _step.principal.like("user:%"),
        ~tables.of_review(_step),
        _step.erased_by.is_(None),
        ~exists().where(
            _undone.c.company_id == _step.company_id,
            _undone.c.undoes == _step.operation_id,
            _undone.c.operation_type == "undo",
            _undone.c.status == "ok",
        ),
    )
    .order_by(_step.seq.desc())
    .limit(bindparam("most", type_=Integer))
)

_of_binding = _is(_link, "company_id", "binding_key")
LINK = select(_link.new_record_id).where(_of_binding, _is(_link, "old_record_id"))
OLDER_IDS = (
    select(_link.old_record_id)
    .where(_of_binding, _is(_link, "new_record_id"))
    .order_by(_link.old_record_id)
)
LINKS_OF = select(_link.old_record_id, _link.new_record_id).where(_of_binding)
ADD_LINK = insert(tables.LINKS)
MOVE_LINKS = (
    update(tables.LINKS)
    .where(_link.new_record_id == bindparam("old"))
    .where(_link.company_id == bindparam("company"), _link.binding_key == bindparam("binding"))
    .values(new_record_id=bindparam("new"))
)
REMOVE_LINKS = delete(tables.LINKS).where(
    _link.company_id == bindparam("company"),
    _link.binding_key == bindparam("binding"),
    or_(_link.old_record_id == bindparam("old"), _link.old_record_id == bindparam("new")),
)
REMOVE_LINKS_OF = delete(tables.LINKS).where(
    _link.company_id == bindparam("company"),
    _link.binding_key == bindparam("binding"),
    or_(_link.old_record_id == bindparam("record"), _link.new_record_id == bindparam("record")),
)


_CONVERTED: dict[type[TypeEngine[Any]], str] = {
    ForeignText: "text",
    UtcMicroseconds: "moment",
    PicoDollars: "dollars",
    Boolean: "flag",
    JSON: "json",
    Double: "number",
    **dict.fromkeys((BigInteger, Integer, LargeBinary, String), "plain"),
}
_HEADER = '''"""What SQLite runs of `memtui.store.statements`, and the rows that they find.

Generated by `python -m memtui.store.statements`: change it there and in `memtui.store.tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memtui.store.prepared import Prepared
'''


def compiled(statement: Statement, dialect: Dialect) -> Compiled:
    """Return a statement in a database's dialect, with the conversions of its tables."""
    made, binds, results = _compile(statement, dialect)
    return Compiled(
        sql=str(made),
        positional=bool(made.positional),
        binds=tuple((name, _stored(bind.type, dialect)) for name, bind in binds),
        results=tuple(_loaded(kind, dialect) for kind in results),
        constants={name: bind.value for name, bind in binds if not bind.required},
    )


def _compile(statement: Statement, dialect: Dialect) -> tuple[Any, list[Any], list[Any]]:
    chosen: Any = statement[dialect.name] if isinstance(statement, dict) else statement
    made = chosen.compile(dialect=dialect)
    names = made.positiontup if made.positional else made.bind_names.values()
    binds = [(name, made.binds[name]) for name in names]
    return made, binds, [column.type for column in getattr(chosen, "selected_columns", ())]


_SCHEMA_HEADER = '''"""What makes the tables in an empty SQLite file, one statement a line.

Generated by `python -m memtui.store.statements`: change the migrations.
"""

from __future__ import annotations

SCHEMA = """\\'''


def _stored(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    if isinstance(kind, Portable):
        return kind.stored
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _loaded(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    if isinstance(kind, Portable):
        return kind.loaded
    return kind.dialect_impl(dialect).result_processor(dialect, None)


def _kind(column: TypeEngine[Any]) -> str:
    kind = _CONVERTED[type(column)]
    return "optional_json" if isinstance(column, JSON) and column.none_as_null else kind


def source() -> str:
    """Return the content of `memtui/store/compiled.py`."""
    rows = [line for table in ROWS for line in _row(table)]
    statements = [
        line
        for name, one in globals().items()
        if isinstance(one, Executable) or (isinstance(one, dict) and "sqlite" in one)
        for line in _prepared(name, one)
    ]
    return "\n".join([_HEADER, *rows, *statements, ""])


def _row(table: type[SQLModel]) -> Iterator[str]:
    name = table.__name__.replace("Table", "Row")
    yield f'\n@dataclass(slots=True, kw_only=True)\nclass {name}:\n    """{table.__doc__}"""\n'
    for field, hint in table.__annotations__.items():
        if field.startswith("__"):
            continue
        default = table.model_fields[field].default
        written = json.dumps(default) if isinstance(default, str) else repr(default)
        yield f"    {field}: {hint}" + ("" if default is PydanticUndefined else f" = {written}")
    yield ""


def _prepared(name: str, statement: Statement) -> Iterator[str]:
    made, binds, results = _compile(statement, sqlite.dialect())
    sql = " ".join(str(made).split())
    quote = "'" if '"' in sql else '"'
    yield f'\n{name} = Prepared(\n    "{name}",\n    {quote}{sql}{quote},'
    if binds:
        yield f'    binds="{" ".join(f"{bind}={_kind(one.type)}" for bind, one in binds)}",'
    if results:
        yield f'    results="{" ".join(map(_kind, results))}",'
    if constants := {bind: one.value for bind, one in binds if not one.required}:
        yield "    constants={"
        yield from (f'        "{bind}": {json.dumps(value)},' for bind, value in constants.items())
        yield "    },"
    yield ")"


def schema_source() -> str:
    """Return the content of `memtui/store/schema.py`."""
    with create_engine("sqlite://").begin() as connection:
        migrate(connection)
        driver: Any = connection.connection.driver_connection
        _begin, *statements, _commit = driver.iterdump()
    lines = (" ".join(one.split()) for one in statements)
    # SQLAlchemy creates a table's indexes in arbitrary order.
    ordered = sorted(lines, key=lambda one: (not one.startswith("CREATE TABLE"), one))
    return "\n".join([_SCHEMA_HEADER, *ordered, '"""', ""])


if __name__ == "__main__":
    for name, made in (("compiled.py", source()), ("schema.py", schema_source())):
        Path(__file__).with_name(name).write_text(made, encoding="utf-8")
