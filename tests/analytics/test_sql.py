from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.sql import VIEWS, SqlConsole
from memtui.analytics.statement import LONGEST, check_statement
from memtui.contract import Denied, Invalid, MemtuiError
from memtui.store import bindings
from memtui.store.database import Database
from memtui.store.operation import OperationDraft, OperationHandle
from memtui.store.rows import BindingRow
from tests.analytics.logs import HOSTILE, NOW, append, draft, fill, hot
from tests.analytics.logs import seal_unlogged as seal


@pytest.fixture(scope="module")
def shared_root(sealed_home: Path) -> Path:
    """The archive of `shared`."""
    return sealed_home / "archive"


@pytest.fixture(scope="module")
def shared(sealed_home: Path, shared_root: Path) -> Iterator[SqlConsole]:
    """A console for statements, all of which must leave it as it is."""
    database = Database.open(sealed_home / "memtui.db")
    opened = SqlConsole(database, shared_root, "acme", zone="Europe/Berlin")
    yield opened
    opened.close()
    database.close()


@pytest.fixture
def console(sealed_log: Database, root: Path) -> Iterator[SqlConsole]:
    opened = SqlConsole(sealed_log, root, "acme", zone="Europe/Berlin")
    yield opened
    opened.close()


def test_the_views_show_hot_and_sealed_rows_of_one_company(database: Database, root: Path) -> None:
    fill(database, 40)
    fill(database, 5, "other")
    written = hot(database)
    seal(database, root, "acme", segment_rows=25)
    fill(database, 20, start=41)
    written += hot(database)
    console = SqlConsole(database, root, "acme")
    answer = console.run(
        "SELECT count(*), sum(cost_usd), sum(input_tokens), sum(handle_count), max(seq) "
        "FROM operations"
    )
    costs = [o.cost_usd for o in written if o.cost_usd is not None]
    assert answer.rows == (
        (
            60,
            sum(costs, Decimal(0)),
            sum(usage.input_tokens for o in written for usage in o.usage),
            sum(len(o.handles) for o in written),
            60,
        ),
    )
    for view, count in [
        ("usage", sum(len(o.usage) for o in written)),
        ("handles", sum(len(o.handles) for o in written)),
    ]:
        assert console.run(f"SELECT count(*) FROM {view}").rows == ((count,),)
    # What the views hide is not in the memory that a statement runs in.
    held = console.connection.execute("SELECT column_name FROM duckdb_columns() WHERE NOT internal")
    assert {"salt", "salts"}.isdisjoint(name for (name,) in held.fetchall())
    console.close()


def test_the_views_have_the_documented_columns(shared: SqlConsole) -> None:
    for view, columns in VIEWS.items():
        answer = shared.run(f"SELECT * FROM {view}")
        assert answer.columns == tuple(columns)


def test_bindings_are_shown_without_their_config(sealed_log: Database, console: SqlConsole) -> None:
    row = BindingRow(
        binding_id="b1", company_id="acme", key="mém'0", provider_key="x", config={"k": "secret"},
        capabilities={}, review=[], created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    with sealed_log.write() as connection:
        bindings.add_binding(connection, row)
        bindings.add_binding(connection, replace(row, binding_id="b2", company_id="other"))
    answer = console.run("SELECT * FROM bindings")
    assert answer.rows == (("mém'0", "x", True, False, datetime(2026, 1, 1, tzinfo=UTC)),)


def test_what_is_appended_and_sealed_meanwhile_is_seen(
    sealed_log: Database, root: Path, console: SqlConsole
) -> None:
    question = "SELECT count(*), count(DISTINCT seq) FROM operations"
    assert console.run(question).rows == ((90, 90),)
    fill(sealed_log, 10, start=91)
    assert console.run(question).rows == ((100, 100),)
    seal(sealed_log, root, "acme")
    assert console.run(question).rows == ((100, 100),)


def test_text_comes_back_as_it_was_written(sealed_log: Database, console: SqlConsole) -> None:
    append(sealed_log, [draft(91, error_message=HOSTILE, request={"query": f"{HOSTILE} 🙂"})])
    answer = console.run(
        "SELECT error_message, [error_message], request->>'$.query' FROM operations WHERE seq = 91"
    )
    whole = HOSTILE.replace("\ud800", "")
    assert answer.rows[0][:2] == (HOSTILE, [HOSTILE])
    assert answer.rows[0][2].replace("\x00", "") == f"{whole} 🙂".replace("\x00", "")


def test_days_are_cut_in_the_persons_zone(sealed_log: Database, console: SqlConsole) -> None:
    night = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
    append(sealed_log, [draft(91, started_at=night)])
    day = "SELECT date_trunc('day', started_at)::DATE::VARCHAR FROM operations WHERE seq = 91"
    assert console.run(day).rows == (("2026-03-29",),)


def test_a_record_is_what_its_operations_say(
    sealed_log: Database, root: Path, console: SqlConsole
) -> None:
    everything = [draft(n) for n in range(1, 91)]
    of: dict[tuple[str | None, str], list[tuple[OperationDraft, OperationHandle]]] = {}
    for operation in everything:
        for handle in operation.handles if operation.status == "ok" else ():
            key = (operation.binding_key, handle.provider_record_id)
            of.setdefault(key, []).append((operation, handle))
    answer = console.run("SELECT * FROM records")
    found = {
        (row["binding_key"], row["provider_record_id"]): row
        for row in (dict(zip(answer.columns, row, strict=True)) for row in answer.rows)
    }
    assert found.keys() == of.keys()
    for key, parts in of.items():
        kinds = [str(operation.operation_type) for operation, _ in parts]
        ranks = [handle.rank for o, handle in parts if o.operation_type == "query"]
        changes = [kind for kind in kinds if kind in {"write", "correct", "forget"}]
        row = found[key]
        assert row["first_seen"] == min(operation.started_at for operation, _ in parts)
        assert row["last_seen"] == max(operation.started_at for operation, _ in parts)
        assert row["query_count"] == kinds.count("query")
        assert row["open_count"] == kinds.count("get")
        assert row["correction_count"] == kinds.count("correct")
        assert row["best_rank"] == min(ranks, default=None)
        assert row["best_score"] == max((h.score for _, h in parts if h.score), default=None)
        assert (row["written_at"] is None) == ("write" not in kinds)
        assert row["forgotten"] == (changes[-1:] == ["forget"])
    seal(sealed_log, root, "acme")
    assert sorted(console.run("SELECT * FROM records").rows, key=repr) == sorted(
        answer.rows, key=repr
    )


def test_a_record_is_forgotten_until_that_is_taken_back(database: Database, root: Path) -> None:
    handle = {"rank": 1, "provider_key": "x", "provider_record_id": "r"}
    steps: list[tuple[str, dict[str, object], bool]] = [
        ("write", {}, False),
        ("forget", {}, True),
        ("undo", {"operation_id": "o2", "type": "forget"}, False),
        ("correct", {}, False),
        ("undo", {"operation_id": "o1", "type": "write"}, True),
    ]
    console = SqlConsole(database, root, "acme")
    for number, (kind, request, forgotten) in enumerate(steps, 1):
        changes: Any = {"operation_type": kind, "request": request, "handles": [handle]}
        append(database, [draft(number, status="ok", binding_key="b", **changes)])
        answer = console.run("SELECT forgotten, written_at, provider_key FROM records")
        assert answer.rows == ((forgotten, NOW + timedelta(seconds=61), "x"),)
    console.close()


def test_rows_are_capped_and_said_to_be(shared: SqlConsole) -> None:
    answer = shared.run("SELECT seq FROM operations ORDER BY seq", max_rows=7)
    assert (len(answer.rows), answer.truncated, answer.types) == (7, True, ("BIGINT",))
    assert not shared.run("SELECT 1", max_rows=1).truncated


ALLOWED = [
    "SELECT 1",
    "select 1 -- a comment\n;",
    "FROM operations SELECT count(*)",
    "VALUES (1), (2)",
    "TABLE usage",
    "DESCRIBE operations",
    "SUMMARIZE usage",
    "WITH a AS (SELECT * FROM usage) SELECT count(*) FROM A",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 9) FROM t",
    "SELECT * FROM range(3) r, unnest([1, 2]) u",
    "SELECT max(range) FROM range(20000000)",
    "SELECT replace(replace(replace(channel, 'a', 'bb'), 'c', ''), 'd', '<br>') FROM operations",
    (
        "SELECT replace(channel, 'a', 'bbbbbbb'), replace(channel, 'c', 'ddddddd'), hex(channel), "
        "replace(principal, 'e', 'ffffffffff'), replace(status, 'k', 'kkkkkkkkkk') FROM operations"
    ),
    "SELECT len(range(9, 1, -2)), * FROM range(DATE '2026-01-01', now(), INTERVAL 1 DAY)",
    "SELECT len(range(1000000)), to_json(channel), url_encode(principal) FROM operations",
    "SELECT list_transform([1], lambda x: x + 1), count(*) OVER () FROM OPERATIONS",
    "SELECT request->>'$.query' AS q, count(*) FROM operations GROUP BY ALL ORDER BY 2 DESC",
    "FROM (PIVOT operations ON status IN ('ok', 'error') USING count(*) GROUP BY channel)",
    "SELECT o.seq FROM operations o SEMI JOIN usage USING (seq) UNION ALL SELECT 1",
    "SELECT time_bucket(INTERVAL 1 DAY, started_at) FROM operations",
]


@pytest.mark.parametrize("sql", ALLOWED)
def test_what_reads_is_allowed(shared: SqlConsole, sql: str) -> None:
    assert shared.run(sql).columns


LONG = f", 'a', '{'a' * 100}')"
REFUSED = [
    "COPY operations TO '/tmp/memtui-stolen.csv'",
    "COPY (SELECT 1) TO '{archive}/manifest.json'",
    "COPY operations FROM '/etc/passwd'",
    "ATTACH '/tmp/x.db' AS x",
    "DETACH memory",
    "USE memory",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL spatial FROM 'http://example.com'",
    "PRAGMA database_list",
    "PRAGMA enable_profiling='json'",
    "SET memory_limit='100GB'",
    "SET lock_configuration=false",
    "SET enable_external_access=true",
    "RESET memory_limit",
    "CALL pragma_version()",
    "CREATE TABLE t AS SELECT 1",
    "CREATE SECRET s (TYPE s3)",
    "CREATE MACRO f(x) AS TABLE SELECT * FROM read_csv(x)",
    "INSERT INTO hot_operations SELECT * FROM hot_operations",
    "UPDATE hot_operations SET principal = 'eve'",
    "DELETE FROM hot_operations",
    "DROP VIEW operations",
    "TRUNCATE hot_operations",
    "ALTER TABLE hot_operations RENAME TO x",
    "VACUUM",
    "CHECKPOINT",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW operations",
    "WITH x AS (DELETE FROM hot_operations RETURNING seq) SELECT * FROM x",
    "WITH x AS (INSERT INTO hot_usage SELECT * FROM hot_usage RETURNING 1) FROM x",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM READ_CSV_AUTO('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('{archive}/*/operations.parquet')",
    "SELECT * FROM read_parquet('{other}/*/operations.parquet')",
    "SELECT * FROM parquet_scan('{archive}/../*/*/operations.parquet')",
    "SELECT * FROM parquet_metadata('{archive}/x.parquet')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM '{other}/000000000001-000000000009/operations.parquet'",
    'SELECT * FROM "/etc/passwd.csv"',
    "SELECT (SELECT count(*) FROM '/etc/passwd.csv')",
    "WITH a AS (SELECT * FROM 'x.json') SELECT 1",
    "DESCRIBE '/etc/passwd.csv'",
    "SUMMARIZE '/etc/passwd.csv'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('hot_operations')",
    "SELECT * FROM json_execute_serialized_sql('x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM pragma_table_info('operations')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM python_map_function(1)",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM hot_operations",
    "SELECT * FROM raw_operations",
    "SELECT * FROM main.operations",
    "SELECT * FROM memory.main.hot_operations",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM 'x.parquet'",
    'SELECT * FROM "../x.parquet"',
    "SELECT * FROM read_ndjson('/etc/passwd')",
    "SELECT * FROM read_duckdb('/tmp/x.db')",
    "SELECT * FROM sqlite_scan('memtui.db', 'memory_operations')",
    "SELECT * FROM postgres_query('x', 'SELECT 1')",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM duckdb_temporary_files()",
    "SELECT * FROM pragma_database_list()",
    "SELECT * FROM repeat_row(1, num_rows = 1000000000000)",
    "SELECT * FROM test_all_types()",
    "SELECT 1 FROM operations WHERE EXISTS (FROM glob('/*'))",
    "SELECT seq, (SELECT content FROM read_text('/etc/passwd')) FROM operations",
    "SELECT * FROM operations, LATERAL (SELECT * FROM read_csv(request))",
    "FROM operations UNION ALL FROM read_csv('/etc/passwd')",
    "SELECT COLUMNS(*) FROM '/etc/passwd.csv'",
    "CREATE TEMP TABLE t AS FROM operations",
    "CREATE VIEW v AS SELECT 1",
    "CREATE SEQUENCE s",
    "CREATE TYPE t AS ENUM ('a')",
    "COMMENT ON VIEW operations IS 'x'",
    "COPY operations TO '/tmp/memtui-stolen.parquet' (FORMAT parquet)",
    "COPY (SELECT 1) TO 's3://bucket/memtui-stolen.csv'",
    "IMPORT DATABASE '/tmp'",
    "DETACH memory",
    "USE memory",
    "FORCE INSTALL httpfs FROM community",
    "UPDATE EXTENSIONS",
    "SET VARIABLE x = 1",
    "SET SESSION threads = 64",
    "PRAGMA version",
    "CALL dbgen(sf = 1)",
    "DEALLOCATE p",
    "KILL 1",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT system.main.current_setting('temp_directory')",
    "SELECT getvariable('x')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000000)",
    "SELECT pg_sleep(100000)",
    "SELECT nextval('s')",
    "SELECT repeat('x', 4000000000)",
    "SELECT lpad('x', 2000000000, 'y')",
    "SELECT printf('%2000000000s', 'x')",
    "SELECT list_resize([1], 4000000000)",
    "SELECT bitstring('1', 4000000000::INTEGER)",
    "SELECT list_reduce(range(40)::VARCHAR[], lambda x, y: x || x)",
    f"SELECT {'hex(' * 34}'a'{')' * 34}",
    f"SELECT {'regexp_escape(' * 35}'.'{')' * 35}",
    f"SELECT {'replace(' * 3}'a'{LONG * 3}",
    f"SELECT {'regexp_replace(' * 3}'a'{LONG * 3}",
    "SELECT replace(replace(channel, channel, principal), channel, principal) FROM operations",
    (
        f"WITH a AS (SELECT replace('a'{LONG} s), b AS (SELECT replace(s{LONG} s FROM a) "
        f"SELECT replace(s{LONG} FROM b"
    ),
    (
        "SELECT s FROM (SELECT hex(hex(hex(hex(hex(hex(hex('a'))))))) s) WHERE "
        "hex(hex(hex(hex(hex(hex(hex(s))))))) > ''"
    ),
    "SELECT range(100000000)",
    "SELECT unnest(generate_series(0, 100000000))",
    "SELECT range(TIMESTAMP '0001-01-01', TIMESTAMP '9999-01-01', INTERVAL 1 SECOND)",
    "SELECT generate_series(started_at, now(), to_seconds(seq)) FROM operations",
    "SELECT list_transform([1], lambda x: current_setting('home_directory'))",
]


@pytest.mark.slow
@pytest.mark.parametrize("sql", REFUSED)
def test_what_does_more_than_read_is_refused(
    shared_root: Path, shared: SqlConsole, sql: str
) -> None:
    archive, other = (
        ArchiveFolder(shared_root, "acme").path,
        ArchiveFolder(shared_root, "other").path,
    )
    kept = (archive / "manifest.json").read_bytes()
    with pytest.raises((Denied, Invalid)) as caught:
        shared.run(sql.format(archive=archive, other=other))
    told = str(caught.value)
    assert isinstance(caught.value, Denied) or "cannot be read" in told
    assert "\n" not in str(caught.value)
    assert (archive / "manifest.json").read_bytes() == kept
    assert not Path("/tmp/memtui-stolen.csv").exists()
    assert shared.run("SELECT count(*) FROM operations").rows == ((90,),)


BEHIND_THE_CHECK = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_parquet('{other}/*/operations.parquet')",
    "SELECT * FROM read_parquet('{archive}/../{othername}/*/operations.parquet')",
    "COPY (SELECT 1) TO '/tmp/memtui-stolen.csv'",
    "ATTACH '/tmp/memtui-stolen.db' AS x",
    "INSTALL httpfs",
    "LOAD '/tmp/x.duckdb_extension'",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "SET memory_limit = '100GB'",
    "SET GLOBAL TimeZone = 'UTC'",
    "PRAGMA threads = 64",
    "SELECT * FROM '/etc/passwd.csv'",
    "EXPORT DATABASE '/tmp/memtui-stolen'",
]


@pytest.mark.parametrize("sql", BEHIND_THE_CHECK)
def test_duckdb_itself_refuses_what_the_check_might_miss(
    shared_root: Path, shared: SqlConsole, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr("memtui.analytics.sql.check_statement", lambda *_: None)
    archive, other = (
        ArchiveFolder(shared_root, "acme").path,
        ArchiveFolder(shared_root, "other").path,
    )
    with pytest.raises(Invalid, match="does not work"):
        shared.run(sql.format(archive=archive, other=other, othername=other.name))
    assert not list(Path("/tmp").glob("memtui-stolen*"))


def test_a_statement_is_cancelled_before_it_runs(
    shared: SqlConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_prepare", shared.cancel)
    with pytest.raises(Invalid, match="was cancelled"):
        shared.run("SELECT count(*) FROM range(1000000000000) t(a) WHERE a % 7 = 3")


def test_closing_stops_what_runs_and_waits_for_it(database: Database, tmp_path: Path) -> None:
    console = SqlConsole(database, tmp_path / "archive", "acme")
    told: list[str] = []

    def ask() -> None:
        try:
            console.run("SELECT count(*) FROM range(1000000000000) t(a) WHERE a % 7 = 3")
        except Invalid as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while not console._running:
        time.sleep(0.01)
    console.close()
    asking.join(timeout=10)
    assert told == ["The statement was cancelled."]


def test_a_running_statement_is_cancelled(shared: SqlConsole) -> None:
    finished = threading.Event()

    def keep_cancelling() -> None:
        while not finished.wait(0.01):
            shared.cancel()

    canceller = threading.Thread(target=keep_cancelling)
    canceller.start()
    try:
        with pytest.raises(Invalid, match="was cancelled"):
            shared.run("SELECT count(*) FROM range(1000000000000) a, range(1000000000) b")
    finally:
        finished.set()
        canceller.join()


WRONG = [
    ("", "There is no statement"),
    ("-- nothing", "There is no statement"),
    ("SELEC 1", "cannot be read"),
    ("SELECT nothing FROM operations", "does not work"),
    ("SELECT * FROM record", "did you mean records"),
    ("SELECT * FROM nope", "the views are"),
    ("SELECT 1 +", "cannot be read"),
    ("SELECT ?", "does not work"),
    ("SELECT 'a\x00b'", "NUL"),
    ("SELECT '\ud800'", "half a character"),
    ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "cannot be read"),
    ("SELECT * FROM " + "(SELECT * FROM " * 900 + "usage" + ")" * 900, "nested too deeply"),
    ("SELECT 1" + " UNION ALL SELECT 1" * LONGEST, "longer than"),
    ("SELECT INTERVAL 100000000 YEAR", "cannot be shown"),
]


@pytest.mark.parametrize(("sql", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_statement_is_one_sentence(shared: SqlConsole, sql: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        shared.run(sql)
    assert "\n" not in str(caught.value)


words = st.sampled_from(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "operations",
        "(",
        ")",
        ",",
        "*",
        "1",
        "'x'",
        "WITH",
        "AS",
        "UNION",
        "read_csv",
        "'/etc/passwd'",
        "COPY",
        "TO",
        ";",
        "x",
        "JOIN",
        "ON",
        "=",
        "RECURSIVE",
        "VALUES",
        "DESCRIBE",
        "glob",
        "query",
        "[",
        "]",
        ":",
        "::",
        ".",
        "--",
        "/*",
        "*/",
        "$$",
        "?",
        '"',
        "PIVOT",
    ]
)


@pytest.fixture(scope="module")
def parser() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=st.lists(words, max_size=14).map(" ".join) | st.text(max_size=40))
def test_any_text_is_judged_without_another_error(
    parser: duckdb.DuckDBPyConnection, sql: str
) -> None:
    judged = _judge(parser, sql)
    assert judged is None or "\n" not in judged


def _judge(duck: object, sql: str) -> str | None:
    try:
        check_statement(duck, sql, frozenset(VIEWS))
    except MemtuiError as error:
        return str(error)
    return None
