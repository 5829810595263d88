from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from memtui.analytics import audit
from memtui.analytics.documents import digest_of
from memtui.analytics.layout import Folder
from memtui.analytics.seal import seal
from memtui.contract import Conflict, Invalid, Unavailable
from memtui.store.database import Database
from memtui.store.digest import GENESIS
from tests.analytics.logs import NOW, append, draft, fill, hot

DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"


@pytest.fixture
def log(database: Database, root: Path) -> Database:
    fill(database, 60)
    seal(database, root, "acme", segment_rows=25)
    fill(database, 20, start=61)
    fill(database, 5, "other")
    return database


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


def test_a_whole_log_is_proved(log: Database, root: Path) -> None:
    last = hot(log)[-1]
    checked = audit.verify(log, root, "acme")
    assert (checked.seq, checked.digest) == (80, last.digest)
    assert (checked.broken_seq, checked.problem) == (None, None)
    assert audit.verify(log, root, "other").broken_seq is None
    empty = audit.verify(log, root, "nobody")
    assert (empty.seq, empty.digest, empty.broken_seq) == (0, GENESIS, None)


TAMPERING = [
    ("UPDATE memory_operations SET principal = 'eve' WHERE seq = 70", 70, "was altered"),
    ("UPDATE memory_usage SET cost_usd = 1 WHERE seq >= 62", None, "was altered"),
    ("DELETE FROM memory_operation_handles WHERE seq >= 62", None, "was altered"),
    ("DELETE FROM memory_operations WHERE seq = 71", 71, "missing"),
    ("DELETE FROM memory_operations WHERE seq = 61", 61, "missing"),
    ("DELETE FROM memory_operations WHERE seq > 75", 76, "missing"),
    ("UPDATE memory_operations SET previous_digest = 'x' WHERE seq = 65", 65, "not chained"),
    ("UPDATE memory_log_heads SET digest = 'x'", 80, "log's end"),
]


@pytest.mark.parametrize(("statement", "seq", "problem"), TAMPERING, ids=range(len(TAMPERING)))
def test_tampering_with_the_hot_table_is_named(
    log: Database, root: Path, statement: str, seq: int | None, problem: str
) -> None:
    alter(log, statement)
    checked = audit.verify(log, root, "acme")
    assert problem in str(checked.problem)
    assert checked.broken_seq is not None
    assert seq is None or checked.broken_seq == seq


def rewrite(root: Path, table: str, change: str) -> None:
    folder = Folder(root, "acme")
    path = folder.file(folder.read().segments[1], table)
    with duckdb.connect() as duck:
        duck.execute(
            f"COPY (SELECT {change} FROM read_parquet('{path}')) TO '{path}.new' (FORMAT parquet)"
        )
    Path(f"{path}.new").replace(path)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("operations", "* REPLACE (if(seq = 33, 'eve', principal) AS principal)"),
        ("usage", "* REPLACE (if(seq = 33, 7, input_tokens) AS input_tokens)"),
        ("handles", "* REPLACE (if(seq = 33, 'r', provider_record_id) AS provider_record_id)"),
    ],
)
def test_tampering_with_the_archive_is_named(
    database: Database, root: Path, table: str, change: str
) -> None:
    fill(database, 32)
    append(
        database,
        [
            draft(
                33,
                usage=[{"provider": "x"}],
                handles=[{"rank": 1, "provider_key": "x", "provider_record_id": "q"}],
            )
        ],
    )
    fill(database, 20, start=34)
    seal(database, root, "acme", segment_rows=25)
    rewrite(root, table, change)
    checked = audit.verify(database, root, "acme")
    assert (checked.broken_seq, "was altered" in str(checked.problem)) == (33, True)


def test_a_missing_segment_is_one_sentence(log: Database, root: Path) -> None:
    folder = Folder(root, "acme")
    folder.file(folder.read().segments[0], "usage").unlink()
    with pytest.raises(Unavailable, match="memtui archive verify"):
        audit.verify(log, root, "acme")


def test_anybody_can_verify_an_export(log: Database, root: Path, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    assert audit.export(log, root, "acme", target) == 80
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 81))
    assert lines[60:] == [operation.model_dump(mode="json") for operation in hot(log)]
    result = script(target)
    assert (result.returncode, result.stderr) == (0, "")
    assert lines[-1]["digest"] in result.stdout


@pytest.mark.parametrize("kind", ["altered", "removed", "swapped"])
def test_the_script_finds_what_was_done_to_an_export(
    log: Database, root: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "log.jsonl"
    audit.export(log, root, "acme", target)
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


def test_a_failed_export_leaves_what_was_there(log: Database, root: Path, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    target.write_text("mine")
    alter(log, "DELETE FROM memory_operations WHERE seq = 71")
    with pytest.raises(Conflict, match="Operation 71 of acme is missing"):
        audit.export(log, root, "acme", target)
    assert [path.name for path in tmp_path.glob("*log.jsonl*")] == ["log.jsonl"]
    assert target.read_text() == "mine"
    with pytest.raises(Invalid, match="choose another place"):
        audit.export(log, root, "acme", tmp_path / "none" / "log.jsonl")


foreign = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=20)


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(foreign, min_size=3, max_size=3),
    cost=st.none() | st.decimals(0, 1000, places=12, allow_nan=False) | st.just(Decimal("1E-12")),
    latency=st.floats(0, 1e300, allow_nan=False),
    micros=st.integers(0, 10**15) | st.integers(0, 10**9).map(lambda value: value * 10**6),
    binding=st.sampled_from([None, "elsewhere"]),
)
def test_the_document_of_a_row_is_that_of_the_operation(
    tmp_path: Path, database: Database, root: Path, texts, cost, latency, micros, binding
) -> None:
    last = audit.verify(database, root, "acme").seq
    handle = {
        "rank": 1,
        "provider_key": "x",
        "provider_record_id": texts[1] or "r",
        "score": latency,
        "binding_key": binding,
        "ghost": True,
    }
    one = draft(
        last + 1,
        request={"query": texts[0], "nested": [texts[1], None, 1.25, {"k": latency}]},
        error_message=texts[1],
        source={"kind": "run", "company_id": "acme", "run_id": texts[2], "external_ref": texts[0]},
        usage=[{"provider": texts[2], "cost_usd": cost, "details": {"k": texts[0]}}],
        handles=[handle],
        latency_ms=latency,
        started_at=NOW.fromtimestamp(0, NOW.tzinfo) + (micros * (NOW.resolution)),
    )
    append(database, [one])
    target = tmp_path / "export.jsonl"
    audit.export(database, root, "acme", target)
    written = json.loads(target.read_text().splitlines()[-1])
    assert written == hot(database)[-1].model_dump(mode="json")
    assert digest_of(written) == written["digest"]
    assert audit.verify(database, root, "acme").broken_seq is None
