"""`audit`: prove the log, and give the proof to somebody else."""

from __future__ import annotations

import re
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from memtui.analytics.seal import seal
from memtui.config import find_paths
from memtui.store.database import Database
from tests.analytics.logs import hot
from tests.channels.cli.conftest import Run

DOCUMENT = Path(__file__).parents[3] / "docs" / "audit.md"


def verified(path: Path) -> subprocess.CompletedProcess[str]:
    """What the script in the documentation says of a file."""
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


def alter(database: Database, seq: int, column: str = "channel", value: object = "x") -> None:
    with database.write() as connection:
        connection.execute(text("DROP TRIGGER IF EXISTS memory_operations_append_only"))
        connection.execute(
            text(
                f"UPDATE memory_operations SET {column} = '{value}' "
                f"WHERE company_id = 'acme' AND seq = {seq}"
            )
        )


def test_a_log_is_proved_and_an_altered_one_is_not(
    here: Run, logged: Database, tmp_path: Path
) -> None:
    found = here("audit", "verify", "--json")
    assert (found.code, found.document["seq"], found.document["passed"]) == (0, 60, True)
    noted = f"60:{found.document['digest']}"
    assert f"note this  {noted}" in here("audit", "verify").out
    assert here("audit", "verify", "--expect", noted).code == 0
    assert "✓ log acme: the last operations" in here("doctor").out
    alter(logged, 41)
    broken = here("audit", "verify", "--json")
    assert (broken.code, broken.document["broken_seq"]) == (1, 41)
    altered = "Operation 41 was altered: it does not fit its digest."
    assert altered in here("audit", "verify").out
    shown = here("ops", "show", "41")
    assert (shown.code, shown.err) == (1, f"{altered} docs/recovery.md says what to do.\n")
    assert here("ops", "show", "41", "--json").document["problem"] == altered
    assert here("ops", "show", "40").code == 0
    told = here("doctor")
    assert (told.code, f"✗ log acme: 1 problem: {altered}" in told.out) == (1, True)
    target = tmp_path / "proof.jsonl"
    refused = here("audit", "export", "--to", str(target))
    assert (refused.code, altered in refused.err, target.exists()) == (5, True, False)
    other = here("--company", "other", "audit", "verify", "--json")
    assert (other.code, other.document["seq"]) == (0, 5)


def test_a_row_with_unknown_words_is_shown_as_it_is(here: Run, logged: Database) -> None:
    for seq, column in enumerate(("status", "operation_type", "source_kind"), start=41):
        alter(logged, seq, column, "melted")
    alter(logged, 43, "source_run_id", "")
    alter(logged, 44, "operation_type", "undo")
    alter(logged, 44, "request", '{"type": []}')
    assert here("ops", "list").code == 0
    found = here("ops", "list", "--json").document["operations"]
    assert len(found) == 60
    odd = {one["seq"]: one for one in found}
    assert (odd[41]["status"], odd[42]["operation_type"]) == ("melted", "melted")
    assert odd[43]["source"]["kind"] == "melted"
    assert "! melted (no status)" in here("ops", "show", "41").out
    assert here("ops", "show", "42").out.startswith("melted #42")
    assert "melted" in here("ops", "show", "43").out
    assert "Operation 41 was altered" in here("audit", "verify").out
    damages = ("request", "{"), ("latency_ms", "x"), ("started_at", 9 * 10**18)
    for seq, (column, value) in enumerate(damages, start=50):
        alter(logged, seq, column, value)
        damaged = here("ops", "show", str(seq))
        assert (damaged.code, f"Operation {seq} is damaged" in damaged.err) == (3, True)
    assert "is damaged" in here("ops", "list").err


def test_an_earlier_digest_is_compared(here: Run, logged: Database, home: Path) -> None:
    digest = hot(logged)[6].digest
    seal(logged, find_paths(home).archive, "acme")
    assert here("audit", "verify", "--expect", f"7:{digest[:12]}").code == 0
    other = here("audit", "verify", "--expect", f"8:{digest}", "--json")
    assert (other.code, other.document["passed"]) == (1, False)
    assert "the log was rewritten" in other.document["problem"]
    assert "the log ends at" in here("audit", "verify", "--expect", f"99:{digest}").out
    for wrong in ("7", "0:" + digest, "7:xyz", digest):
        assert here("audit", "verify", "--expect", wrong).code == 2


def test_an_earlier_digest_is_compared_beside_operations_that_are_hidden(here: Run) -> None:
    here("note", "one")
    for name, role in (("root", "owner"), ("ana", "member")):
        here("companies", "members", "add", f"user:{name}", "--role", role)
    assert here("--principal", "user:ana", "note", "--subject", "ana", "tea").code == 0
    me = ("--principal", "user:root")
    assert here(*me, "note", "two").code == 0
    for who in (me, ("--principal", "user:ana")):
        found = here(*who, "audit", "verify", "--json").document
        noted = f"{found['seq']}:{found['digest'][:12]}"
        assert here(*who, "audit", "verify", "--expect", noted).code == 0
    assert here(*me, "audit", "verify", "--expect", "2:" + "0" * 12).code == 1


def test_anybody_can_verify_an_export(here: Run, logged: Database, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    here("ops", "archive", "seal", "--older-than", "2026-03-09T12:30:00+00:00")
    done = here("audit", "export", "--to", str(target), "--json")
    assert done.document == {"file": str(target), "operation_count": 62}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert verified(target).returncode == 0
    again = here("audit", "export", "--to", str(target))
    assert (again.code, "is there already" in again.err) == (5, True)
    target.write_text(target.read_text().replace('"principal":"user:ana"', '"principal":"me"', 1))
    assert verified(target).stderr.strip().endswith("is broken")
    assert here("audit", "export", "--to", str(target), "--force").code == 0
    assert verified(target).returncode == 0
    assert here("audit", "export", "--to", str(tmp_path)).code == 2
    assert here("audit", "export", "--to", str(tmp_path / "no" / "x.jsonl")).code == 2


def test_a_log_that_was_cut_at_its_end_is_not_whole(here: Run, home: Path) -> None:
    for words in ("One", "Two"):
        assert here("note", words).code == 0
    seq = here("audit", "verify", "--json").document["seq"]
    assert f"operation {seq} is the last that this machine had seen" in here("audit", "verify").out
    with closing(sqlite3.connect(home / "memtui.db")) as database, database:
        for table in ("memory_operations", "memory_usage", "memory_operation_handles"):
            database.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))
        database.execute(
            "UPDATE memory_log_heads SET seq = seq - 1, digest = "
            "(SELECT digest FROM memory_operations WHERE seq = ?)",
            (seq - 1,),
        )
    cut = here("audit", "verify")
    assert cut.code == 1
    assert f"has seen operation {seq}, but the log ends at {seq - 1}" in cut.out
