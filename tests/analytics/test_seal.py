from __future__ import annotations

import json
import shutil
import stat
import threading
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from memtui.analytics import archive, audit
from memtui.analytics.archive import locked, recover
from memtui.analytics.layout import ArchiveFolder
from memtui.analytics.seal import replace_waiting, rewrite, seal
from memtui.contract import Conflict, Unavailable
from memtui.store.database import Database
from memtui.store.log import company_salt
from tests.analytics.logs import NOW, append, draft, fill, hot
from tests.analytics.sealer import seal_and_die
from tests.databases import ON_BOTH
from tests.processes import killed_by_itself

TABLES = ("memory_operations", "memory_usage", "memory_operation_handles")


def hot_counts(database: Database, company: str = "acme") -> list[int]:
    with database.read() as connection:
        return [
            connection.exec_driver_sql(
                f"SELECT count(*) FROM {table} WHERE company_id = '{company}'"
                + (" AND operation_type <> 'seal'" if table == "memory_operations" else "")
            ).fetchone()[0]
            for table in TABLES
        ]


def sealed(root: Path, column: str = "seq", table: str = "operations") -> list[int]:
    folder = ArchiveFolder(root, "acme")
    return [
        value
        for segment in folder.read().segments
        for (value,) in duckdb.execute(
            f"SELECT {column} FROM read_parquet('{folder.file(segment, table)}')"
        ).fetchall()
    ]


@ON_BOTH
def test_sealed_rows_leave_the_hot_table_and_no_one_elses_do(
    database: Database, root: Path
) -> None:
    fill(database, 50)
    fill(database, 5, "other")
    before, of_other = hot_counts(database), hot_counts(database, "other")
    report = seal(database, root, "acme", segment_rows=20)
    assert (report.operations, report.sealed_through) == (50, 50)
    assert [segment.count for segment in report.segments] == [20, 20, 10]
    assert hot_counts(database) == [0, 0, 0]
    assert hot_counts(database, "other") == of_other
    counted = [len(sealed(root, table=table)) for table in ("operations", "usage", "handles")]
    assert counted == before
    assert archive.verify(root, "acme").problems == ()
    assert ArchiveFolder(root, "other").read().segments == ()


@ON_BOTH
def test_only_what_is_older_than_the_cut_is_sealed(database: Database, root: Path) -> None:
    fill(database, 30)
    cut = NOW + timedelta(seconds=61 * 11)
    assert seal(database, root, "acme", before=cut).sealed_through == 10
    again = seal(database, root, "acme", before=cut)
    assert (again.operations, again.blocked_by) == (0, None)
    assert [operation.seq for operation in hot(database)] == list(range(11, 31))


@ON_BOTH
def test_what_waits_behind_a_newer_operation_is_told_of(database: Database, root: Path) -> None:
    append(database, [draft(1), draft(50), draft(2), draft(3)])
    cut = draft(4).started_at
    for sealed_now in (1, 0):
        done = seal(database, root, "acme", before=cut)
        assert (done.operations, done.blocked_by, done.waiting) == (sealed_now, 2, 2)
    done = seal(database, root, "acme")
    assert (done.operations, done.blocked_by, done.waiting) == (3, None, 0)


def test_the_log_goes_on_where_it_was_sealed(database: Database, root: Path) -> None:
    fill(database, 10)
    seal(database, root, "acme")
    fill(database, 10, start=11)
    assert [operation.seq for operation in hot(database)] == list(range(12, 22))
    assert seal(database, root, "acme").operations == 11
    assert archive.verify(root, "acme").problems == ()
    assert sealed(root) == list(range(1, 22))
    assert seal(database, root, "acme").operations == 0


def test_files_and_folders_are_private(database: Database, root: Path) -> None:
    fill(database, 3)
    seal(database, root, "acme")
    for path in [root, *root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("company", ["../../etc", "a/b", "é\x00", "x" * 200, "'; --"])
def test_any_company_id_has_a_folder_of_its_own(
    database: Database, root: Path, company: str
) -> None:
    fill(database, 3, company)
    seal(database, root, company)
    assert archive.verify(root, company).operations == 3
    assert [path.parent for path in root.glob("*/manifest.json")] == [
        ArchiveFolder(root, company).path
    ]
    assert hot(database, company) == ()


STOPS = [
    ("sqlite", "written", 1),
    ("sqlite", "renamed", 1),
    ("sqlite", "named", 1),
    ("sqlite", "removing", 2),
    ("sqlite", "removed", 1),
    ("sqlite", "renamed", 2),
    ("postgresql", "named", 2),
    ("postgresql", "removing", 5),
]
"""Where it is killed: a step, at which time that it comes. Three "removing" are one segment's."""


@pytest.mark.slow
@pytest.mark.parametrize(("database_url", "stop", "nth"), STOPS, indirect=["database_url"])
def test_a_kill_leaves_each_operation_in_one_place(
    tmp_path: Path, database: Database, database_url: str, root: Path, stop: str, nth: int
) -> None:
    fill(database, 50)
    counts = hot_counts(database)
    path = tmp_path / "a home?#%" / "memtui.db"
    assert killed_by_itself(seal_and_die, path, database_url, root, stop, nth)
    through = ArchiveFolder(root, "acme").read().sealed_through
    assert sorted({*sealed(root), *(o.seq for o in hot(database) if o.seq > through)}) == list(
        range(1, 51)
    )
    recover(database, root, "acme")
    assert sealed(root) + [operation.seq for operation in hot(database)] == list(range(1, 51))
    everywhere = [
        count + len(sealed(root, table=table))
        for table, count in zip(
            ("operations", "usage", "handles"), hot_counts(database), strict=True
        )
    ]
    assert everywhere == counts
    assert {path.name for path in ArchiveFolder(root, "acme").path.iterdir() if path.is_dir()} == {
        segment.name for segment in ArchiveFolder(root, "acme").read().segments
    }
    assert audit.verify(database, root, "acme").problem is None
    assert seal(database, root, "acme").sealed_through == 50
    assert sealed(root) == list(range(1, 51))
    assert archive.verify(root, "acme").problems == ()
    assert audit.verify(database, root, "acme").problem is None


@ON_BOTH
def test_recovery_never_removes_what_differs(database: Database, root: Path) -> None:
    fill(database, 10)

    def stop(name: str) -> None:
        if name == "named":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seal(database, root, "acme", step=stop)
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_usage")
    with pytest.raises(Conflict, match="nothing was removed"):
        recover(database, root, "acme")
    assert len(hot(database)) == 10
    [segment] = ArchiveFolder(root, "acme").read().segments
    ArchiveFolder(root, "acme").file(segment, "usage").write_bytes(b"x")
    with pytest.raises(Unavailable, match="missing or damaged"):
        recover(database, root, "acme")
    assert len(hot(database)) == 10


def test_a_lost_manifest_costs_no_sealed_operation(database: Database, root: Path) -> None:
    fill(database, 10)
    seal(database, root, "acme")
    manifest = ArchiveFolder(root, "acme").manifest_file
    kept = manifest.read_text()
    manifest.unlink()
    for attempt in (recover, seal):
        with pytest.raises(Unavailable, match="memtui doctor --repair"):
            attempt(database, root, "acme")
    manifest.write_text(kept)
    assert archive.verify(root, "acme").problems == ()


def test_an_archive_elsewhere_is_missed(database: Database, root: Path) -> None:
    fill(database, 10)
    seal(database, root, "acme")
    with pytest.raises(Unavailable, match="Operations 1 to 10 of acme are neither"):
        seal(database, root.parent / "empty", "acme")


def test_an_older_database_is_refused(tmp_path: Path, database: Database, root: Path) -> None:
    fill(database, 10)
    seal(database, root, "acme")
    old = Database.open(tmp_path / "old.db")
    fill(old, 4)
    with pytest.raises(Unavailable, match="restore the database"):
        recover(old, root, "acme")
    assert len(hot(old)) == 4
    old.close()


def test_a_broken_log_is_not_sealed(database: Database, root: Path) -> None:
    fill(database, 10)
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_operations WHERE seq = 5")
    with pytest.raises(Conflict, match="broken between 1 and 10"):
        seal(database, root, "acme")
    assert len(hot(database)) == 9


def test_a_seal_waits_for_who_holds_the_folder_for_a_moment(database: Database, root: Path) -> None:
    fill(database, 3)
    folder, done = ArchiveFolder(root, "acme"), threading.Event()
    folder.create()

    def sealing() -> None:
        seal(database, root, "acme")
        done.set()

    with locked(folder):
        other = threading.Thread(target=sealing)
        other.start()
        assert not done.wait(0.2)
    other.join()
    assert done.is_set()
    assert folder.read().sealed_through == 3


@pytest.mark.usefixtures("sealed_log")
def test_an_archive_that_is_gone_is_a_problem(sealed_log: Database, root: Path) -> None:
    assert archive.verify(root, "acme", sealed_log).problems == ()
    shutil.rmtree(root)
    [problem] = archive.verify(root, "acme", sealed_log).problems
    assert problem.startswith("Operations 1 to 60 of acme are neither in the database nor")


def test_a_folder_that_cannot_be_used_is_one_sentence(database: Database, root: Path) -> None:
    fill(database, 3)
    folder = ArchiveFolder(root, "acme")
    root.mkdir()
    folder.path.write_text("in the way")
    for use in (seal, recover):
        with pytest.raises(Unavailable, match=r"^The archive.* cannot be (used|read)"):
            use(database, root, "acme")
    assert len(hot(database)) == 3


def test_two_cannot_seal_at_once(
    database: Database, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "PATIENCE_S", 0)
    fill(database, 3)
    seal(database, root, "acme")
    with locked(ArchiveFolder(root, "acme")):
        with pytest.raises(Conflict, match="Another memtui is sealing"):
            seal(database, root, "acme")
        assert recover(database, root, "acme") == 0


@pytest.mark.parametrize("table", ["operations", "usage", "handles"])
@pytest.mark.usefixtures("sealed_log")
def test_verify_names_a_changed_and_a_missing_file(root: Path, table: str) -> None:
    folder = ArchiveFolder(root, "acme")
    path = folder.file(folder.read().segments[1], table)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x00")
    assert archive.verify(root, "acme").problems == (
        f"The file {path} was changed after it was sealed.",
    )
    path.unlink()
    assert archive.verify(root, "acme").problems == (f"The file {path} is missing.",)


@pytest.mark.usefixtures("sealed_log")
def test_verify_names_a_removed_segment_and_a_broken_link(root: Path) -> None:
    folder = ArchiveFolder(root, "acme")
    whole = json.loads(folder.manifest_file.read_text())
    short = {**whole, "segments": [whole["segments"][0], whole["segments"][2]]}
    folder.manifest_file.write_text(json.dumps(short))
    [problem] = archive.verify(root, "acme").problems
    assert problem.endswith("000000000041-000000000060 does not continue the one before it.")


@pytest.mark.usefixtures("sealed_log")
def test_a_damaged_manifest_is_one_sentence(root: Path) -> None:
    ArchiveFolder(root, "acme").manifest_file.write_text("{")
    with pytest.raises(Unavailable, match="cannot be read"):
        ArchiveFolder(root, "acme").read()


def test_a_segment_is_written_anew_again_and_again(database: Database, root: Path) -> None:
    append(database, [draft(n, request={"query": f"word {n}"}) for n in range(1, 31)])
    seal(database, root, "acme", segment_rows=15)
    folder = ArchiveFolder(root, "acme")
    with database.read() as connection:
        salt = company_salt(connection, "acme")
    before, names = [sealed(root, column) for column in ("seq", "digest")], []
    gone: list[int] = []
    for numbers in ((2, 7), (7, 9), (30,), (15,)):
        for segment in (manifest := folder.read()).segments:
            doomed = {n: ["request.query"] for n in numbers
                      if segment.first_seq <= n <= segment.last_seq}  # fmt: skip
            if not doomed:
                continue
            fresh = rewrite(folder, manifest, segment, doomed, salt)
            assert fresh is not None
            assert set(fresh.erased) == set(doomed) - set(gone)
            assert folder.segment(segment).is_dir(), "it counts until the log names the new one"
            folder.write(manifest.with_segment(fresh.segment), waiting=True)
            replace_waiting(folder)
            names.append(fresh.segment.name)
            assert not folder.segment(segment).exists()
            gone += doomed
    assert [name.partition(".")[2] for name in names] == ["1", "2", "1", "3"]
    assert [sealed(root, column) for column in ("seq", "digest")] == before
    words = [json.loads(str(one)).get("query") for one in sealed(root, "request")]
    assert words == [None if n in gone else f"word {n}" for n in range(1, 31)]
    assert archive.verify(root, "acme").problems == ()
    assert (
        rewrite(folder, folder.read(), folder.read().segments[0], {2: ["request.query"]}, salt)
        is None
    )
