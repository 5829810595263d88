"""The statements that most commands run, in SQL that SQLite and PostgreSQL share.

Importing SQLAlchemy takes longer than a command may take, so these do without it. A statement that
depends on a filter, or that DuckDB runs too, is made by SQLAlchemy where it is needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from memtui.contract import Usage
from memtui.patterns import late_pattern
from memtui.store.database import IDS_AT_ONCE, LOADED, DatabaseConnection, stored
from memtui.store.operation import COLUMNS
from memtui.store.rows import (
    BindingRow,
    CompanyRow,
    DismissedRiskRow,
    HandleLinkRow,
    HandleRow,
    IntentRow,
    JournalRow,
    MemberRow,
    PendingRow,
    RiskCheckRow,
    RiskRow,
    SpendingLimitRow,
    TargetRow,
    TokenRow,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")
_ROWS_AT_ONCE = 100
_PARAMETER = late_pattern(r":(\w+)")
_KINDS = {"str": "text", "datetime": "moment", "bool": "flag", "int": "plain"}
"""The kind of a column, by the type of a row's field; others are JSON."""


class Taken(Exception):
    """A row with this key exists."""


class Statement:
    """A statement, which runs in the transaction of its connection."""

    def __init__(self, sql: str, results: str = "", *, locks: bool = False) -> None:
        """Take its SQL, with parameters such as `:company_id`.

        Args:
            sql: Without a percent sign, which PostgreSQL's driver takes for a parameter.
            results: The kinds of the result columns (`memtui.store.database.LOADED`).
            locks: Whether it locks the rows that it finds. SQLite has one writer at a time.
        """
        self._sql = sql
        self._results = results.split()
        self._locks = locks

    def rows(self, connection: DatabaseConnection, /, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT."""
        return list(self.each(connection, **values))

    def each(
        self, connection: DatabaseConnection, /, **values: Any
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows of a SELECT, read in batches as they are consumed."""
        loads = [LOADED[connection.dialect][kind] for kind in self._results]
        cursor = self._execute(connection, values)
        try:
            while found := cursor.fetchmany(_ROWS_AT_ONCE):
                for row in found:
                    yield tuple(
                        value if load is None else load(value)
                        for load, value in zip(loads, row, strict=True)
                    )
        finally:
            cursor.close()

    def found(
        self, connection: DatabaseConnection, kind: type[RowT], /, **values: Any
    ) -> list[RowT]:
        """Return the rows of a SELECT of a table, as instances of `kind`."""
        names = [column.name for column in fields(kind)]
        rows = self.rows(connection, **values)
        return [kind(**dict(zip(names, row, strict=True))) for row in rows]

    def run(self, connection: DatabaseConnection, /, **values: Any) -> int:
        """Run a change; returns how many rows it changed.

        Raises:
            Taken: a row with the new row's key exists.
        """
        try:
            cursor = self._execute(connection, values)
        except Exception as error:
            if any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                raise Taken from error
            raise
        changed = int(cursor.rowcount)
        cursor.close()
        return changed

    def insert(self, connection: DatabaseConnection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows of stored values, in the order of the statement's columns."""
        if rows:
            positional = self._positional
            if connection.dialect != "sqlite":
                positional = positional.replace("?", "%s")
            cursor = connection.driver.cursor()
            cursor.executemany(positional, rows)
            cursor.close()

    def _execute(self, connection: DatabaseConnection, values: dict[str, Any]) -> Any:
        cursor = connection.driver.cursor()
        sql = self._sql if connection.dialect == "sqlite" else self._in_postgres
        cursor.execute(sql, {name: stored(value) for name, value in values.items()})
        return cursor

    @cached_property
    def _positional(self) -> str:
        return _PARAMETER.sub("?", self._sql)

    @cached_property
    def _in_postgres(self) -> str:
        locking = " FOR UPDATE" if self._locks else ""
        return _PARAMETER.sub(r"%(\1)s", self._sql) + locking


def _columns(kind: type[DataclassInstance], table: str = "") -> str:
    return ", ".join(f"{table}{column.name}" for column in fields(kind))


def _kinds(kind: type[DataclassInstance], columns: Sequence[str] = ()) -> str:
    """Return the kinds of some columns of a table, or of all."""
    types = {column.name: str(column.type).removesuffix(" | None") for column in fields(kind)}
    return " ".join(_KINDS.get(types[one], "json") for one in columns or types)


def _select(kind: type[DataclassInstance], source: str, columns: str = "") -> Statement:
    """Return the SELECT of some columns of a table, or of all."""
    names = columns.split()
    selected = ", ".join(names) or _columns(kind)
    return Statement(f"SELECT {selected} FROM {source}", _kinds(kind, names))


def _steps(columns: str, where: str) -> Statement:
    """Return the SELECT of some columns of a company's undo journal."""
    source = f"memory_undo_journal WHERE company_id = :company_id AND {where}"
    return _select(JournalRow, source, columns)


def _insert(table: str, columns: Sequence[str], otherwise: str = "") -> Statement:
    values = ", ".join(f":{column}" for column in columns)
    return Statement(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) {otherwise}")


def _remove(table: str, key: str) -> Statement:
    """Return the removal of the rows that have these values in the columns of a key."""
    where = " AND ".join(f"{column} = :{column}" for column in key.split())
    return Statement(f"DELETE FROM {table} WHERE {where}")


def update(table: str, columns: Iterable[str], key: str) -> Statement:
    """Return the change of some columns of the row with a key."""
    changes = ", ".join(f"{column} = :{column}" for column in columns)
    return Statement(f"UPDATE {table} SET {changes} WHERE {key} = :{key}")


def _add(kind: type[DataclassInstance], table: str, otherwise: str = "") -> Statement:
    return _insert(table, [column.name for column in fields(kind)], otherwise)


def _put(kind: type[DataclassInstance], table: str, key: str) -> Statement:
    """Return the addition of a row, in the place of the one with the same key."""
    others = (column.name for column in fields(kind) if column.name not in key.split())
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    conflict = f"ON CONFLICT ({', '.join(key.split())}) DO UPDATE SET {changes}"
    return _add(kind, table, conflict)


COMPANIES = _select(CompanyRow, "memory_companies ORDER BY created_at, company_id")
COMPANY = _select(CompanyRow, "memory_companies WHERE company_id = :company_id")
IS_USED = Statement(
    "SELECT EXISTS (SELECT 1 FROM memory_companies) OR EXISTS (SELECT 1 FROM memory_log_heads)",
    "flag",
)
ADD_COMPANY = _add(CompanyRow, "memory_companies")

BINDINGS = _select(
    BindingRow, "memory_bindings WHERE company_id = :company_id ORDER BY created_at, key"
)
BINDING = _select(BindingRow, "memory_bindings WHERE company_id = :company_id AND key = :key")
ADD_BINDING = _add(BindingRow, "memory_bindings")
REMOVE_BINDING = _remove("memory_bindings", "binding_id")

TARGETS = _select(
    TargetRow,
    "memory_binding_targets WHERE company_id = :company_id ORDER BY target_type, target_id",
)
ADD_TARGET = _add(TargetRow, "memory_binding_targets")
REMOVE_TARGET = _remove("memory_binding_targets", "company_id target_type target_id")
REMOVE_TARGETS = _remove("memory_binding_targets", "binding_id")

MEMBERS = _select(
    MemberRow, "memory_members WHERE company_id = :company_id ORDER BY principal, project_id"
)
ROLES = _select(
    MemberRow, "memory_members WHERE company_id = :company_id AND principal = :principal"
)
ANY_MEMBER = Statement(
    "SELECT principal FROM memory_members WHERE company_id = :company_id LIMIT 1", "text"
)
ADD_MEMBER = _add(MemberRow, "memory_members")
REMOVE_MEMBER = _remove("memory_members", "company_id principal project_id")

TOKENS = _select(TokenRow, "memory_tokens WHERE company_id = :company_id ORDER BY created_at")
TOKEN = _select(TokenRow, "memory_tokens WHERE digest = :digest")
ADD_TOKEN = _add(TokenRow, "memory_tokens")
REMOVE_TOKEN = _remove("memory_tokens", "company_id label")

LIMITS = _select(
    SpendingLimitRow,
    "memory_spending_limits WHERE company_id = :company_id "
    "ORDER BY target_type, target_id, measure, period",
)
_LIMIT = "company_id target_type target_id measure period"
SET_LIMIT = _put(SpendingLimitRow, "memory_spending_limits", _LIMIT)
REMOVE_LIMIT = _remove("memory_spending_limits", _LIMIT)
_SPENT_BY = ("agent_id", "project_id", "binding_key", "principal")
_SPENT_SUMS = ("tokens_high", "tokens_low", "cost_high", "cost_low", "unpriced_count")
_SPENDING = ("company_id", "since", *_SPENT_BY, *_SPENT_SUMS)
ADD_SPENDING = _insert(
    "memory_spending",
    _SPENDING,
    f"ON CONFLICT ({', '.join(('company_id', 'since', *_SPENT_BY))}) DO UPDATE SET "
    + ", ".join(f"{name} = memory_spending.{name} + excluded.{name}" for name in _SPENT_SUMS),
)
SPENT = Statement(
    f"SELECT {', '.join(_SPENT_BY)}, {', '.join(f'sum({name})' for name in _SPENT_SUMS)} "
    "FROM memory_spending WHERE company_id = :company_id AND since >= :since AND since < :until "
    f"GROUP BY {', '.join(_SPENT_BY)}",
    "text text text text plain plain plain plain plain",
)


def _route(chosen_by: str, bindings: str) -> Statement:
    """Return the SELECT of a row for each candidate binding and role of the person."""
    return Statement(
        "SELECT company.read_only, EXISTS (SELECT 1 FROM memory_members AS any_member "
        "WHERE any_member.company_id = company.company_id), "
        "EXISTS (SELECT 1 FROM memory_spending_limits AS any_limit WHERE any_limit.company_id = "
        f"company.company_id AND any_limit.action != 'warn'), "
        "EXISTS (SELECT 1 FROM memory_pending AS held "
        f"WHERE held.company_id = company.company_id AND held.hold_id IS NOT NULL), {chosen_by}, "
        f"{_columns(BindingRow, 'binding.')}, {_columns(MemberRow, 'member.')} "
        f"FROM memory_companies AS company LEFT JOIN {bindings} "
        "LEFT JOIN memory_members AS member "
        "ON member.company_id = company.company_id AND member.principal = :person "
        "WHERE company.company_id = :company",
        f"flag flag flag flag text {_kinds(BindingRow)} {_kinds(MemberRow)}",
    )


ROUTE_BY_KEY = _route(
    "'key'",
    "memory_bindings AS binding ON binding.company_id = company.company_id AND binding.key = :key",
)
ROUTE_BY_TARGET = _route(
    "target.target_type",
    "(memory_binding_targets AS target "
    "JOIN memory_bindings AS binding ON binding.binding_id = target.binding_id) "
    "ON target.company_id = company.company_id AND ("
    "target.target_type = 'project' AND target.target_id = :project "
    "OR target.target_type = 'agent' AND target.target_id = :agent "
    "OR target.target_type = 'company' AND target.target_id = :company)",
)

HEAD = Statement(
    "SELECT seq, digest, salt FROM memory_log_heads WHERE company_id = :company_id",
    "plain text plain",
    locks=True,
)
HEAD_SEQ = Statement("SELECT seq FROM memory_log_heads WHERE company_id = :company_id", "plain")
SALT = Statement("SELECT salt FROM memory_log_heads WHERE company_id = :company_id", "plain")
ADD_HEAD = _insert(
    "memory_log_heads", ("company_id", "seq", "digest", "salt"), "ON CONFLICT DO NOTHING"
)
ADVANCE_HEAD = Statement(
    "UPDATE memory_log_heads SET seq = :last_seq, digest = :last_digest WHERE company_id = :company"
)

# COALESCE keeps SQLite off these columns' indexes: run or hour narrows more.
_WRITTEN = (
    "coalesce(operation_type, '') = 'write' "
    "AND coalesce(status, '') IN ('ok', 'unknown', 'pending') "
    "AND coalesce(principal, '') = :principal AND coalesce(channel, '') != :excluding"
)
WRITES_OF_RUN = Statement(
    "SELECT count(*) FROM memory_operations "
    f"WHERE company_id = :company_id AND run_id = :run_id AND {_WRITTEN}",
    "plain",
)
WRITES_SINCE = Statement(
    "SELECT count(*) FROM memory_operations "
    f"WHERE company_id = :company_id AND started_at >= :since AND {_WRITTEN}",
    "plain",
)
WRITE_OF_PROJECT = Statement(
    "SELECT seq FROM memory_operations WHERE company_id = :company_id "
    "AND project_id = :project_id AND operation_type = 'write' AND status = 'ok' LIMIT 1",
    "plain",
)
WRITE_OF_SUBJECT = Statement(
    "SELECT seq FROM memory_operations WHERE company_id = :company_id "
    "AND subject_id = :subject_id AND operation_type = 'write' AND status = 'ok' LIMIT 1",
    "plain",
)
LOGGED_BY_ONE_DOOR = Statement(
    "SELECT seq = (SELECT count(*) FROM memory_operations "
    "WHERE company_id = head.company_id AND channel = :channel) "
    "FROM memory_log_heads AS head WHERE company_id = :company_id",
    "flag",
)
FIRST_HOT = Statement(
    "SELECT min(seq) FROM memory_operations WHERE company_id = :company_id", "plain"
)
CONTEXTS_OF_RUN = Statement(
    "SELECT request FROM memory_operations WHERE company_id = :company_id AND run_id = :run_id "
    "AND operation_type = 'context' AND status = 'ok' ORDER BY seq DESC",
    "json",
)
ADD_OPERATION = _insert(
    "memory_operations",
    ("company_id", "seq", *COLUMNS, "previous_digest", "digest", "salt", "salts", "absent"),
)
ADD_USAGE = _insert(
    "memory_usage",
    ("company_id", "seq", "ordinal", *Usage.model_fields),
)
ADD_HANDLE = _add(HandleRow, "memory_operation_handles")

INTENTS = _select(IntentRow, "memory_intents ORDER BY started_at")
BEGIN_INTENT = _add(IntentRow, "memory_intents")
END_INTENT = _remove("memory_intents", "operation_id")

PENDING = _select(
    PendingRow, "memory_pending WHERE company_id = :company_id ORDER BY pending_since, pending_id"
)
PENDING_ONE = _select(
    PendingRow, "memory_pending WHERE company_id = :company_id AND pending_id = :pending_id"
)
PENDING_ALIKE = Statement(
    "SELECT pending_id FROM memory_pending WHERE company_id = :company_id AND likeness = :likeness",
    "text",
)
COUNT_PENDING = Statement(
    "SELECT count(*) FROM memory_pending "
    "WHERE company_id = :company_id AND binding_key = :binding_key AND hold_id IS NULL",
    "plain",
)
DECIDED_FOR = Statement(
    "SELECT decided.before FROM memory_undo_journal AS step "
    "JOIN memory_undo_journal AS decided ON decided.company_id = step.company_id "
    "AND decided.operation_id = step.operation_id AND decided.provider_record_id = '' "
    "WHERE step.company_id = :company_id AND step.binding_key = :binding_key "
    "AND step.provider_record_id = :record_id",
    "json",
)
HELD = Statement(
    "SELECT pending.binding_key, pending.request, pending.base FROM memory_pending AS pending "
    "JOIN memory_bindings AS binding ON binding.company_id = pending.company_id "
    "AND binding.key = pending.binding_key AND binding.created_at = pending.binding_added_at "
    "WHERE pending.company_id = :company_id AND pending.hold_id IS NOT NULL",
    "text json json",
)
ADD_PENDING = _add(PendingRow, "memory_pending")
ASK_PENDING_AGAIN = Statement(
    "UPDATE memory_pending SET times = times + 1, last_at = :now "
    "WHERE company_id = :company AND pending_id = :pending"
)
CLAIM_PENDING = Statement(
    "UPDATE memory_pending SET decider = :operation "
    "WHERE company_id = :company AND pending_id = :pending AND decider IS NULL"
)
RELEASE_PENDING = Statement(
    "UPDATE memory_pending SET decider = NULL WHERE company_id = :company AND decider = :operation"
)
REMOVE_PENDING = _remove("memory_pending", "company_id pending_id")

_ID_LIST = f"({', '.join(f':id_{n}' for n in range(IDS_AT_ONCE))})"


def id_lists(ids: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield ids as arguments of a statement that takes a fixed number of them.

    The last id is repeated.
    """
    for start in range(0, len(ids), IDS_AT_ONCE):
        yield {f"id_{n}": ids[min(start + n, len(ids) - 1)] for n in range(IDS_AT_ONCE)}


_OF_BINDING = "company_id = :company_id AND binding_key = :binding_key"
_RISKS = (
    "SELECT risk.binding_key, risk.record_id, risk.reason, risk.other_id, risk.mark, "
    "own.project_id, own.subject_id, other.project_id, other.subject_id, "
    "own.checked_at IS NOT NULL, gone.mark IS NOT NULL FROM memory_risks AS risk "
    "JOIN memory_risk_checks AS own ON own.company_id = risk.company_id "
    "AND own.binding_key = risk.binding_key AND own.record_id = risk.record_id "
    "LEFT JOIN memory_risk_checks AS other ON other.company_id = risk.company_id "
    "AND other.binding_key = risk.binding_key AND other.record_id = risk.other_id "
    "LEFT JOIN memory_dismissed_risks AS gone ON gone.company_id = risk.company_id "
    "AND gone.mark = risk.mark WHERE risk.company_id = :company_id"
)
_RISK_KINDS = "text text text text text text text text text flag flag"
RISKS = Statement(_RISKS, _RISK_KINDS)
RISKS_OF = Statement(
    f"{_RISKS} AND risk.binding_key = :binding_key AND risk.record_id IN {_ID_LIST}", _RISK_KINDS
)
RISKS_OF_BINDING = Statement(f"{_RISKS} AND risk.binding_key = :binding_key", _RISK_KINDS)
RISK_CHECKS = _select(RiskCheckRow, f"memory_risk_checks WHERE {_OF_BINDING}")
RISK_CHECKS_OF = _select(
    RiskCheckRow, f"memory_risk_checks WHERE {_OF_BINDING} AND record_id IN {_ID_LIST}"
)
COUNT_RISK_CHECKS = Statement(
    "SELECT binding_key, project_id, subject_id, reader, count(*), count(checked_at) FROM ("
    "SELECT *, CASE WHEN text_digest = '-' THEN record_id END AS reader FROM memory_risk_checks "
    "WHERE company_id = :company_id) AS risk GROUP BY binding_key, project_id, subject_id, reader",
    "text text text text plain plain",
)
SET_RISK_CHECK = _put(RiskCheckRow, "memory_risk_checks", "company_id binding_key record_id")
ADD_RISK = _add(RiskRow, "memory_risks")
REMOVE_RISKS = _remove("memory_risks", "company_id binding_key record_id")
REMOVE_RISK_CHECK = _remove("memory_risk_checks", "company_id binding_key record_id")
OUTDATE_COMPARED = Statement(
    "UPDATE memory_risk_checks SET checked_at = NULL WHERE company_id = :company "
    "AND binding_key = :binding AND record_id IN (SELECT record_id FROM memory_risks "
    "WHERE company_id = :company AND binding_key = :binding AND other_id = :record)"
)
REMOVE_RISKS_OF_BINDING = tuple(
    _remove(table, "company_id binding_key") for table in ("memory_risks", "memory_risk_checks")
)
DISMISSED_RISKS = Statement(
    "SELECT mark FROM memory_dismissed_risks WHERE company_id = :company_id", "text"
)
DISMISS_RISK = _add(DismissedRiskRow, "memory_dismissed_risks", "ON CONFLICT DO NOTHING")
TAKE_RISK_BACK = _remove("memory_dismissed_risks", "company_id mark")

ADD_STEP = _add(JournalRow, "memory_undo_journal")
REMOVE_STEPS = _remove("memory_undo_journal", "company_id operation_id")
_OF_RECORD = "binding_key = :binding_key AND provider_record_id = :provider_record_id"
_UNERASED = "erased_by IS NULL ORDER BY seq, ordinal"
STEPS = _steps(
    "before after", "operation_id = :operation_id AND erased_by IS NULL ORDER BY ordinal"
)
STEPS_OF_RECORD = _steps("operation_id undoes before after", f"{_OF_RECORD} AND {_UNERASED}")
NEXT_STEP = _steps(
    "seq before",
    f"{_OF_RECORD} AND operation_id != :operation AND (seq > :after OR started_at > :since) "
    "ORDER BY seq, ordinal LIMIT 1",
)
STEPS_SINCE = _steps(
    "provider_record_id operation_id operation_type undoes started_at before after",
    "binding_key = :binding_key AND started_at > :since "
    f"AND provider_record_id != '' AND {_UNERASED}",
)
CHANGED_SINCE = _steps(
    "provider_record_id operation_id", "binding_key = :binding_key AND seq > :seq"
)
SETTINGS_SINCE = _steps("before", f"seq > :seq AND provider_record_id = '' AND {_UNERASED}")
LAST_STEP = _steps(
    "after",
    f"{_OF_RECORD} AND started_at <= :by AND erased_by IS NULL "
    "ORDER BY seq DESC, ordinal DESC LIMIT 1",
)
LAST_STEPS = _steps(
    "provider_record_id after",
    f"binding_key = :binding_key AND provider_record_id IN {_ID_LIST} "
    f"AND started_at >= :since AND {_UNERASED}",
)
FIRST_STEP = _steps("status before erased_by", "operation_id = :operation_id AND ordinal = 0")
COUNT_STEPS = Statement(
    "SELECT count(*) FROM memory_undo_journal WHERE company_id = :company_id "
    "AND operation_id = :operation_id AND erased_by IS NULL",
    "plain",
)
FINDINGS = _steps(
    "operation_id started_at before",
    "undoes = :undoes AND operation_type = 'check' ORDER BY seq DESC",
)
UNKNOWN_WRITES = Statement(
    "SELECT operation_id, started_at, binding_key, request FROM memory_operations "
    "WHERE company_id = :company_id AND status = 'unknown' AND operation_type = 'write' "
    "ORDER BY seq DESC LIMIT 1000",
    "text moment text json",
)
UNDOING = _steps(
    "operation_id started_at status",
    "undoes = :undoes AND operation_type = 'undo' "
    "AND ordinal = 0 AND status IN ('ok', 'unknown') ORDER BY seq DESC",
)
UNDONE = Statement(
    "SELECT DISTINCT undoes FROM memory_undo_journal WHERE company_id = :company_id "
    f"AND undoes IN {_ID_LIST} AND operation_type = 'undo'",
    "text",
)
CHANGES = _steps(
    "operation_id operation_type status",
    "ordinal = 0 AND operation_type != 'check' AND status IN ('ok', 'unknown') ORDER BY seq DESC",
)
JOURNAL_BINDINGS = Statement(
    "SELECT DISTINCT binding_key FROM memory_undo_journal WHERE company_id = :company_id", "text"
)
# The first NOT EXISTS is `memtui.store.tables.of_review`.
FORGOTTEN_BY_HAND = Statement(
    "SELECT before, started_at FROM memory_undo_journal AS step "
    "WHERE company_id = :company_id AND operation_type = 'forget' AND status = 'ok' "
    "AND substr(principal, 1, 5) = 'user:' AND erased_by IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM memory_undo_journal AS beside "
    "WHERE beside.company_id = step.company_id AND beside.seq = step.seq "
    "AND beside.provider_record_id = '' AND beside.erased_by IS NULL) "
    "AND NOT EXISTS (SELECT 1 FROM memory_undo_journal AS undone "
    "WHERE undone.company_id = step.company_id AND undone.undoes = step.operation_id "
    "AND undone.provider_record_id = step.provider_record_id "
    "AND undone.operation_type = 'undo' AND undone.status = 'ok') "
    "ORDER BY seq DESC LIMIT :most",
    "json moment",
)

LINK = Statement(
    "SELECT new_record_id FROM memory_handle_links WHERE company_id = :company_id "
    "AND binding_key = :binding_key AND old_record_id = :old_record_id",
    "text",
)
OLDER_IDS = Statement(
    "SELECT old_record_id FROM memory_handle_links WHERE company_id = :company_id "
    "AND binding_key = :binding_key AND new_record_id = :new_record_id ORDER BY old_record_id",
    "text",
)
LINKS_OF = Statement(
    "SELECT old_record_id, new_record_id FROM memory_handle_links "
    "WHERE company_id = :company_id AND binding_key = :binding_key",
    "text text",
)
ADD_LINK = _add(HandleLinkRow, "memory_handle_links")
MOVE_LINKS = Statement(
    "UPDATE memory_handle_links SET new_record_id = :new WHERE company_id = :company "
    "AND binding_key = :binding AND new_record_id = :old"
)
REMOVE_LINKS = Statement(
    "DELETE FROM memory_handle_links WHERE company_id = :company AND binding_key = :binding "
    "AND old_record_id IN (:old, :new)"
)
REMOVE_LINKS_OF = Statement(
    "DELETE FROM memory_handle_links WHERE company_id = :company AND binding_key = :binding "
    "AND (old_record_id = :record OR new_record_id = :record)"
)
