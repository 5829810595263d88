from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from memtui.analytics import archive, audit
from memtui.analytics.layout import ArchiveFolder, sha256_of
from memtui.analytics.seal import seal
from memtui.contract import Conflict, Invalid, Unavailable
from memtui.store.database import Database
from memtui.store.digest import GENESIS
from memtui.store.erasing import erase_fields, purge_request
from tests.analytics.logs import NOW, append, draft, hot
from tests.databases import ON_BOTH

TABLES = ("memory_operations", "memory_usage", "memory_operation_handles")
DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"


def alter(database: Database, statement: str) -> None:
    """What a person with the database's password could do."""
    with database.write() as connection:
        if database.dialect == "sqlite":
            for table in TABLES:
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_append_only"))
            connection.execute(text(statement))
            return
        for table in TABLES:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER ALL"))
        connection.execute(text(statement))
        for table in TABLES:
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER ALL"))


def code() -> str:
    """The script that anybody verifies an export with, as its page has it."""
    [found] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(found.strip().splitlines()) <= 40
    return str(found)


def complaint(path: Path) -> object:
    """What the script ends with; None where an export is whole."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves closing to its end
        patch.setattr(sys, "argv", ["-c", str(path)])
        try:
            exec(code(), {"__name__": "__main__"})
        except SystemExit as end:
            return end.code
    return None


@ON_BOTH
def test_a_whole_log_is_proved(proved_log: Database, root: Path) -> None:
    last = hot(proved_log, seals=True)[-1]
    checked = audit.verify(proved_log, root, "acme")
    assert (checked.seq, checked.digest) == (93, last.digest)
    assert (checked.broken_seq, checked.problem) == (None, None)
    assert audit.verify(proved_log, root, "other").broken_seq is None
    empty = audit.verify(proved_log, root, "nobody")
    assert (empty.seq, empty.digest, empty.broken_seq) == (0, GENESIS, None)


SWAP = (
    "UPDATE memory_operations SET salt = ("
    "SELECT salt FROM memory_operations WHERE company_id = 'acme' AND seq = 69)"
)
TAMPERING = [
    ("UPDATE memory_operations SET principal = 'eve' WHERE seq = 70", 70, "was altered"),
    ("UPDATE memory_usage SET cost_usd = 1 WHERE seq >= 62", None, "was altered"),
    ("DELETE FROM memory_operation_handles WHERE seq >= 62", None, "was altered"),
    ("DELETE FROM memory_operations WHERE seq = 71", 71, "missing"),
    ("DELETE FROM memory_operations WHERE seq = 61", 61, "missing"),
    ("DELETE FROM memory_operations WHERE seq > 85", 86, "missing"),
    ("UPDATE memory_operations SET previous_digest = 'x' WHERE seq = 65", 65, "not chained"),
    ("UPDATE memory_log_heads SET digest = 'x'", 93, "log's end"),
    ("UPDATE memory_operations SET request = '{}' WHERE seq = 66", 66, "was altered"),
    ('UPDATE memory_operations SET request = \'{"query":""}\' WHERE seq = 67', 67, "was altered"),
    (
        f"{SWAP} WHERE company_id = 'acme' AND seq = 68",
        68,
        "was altered",
    ),
]


@pytest.mark.parametrize(("statement", "seq", "problem"), TAMPERING, ids=range(len(TAMPERING)))
def test_tampering_with_the_hot_table_is_named(
    proved_log: Database, root: Path, statement: str, seq: int | None, problem: str
) -> None:
    alter(proved_log, statement)
    checked = audit.verify(proved_log, root, "acme")
    assert problem in str(checked.problem)
    assert checked.broken_seq is not None
    assert seq is None or checked.broken_seq == seq


@pytest.mark.parametrize(
    "statement",
    [
        *(statement for statement, *_ in TAMPERING[:3]),
        "UPDATE memory_operations SET status = 'no such' WHERE seq = 70",
    ],
)
def test_what_somebody_altered_is_not_sealed(
    proved_log: Database, root: Path, statement: str
) -> None:
    alter(proved_log, statement)
    folder = ArchiveFolder(root, "acme")
    before = folder.read()
    with pytest.raises(Conflict, match=r"was altered.*nothing from 61 on was sealed"):
        seal(proved_log, root, "acme")
    assert folder.read() == before


def rewrite(root: Path, table: str, change: str) -> int:
    """Alter every row of a sealed file; returns the first operation that it is about."""
    folder = ArchiveFolder(root, "acme")
    path = folder.file(folder.read().segments[1], table)
    rows = f"(SELECT * REPLACE ({change}) FROM read_parquet('{path}'))"
    duckdb.execute(f"COPY {rows} TO '{path}.new' (FORMAT parquet)")
    found = duckdb.execute(f"SELECT min(seq) FROM {rows}").fetchone()
    Path(f"{path}.new").replace(path)
    return found[0] if found else 0


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("operations", "'eve' AS principal"),
        ("operations", "'{}' AS request"),
        ("operations", "lead(salt, 1, salt) OVER (ORDER BY seq) AS salt"),
        ("usage", "input_tokens + 1 AS input_tokens"),
        ("handles", "'r' AS provider_record_id"),
    ],
)
def test_tampering_with_the_archive_is_named(
    proved_log: Database, root: Path, table: str, change: str
) -> None:
    first = rewrite(root, table, change)
    checked = audit.verify(proved_log, root, "acme")
    assert (checked.broken_seq, "was altered" in str(checked.problem)) == (first, True)


def test_a_missing_segment_is_one_sentence(proved_log: Database, root: Path) -> None:
    folder = ArchiveFolder(root, "acme")
    folder.file(folder.read().segments[0], "usage").unlink()
    checked = audit.verify(proved_log, root, "acme")
    assert checked.broken_seq == 1
    assert "segment 000000000001-000000000020 is missing or damaged" in str(checked.problem)
    with pytest.raises(Unavailable, match="segment 000000000001-000000000020 is missing"):
        audit.export(proved_log, root, "acme", root / "proof.jsonl")
    assert not (root / "proof.jsonl").exists()


def mend_manifest(root: Path) -> None:
    """Let the manifest tell the hashes that the files have now."""
    folder = ArchiveFolder(root, "acme")
    manifest = folder.read()
    segments = [
        one.model_copy(
            update={
                "files": {
                    table: file.model_copy(update={"sha256": sha256_of(folder.file(one, table))})
                    for table, file in one.files.items()
                }
            }
        )
        for one in manifest.segments
    ]
    folder.write(manifest.model_copy(update={"segments": tuple(segments)}))


@pytest.mark.parametrize("table", ["operations", "usage", "handles"])
def test_one_byte_of_a_sealed_file_is_named_with_a_mended_manifest(
    proved_log: Database, root: Path, table: str
) -> None:
    folder = ArchiveFolder(root, "acme")
    path = folder.file(folder.read().segments[1], table)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for place in (4, len(whole) // 2, len(whole) - footer + footer // 2, len(whole) - 20):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        mend_manifest(root)
        checked = audit.verify(proved_log, root, "acme")
        assert (checked.broken_seq or 0) in range(21, 41), place
        assert "000000000021-000000000040" in str(checked.problem)


def test_statistics_that_hide_rows_are_named(proved_log: Database, root: Path) -> None:
    """A sealed row could be hidden from filters with both proofs green."""
    folder = ArchiveFolder(root, "acme")
    path = folder.file(folder.read().segments[1], "operations")
    [(least, at)] = duckdb.execute(
        f"SELECT stats_min_value, 0 FROM parquet_metadata('{path}') "
        "WHERE path_in_schema = 'principal'"
    ).fetchall()
    assert at == 0
    whole = path.read_bytes()
    place = whole.rindex(least.encode())
    path.write_bytes(whole[:place] + b"z" + whole[place + 1 :])
    mend_manifest(root)
    assert archive.verify(root, "acme").problems == ()
    checked = audit.verify(proved_log, root, "acme")
    assert checked.broken_seq == 21
    assert "segment 000000000021-000000000040 does not have" in str(checked.problem)


def test_segments_are_those_that_the_log_tells_of(proved_log: Database, root: Path) -> None:
    folder = ArchiveFolder(root, "acme")
    whole = folder.read()
    last = whole.segments[-1]
    folder.write(
        whole.model_copy(
            update={
                "segments": (
                    *whole.segments,
                    last.model_copy(update={"first_seq": 61, "last_seq": 90}),
                )
            }
        )
    )
    assert audit.verify(proved_log, root, "acme").problem is None  # its rows are in the database
    alter(proved_log, "DELETE FROM memory_operations WHERE company_id = 'acme' AND seq <= 90")
    assert audit.verify(proved_log, root, "acme").broken_seq == 61
    folder.write(whole.model_copy(update={"segments": whole.segments[:-1]}))
    assert "missing" in str(audit.verify(proved_log, root, "acme").problem)


@ON_BOTH
def test_the_log_lets_nothing_but_erasing_through(proved_log: Database) -> None:
    for statement in (
        "UPDATE memory_operations SET principal = 'eve' WHERE seq = 70",
        "UPDATE memory_operations SET request = '{}' WHERE seq = 70",
        "UPDATE memory_operations SET salt = NULL, absent = '{}', digest = 'x' WHERE seq = 70",
        "UPDATE memory_operations SET salt = NULL, absent = '{}', error_message = 'x'",
        "UPDATE memory_usage SET input_tokens = 1",
        "UPDATE memory_usage SET details = '[]'",
        "UPDATE memory_operation_handles SET provider_record_id = 'other'",
    ):
        with (
            pytest.raises(Unavailable, match="append-only"),
            proved_log.write() as connection,
        ):
            connection.execute(text(statement))


def test_anybody_can_verify_an_export(proved_log: Database, root: Path, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    assert audit.export(proved_log, root, "acme", target) == 93
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["document"]["seq"] for line in lines] == list(range(1, 94))
    written = hot(proved_log, seals=True)
    assert [line["digest"] for line in lines[60:]] == [one.digest for one in written]
    query = written[0].request["query"]
    assert lines[60]["values"]["request.query"][1] == query
    assert query not in json.dumps(lines[60]["document"], ensure_ascii=False)
    command = [sys.executable, "-I", "-W", "ignore", "-c", code(), str(target)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert lines[-1]["digest"] in ran.stdout
    target.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.strip()) == (1, "operation 1 is broken")


def test_an_export_of_hashes_alone_verifies_too(
    proved_log: Database, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "log.jsonl"
    audit.export(proved_log, root, "acme", target, visible=lambda one: one.seq % 2 == 0)
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line.keys() for line in lines[:2]] == [
        {"digest", "seq"},
        {"digest", "document", "values"},
    ]
    assert [line.keys() for line in lines[-3:-1]] == [
        {"digest", "document"},
        {"digest", "document", "values"},
    ]
    assert complaint(target) is None
    assert lines[-1]["digest"] in capsys.readouterr().out
    lines[2]["digest"] = lines[4]["digest"]
    target.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert complaint(target) == "operation 4 is broken"


@ON_BOTH
def test_what_is_absent_needs_a_purge_that_names_it(
    proved_log: Database, root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "log.jsonl"

    def purge(erased: Mapping[int, Collection[str]], number: int) -> None:
        one = draft(number, operation_type="purge", status="ok", request=purge_request(erased))
        append(proved_log, [one])

    with proved_log.write() as connection:
        done = erase_fields(connection, "acme", {70: {"request.query"}, 72: {"request.query"}})
    assert done == {70: ("request.query",), 72: ("request.query",)}
    for number, named in enumerate(({}, {70: ("error_message",)}, {72: ("request.query",)}), 901):
        purge(named, number)
        checked = audit.verify(proved_log, root, "acme")
        assert checked.broken_seq == 70
        assert "has no request.query, and no purge" in str(checked.problem)
        audit.export(proved_log, root, "acme", target)
        assert str(complaint(target)).startswith("operation 70: request.query is gone")
    purge(done, 910)
    assert audit.verify(proved_log, root, "acme").problem is None
    audit.export(proved_log, root, "acme", target)
    assert complaint(target) is None


def _salts_swapped(lines: list[Any]) -> None:
    values = [lines[place]["values"] for place in (39, 41)]
    salts = [one["request.query"][0] for one in values]
    for one, salt in zip(values, reversed(salts), strict=True):
        one["request.query"][0] = salt


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[39]["document"].update(channel="tost"), "operation 40 is broken"),
        (lambda lines: lines.pop(39), "operation 40 is broken"),
        (lambda lines: lines.insert(40, lines.pop(39)), "operation 40 is broken"),
        (
            lambda lines: lines[39]["values"]["request.query"].__setitem__(1, "x"),
            "operation 40: request.query is not what was logged",
        ),
        (_salts_swapped, "operation 40: request.query is not what was logged"),
        (
            lambda lines: lines[39]["values"].pop("request.query"),
            "operation 40: request.query is gone, and no purge erased it",
        ),
    ],
)
def test_the_script_finds_what_was_done_to_an_export(
    proved_log: Database, root: Path, tmp_path: Path, change: Callable[[list[Any]], None], said: str
) -> None:
    target = tmp_path / "log.jsonl"
    audit.export(proved_log, root, "acme", target)
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    change(lines)
    target.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert complaint(target) == said


def test_a_failed_export_leaves_what_was_there(
    proved_log: Database, root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "log.jsonl"
    target.write_text("mine")
    alter(proved_log, "DELETE FROM memory_operations WHERE seq = 71")
    with pytest.raises(Conflict, match="Operation 71 of acme is missing"):
        audit.export(proved_log, root, "acme", target)
    assert [path.name for path in tmp_path.glob("*log.jsonl*")] == ["log.jsonl"]
    assert target.read_text() == "mine"
    with pytest.raises(Invalid, match="choose another place"):
        audit.export(proved_log, root, "acme", tmp_path / "none" / "log.jsonl")


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
    assert [one["digest"] for one in written[last:]] == [one.digest for one in hot(database)[last:]]
    assert complaint(target) is None
    assert audit.verify(database, root, "acme").broken_seq is None
