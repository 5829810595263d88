from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from memtui.analytics import audit
from memtui.analytics.documents import digest_of
from memtui.analytics.layout import Folder
from memtui.contract import Conflict, Invalid, Unavailable
from memtui.store.database import Database
from memtui.store.digest import GENESIS
from tests.analytics.logs import NOW, append, draft, hot

DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """SQLite, but for a test that is marked to run on both."""
    chosen = getattr(request, "param", "sqlite")
    return "" if chosen == "sqlite" else str(request.getfixturevalue("postgres_url"))


ON_BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def alter(database: Database, statement: str) -> None:
    """What a person with the database's password could do."""
    with database.write() as connection:
        if database.dialect == "sqlite":
            connection.execute(text("DROP TRIGGER IF EXISTS memory_operations_append_only"))
        else:
            connection.execute(text("ALTER TABLE memory_operations DISABLE TRIGGER ALL"))
        connection.execute(text(statement))


def script(path: Path) -> subprocess.CompletedProcess[str]:
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 12
    return subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


@ON_BOTH
def test_a_whole_log_is_proved(sealed_log: Database, root: Path) -> None:
    last = hot(sealed_log)[-1]
    checked = audit.verify(sealed_log, root, "acme")
    assert (checked.seq, checked.digest) == (90, last.digest)
    assert (checked.broken_seq, checked.problem) == (None, None)
    assert audit.verify(sealed_log, root, "other").broken_seq is None
    empty = audit.verify(sealed_log, root, "nobody")
    assert (empty.seq, empty.digest, empty.broken_seq) == (0, GENESIS, None)


TAMPERING = [
    ("UPDATE memory_operations SET principal = 'eve' WHERE seq = 70", 70, "was altered"),
    ("UPDATE memory_usage SET cost_usd = 1 WHERE seq >= 62", None, "was altered"),
    ("DELETE FROM memory_operation_handles WHERE seq >= 62", None, "was altered"),
    ("DELETE FROM memory_operations WHERE seq = 71", 71, "missing"),
    ("DELETE FROM memory_operations WHERE seq = 61", 61, "missing"),
    ("DELETE FROM memory_operations WHERE seq > 85", 86, "missing"),
    ("UPDATE memory_operations SET previous_digest = 'x' WHERE seq = 65", 65, "not chained"),
    ("UPDATE memory_log_heads SET digest = 'x'", 90, "log's end"),
]


@pytest.mark.parametrize(("statement", "seq", "problem"), TAMPERING, ids=range(len(TAMPERING)))
def test_tampering_with_the_hot_table_is_named(
    sealed_log: Database, root: Path, statement: str, seq: int | None, problem: str
) -> None:
    alter(sealed_log, statement)
    checked = audit.verify(sealed_log, root, "acme")
    assert problem in str(checked.problem)
    assert checked.broken_seq is not None
    assert seq is None or checked.broken_seq == seq


def rewrite(root: Path, table: str, change: str) -> int:
    """Alter every row of a sealed file; returns the first operation that it is about."""
    folder = Folder(root, "acme")
    path = folder.file(folder.read().segments[1], table)
    with duckdb.connect() as duck:
        rows = f"(SELECT * REPLACE ({change}) FROM read_parquet('{path}'))"
        duck.execute(f"COPY {rows} TO '{path}.new' (FORMAT parquet)")
        found = duck.execute(f"SELECT min(seq) FROM {rows}").fetchone()
    Path(f"{path}.new").replace(path)
    return found[0] if found else 0


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("operations", "'eve' AS principal"),
        ("usage", "input_tokens + 1 AS input_tokens"),
        ("handles", "'r' AS provider_record_id"),
    ],
)
def test_tampering_with_the_archive_is_named(
    sealed_log: Database, root: Path, table: str, change: str
) -> None:
    first = rewrite(root, table, change)
    checked = audit.verify(sealed_log, root, "acme")
    assert (checked.broken_seq, "was altered" in str(checked.problem)) == (first, True)


def test_a_missing_segment_is_one_sentence(sealed_log: Database, root: Path) -> None:
    folder = Folder(root, "acme")
    folder.file(folder.read().segments[0], "usage").unlink()
    with pytest.raises(Unavailable, match="memtui archive verify"):
        audit.verify(sealed_log, root, "acme")


def test_anybody_can_verify_an_export(sealed_log: Database, root: Path, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    assert audit.export(sealed_log, root, "acme", target) == 90
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 91))
    assert lines[60:] == [operation.model_dump(mode="json") for operation in hot(sealed_log)]
    result = script(target)
    assert (result.returncode, result.stderr) == (0, "")
    assert lines[-1]["digest"] in result.stdout


@pytest.mark.parametrize("kind", ["altered", "removed", "swapped"])
def test_the_script_finds_what_was_done_to_an_export(
    sealed_log: Database, root: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "log.jsonl"
    audit.export(sealed_log, root, "acme", target)
    lines = target.read_text().splitlines()
    if kind == "altered":
        lines[39] = lines[39].replace('"door":"test"', '"door":"tost"')
    elif kind == "removed":
        del lines[39]
    else:
        lines[39], lines[40] = lines[40], lines[39]
    target.write_text("\n".join(lines))
    result = script(target)
    assert (result.returncode, result.stderr.strip()) == (1, "operation 40 is broken")


def test_a_failed_export_leaves_what_was_there(
    sealed_log: Database, root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "log.jsonl"
    target.write_text("mine")
    alter(sealed_log, "DELETE FROM memory_operations WHERE seq = 71")
    with pytest.raises(Conflict, match="Operation 71 of acme is missing"):
        audit.export(sealed_log, root, "acme", target)
    assert [path.name for path in tmp_path.glob("*log.jsonl*")] == ["log.jsonl"]
    assert target.read_text() == "mine"
    with pytest.raises(Invalid, match="choose another place"):
        audit.export(sealed_log, root, "acme", tmp_path / "none" / "log.jsonl")


foreign = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=20)


@st.composite
def peculiar(draw: st.DrawFn) -> dict[str, object]:
    """What an operation can hold that a database, Parquet or JSON might change."""
    first, second, third = draw(foreign), draw(foreign), draw(foreign)
    latency = draw(st.floats(0, 1e300, allow_nan=False))
    cost = draw(
        st.none() | st.decimals(0, 1000, places=12, allow_nan=False) | st.just(Decimal("1E-12"))
    )
    micros = draw(st.integers(0, 10**15) | st.integers(0, 10**9).map(lambda value: value * 10**6))
    handle = {
        "rank": 1,
        "provider_key": "x",
        "provider_record_id": second or "r",
        "score": latency,
        "binding_key": draw(st.sampled_from([None, "elsewhere"])),
        "ghost": True,
    }
    return {
        "request": {"query": first, "nested": [second, None, 1.25, {"k": latency}]},
        "error_message": second,
        "source": {"kind": "run", "company_id": "acme", "run_id": third, "external_ref": first},
        "usage": [{"provider": third, "cost_usd": cost, "details": {"k": first}}],
        "handles": [handle],
        "latency_ms": latency,
        "started_at": NOW.fromtimestamp(0, NOW.tzinfo) + micros * NOW.resolution,
    }


@pytest.mark.slow
@ON_BOTH
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(peculiar(), min_size=6, max_size=12))
def test_the_document_of_a_row_is_that_of_the_operation(
    tmp_path: Path, database: Database, root: Path, changes: list[Any]
) -> None:
    last = audit.verify(database, root, "acme").seq
    append(database, [draft(last + n, **change) for n, change in enumerate(changes, 1)])
    target = tmp_path / "export.jsonl"
    audit.export(database, root, "acme", target)
    written = [json.loads(line) for line in target.read_text().splitlines()]
    assert written[last:] == [one.model_dump(mode="json") for one in hot(database)[last:]]
    assert all(digest_of(one) == one["digest"] for one in written)
    assert audit.verify(database, root, "acme").broken_seq is None
