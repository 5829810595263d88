"""`backup` and `restore`: the whole home comes back, and nothing that is not what it says."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    QueryRequest,
    Scope,
    Unavailable,
)
from memtui.scratch import remove_left_of
from memtui.service import Caller, Membership, Role, open_service
from memtui.service.home import backup as backups
from memtui.service.home.backup import Backup, _Writer, backup, restore
from memtui.service.home.survey import PurgeRequest
from memtui.store import bindings
from memtui.store.database import Database
from memtui.store.rows import BindingRow
from tests.processes import killed_by_itself
from tests.service.conftest import Lived

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CALLER = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local")


def write(lived: Lived, target: Path, *, vaults: bool = False) -> Backup:
    return backup(lived.paths, lived.settings, target, outside=vaults, now=NOW)


async def test_a_home_comes_back_as_it_was(lived: Lived, tmp_path: Path) -> None:
    home = lived.paths.data
    (home / "config.toml").write_text("hot_days = 7\n")
    switched = Path("migrations", "local", "default--other.json")
    (home / switched).parent.mkdir(parents=True)
    (home / switched).write_text('{"closed": true}')
    (home / switched).with_name("other.lock").touch()
    file, there = tmp_path / "home.zip", find_paths(tmp_path / "there" / "again")
    opened = await open_service(lived.paths, lived.settings)  # also while memtui runs
    done = write(lived, file)
    await opened.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert done.left_out == ()
    assert not [name for name in done.files if "index" in name or name.endswith((".lock", "-wal"))]
    assert restore(file, there) == done
    assert stat.S_IMODE(there.data.stat().st_mode) == 0o700
    assert [path.name for path in there.data.parent.iterdir()] == ["again"]
    service = await open_service(there, load_settings(there))
    found = await service.query(CALLER, QueryRequest(scope=SCOPE, query="deploy"))
    assert [one.text for one in found.snippets] == ["We deploy"]
    assert (await service.analysis.verify_chain(CALLER)).problem is None
    await service.close()
    assert load_settings(there).hot_days == 7
    assert (there.data / switched).read_text() == '{"closed": true}'


@pytest.mark.parametrize("apart", [True, False])
def test_the_settings_come_back_into_the_config_folder(
    lived: Lived, tmp_path: Path, apart: bool
) -> None:
    def of(paths: Paths, name: str) -> Paths:
        return replace(paths, config=tmp_path / name if apart else paths.data)

    home, there = of(lived.paths, "set"), of(find_paths(tmp_path / "there"), "set there")
    home.config.mkdir(exist_ok=True)
    home.config_file.write_text("hot_days = 7\n")
    views = {"views": "of mine"}
    home.views_file.write_text(json.dumps(views))
    done = backup(home, lived.settings, tmp_path / "home.zip", now=NOW)
    assert {"config.toml", "views.json"} <= done.files.keys()
    restore(tmp_path / "home.zip", there)
    assert [one.parent for one in tmp_path.rglob("config.toml")].count(there.config) == 1
    assert there.config_file.read_text() == "hot_days = 7\n"
    assert json.loads(there.views_file.read_text()) == views
    assert (there.data / "config.toml").exists() is not apart


def test_nothing_is_written_over(lived: Lived, tmp_path: Path) -> None:
    file = tmp_path / "home.zip"
    file.write_text("mine")
    with pytest.raises(Conflict, match="exists already"):
        write(lived, file)
    assert file.read_text() == "mine"
    file.unlink()
    write(lived, file)
    with pytest.raises(Invalid, match="is not empty"):
        restore(file, lived.paths)
    with pytest.raises(Invalid, match=r"No such file.*no backup was made"):
        write(lived, tmp_path / "nowhere" / "home.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "home.zip"]


async def test_only_a_person_who_manages_each_company_with_members_makes_a_backup(
    lived: Lived, tmp_path: Path
) -> None:
    service = await open_service(lived.paths, lived.settings)
    other = CALLER.model_copy(update={"company_id": "other"})
    await service.companies.add(other, "Without members")
    for principal, role, project in (
        ("user:ana", Role.OWNER, None),
        ("user:ben", Role.ADMIN, None),
        ("user:cleo", Role.MEMBER, None),
        ("user:dan", Role.OWNER, "apollo"),
    ):
        member = Membership(principal=principal, role=role, project_id=project)
        await service.members.set(CALLER, member)
    file = tmp_path / "b.zip"

    def ask(principal: str, acts_for: str = "") -> None:
        given = {"principal": principal, "acts_for": acts_for}
        backup(lived.paths, lived.settings.model_copy(update=given), file, now=NOW)
        file.unlink()

    for principal in ("user:cleo", "user:dan", "user:eve", "agent:evil"):
        with pytest.raises(Denied, match="owner or admin of each"):
            ask(principal)
    with pytest.raises(Denied, match="only a person"):
        ask("agent:coding", "user:ana")
    assert not list(tmp_path.glob("*b.zip*"))
    ask("user:ana")
    ask("user:ben")
    await service.members.set(other, Membership(principal="user:eve", role=Role.OWNER))
    with pytest.raises(Denied):
        ask("user:ana")
    await service.close()


def test_an_empty_home_has_nothing_to_back_up(tmp_path: Path, lived: Lived) -> None:
    paths = find_paths(tmp_path / "none")
    with pytest.raises(NotFound, match="no memtui home"):
        backup(paths, lived.settings, tmp_path / "b.zip", now=NOW)
    assert not paths.data.exists()
    assert not (tmp_path / "b.zip").exists()


@pytest.mark.parametrize("place", ["memtui.db", "archive"])
def test_a_damaged_home_is_not_backed_up(lived: Lived, tmp_path: Path, place: str) -> None:
    path = lived.paths.data / place
    if path.is_dir():
        [path] = path.rglob("usage.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:-6000] + b"\xff" * 6000 if len(content) > 6000 else content[:-1])
    with pytest.raises(Unavailable, match="damaged"):
        write(lived, tmp_path / "b.zip")
    assert not list(tmp_path.glob("*b.zip*"))


def test_a_home_without_its_archive_is_not_backed_up(lived: Lived, tmp_path: Path) -> None:
    lived.paths.archive.rename(tmp_path / "archive")
    with pytest.raises(Unavailable, match="neither in the database nor in the archive"):
        write(lived, tmp_path / "b.zip")
    assert not list(tmp_path.glob("*b.zip*"))


async def test_a_vault_elsewhere_goes_in_when_asked_for(lived: Lived, tmp_path: Path) -> None:
    vault = tmp_path / "notes"
    vault.mkdir()
    (vault / "mine.md").write_text("# Mine\n\nOutside\n")
    (vault / "link.md").symlink_to(tmp_path / "elsewhere.md")
    service = await open_service(lived.paths, lived.settings)
    await service.bindings.add(CALLER, "notes", "vault", {"path": str(vault)})
    await service.close()
    named = write(lived, tmp_path / "without.zip")
    assert [one for one in named.left_out if str(vault) in one and "--vaults" in one]
    taken = write(lived, tmp_path / "with.zip", vaults=True)
    assert taken.outside == {"outside/local/notes": str(vault)}
    assert taken.left_out == (f"{vault / 'link.md'} is a link to somewhere else.",)
    there = find_paths(tmp_path / "there")
    restore(tmp_path / "with.zip", there)
    kept = there.data / "outside/local/notes/mine.md"
    assert kept.read_text() == "# Mine\n\nOutside\n"


async def test_a_vault_elsewhere_goes_in_though_it_is_read_only_now(
    lived: Lived, tmp_path: Path
) -> None:
    vault = tmp_path / "notes"
    vault.mkdir()
    (vault / "mine.md").write_text("# Mine\n\nOutside\n")
    service = await open_service(lived.paths, lived.settings)
    await service.bindings.add(CALLER, "notes", "vault", {"path": str(vault)}, read_only=True)
    [_, kept] = await service.bindings.all(CALLER)
    assert not kept.capabilities.writable
    await service.close()
    taken = write(lived, tmp_path / "with.zip", vaults=True)
    assert taken.outside == {"outside/local/notes": str(vault)}
    assert "outside/local/notes/mine.md" in taken.files
    assert taken.left_out == ()


@pytest.mark.parametrize("program", ["memsearch", "gemini", "claude-memory", "instructions"])
async def test_what_another_program_keeps_elsewhere_stays_there(
    lived: Lived, tmp_path: Path, program: str
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "credentials.json").write_text("{}")
    service = await open_service(lived.paths, lived.settings)
    await service.bindings.add(CALLER, "theirs", program, {"path": str(theirs)})
    await service.bindings.add(CALLER, "far", "mem0", {"url": "http://127.0.0.1:9"})
    await service.close()
    taken = write(lived, tmp_path / "with.zip", vaults=True)
    assert taken.outside == {}
    assert taken.left_out == (
        f"The binding local/theirs reads {theirs}, which belongs to another program.",
        "The binding local/far keeps its memories elsewhere, in mem0; back them up there.",
    )


def test_another_packages_single_file_elsewhere_goes_in_when_asked_for(
    lived: Lived, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Outside")
    row = BindingRow(
        binding_id="local/notes",
        company_id="local",
        key="notes",
        provider_key="not-installed-here",
        config={"path": str(file)},
        capabilities={"writable": True},
        enabled=True,
        read_only=False,
        review=[],
        created_at=NOW,
    )
    with (
        closing(Database.open(lived.paths.database, create=False)) as opened,
        opened.write() as database,
    ):
        bindings.add_binding(database, row)
    taken = write(lived, tmp_path / "with.zip", vaults=True)
    assert taken.outside == {"outside/local/notes": str(file)}
    there = find_paths(tmp_path / "there")
    restore(tmp_path / "with.zip", there)
    assert (there.data / "outside/local/notes").read_text() == "Outside"


async def test_a_database_of_a_provider_is_copied_as_one_moment(
    lived: Lived, tmp_path: Path
) -> None:
    folder = lived.paths.data / "bindings" / "local" / "facts"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "facts.sqlite3")) as live:
        live.execute("PRAGMA journal_mode = WAL")
        live.execute("CREATE TABLE t (x)")
        live.execute("INSERT INTO t VALUES (1)")
        live.commit()
        write(lived, tmp_path / "b.zip")
    there = find_paths(tmp_path / "there")
    restore(tmp_path / "b.zip", there)
    with closing(sqlite3.connect(there.data / "bindings/local/facts/facts.sqlite3")) as copied:
        assert copied.execute("SELECT x FROM t").fetchall() == [(1,)]


async def test_a_store_that_a_process_has_open_is_copied_once_it_is_let_go_of(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lived.paths.data / "bindings" / "local" / "vectors"
    store.mkdir(parents=True)
    (store / "LOCK").touch()
    (store / "segment").write_text("half")
    holds = "import fcntl,sys;f=open(sys.argv[1]);fcntl.flock(f,fcntl.LOCK_EX);print(flush=True)"
    ends = ";sys.stdin.read();open(sys.argv[2],'w').write('whole')"
    with subprocess.Popen(
        [sys.executable, "-c", holds + ends, store / "LOCK", store / "segment"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdin
        assert holder.stdout
        holder.stdout.readline()
        monkeypatch.setattr("memtui.service.home.backup._LOCK_SECONDS", 0)
        with pytest.raises(Unavailable, match="in use by another program"):
            write(lived, tmp_path / "home.zip")
        monkeypatch.undo()
        waiting = asyncio.create_task(asyncio.to_thread(write, lived, tmp_path / "home.zip"))
        holder.stdin.close()
        done = await waiting
    kept = "bindings/local/vectors/segment"
    with zipfile.ZipFile(tmp_path / "home.zip") as file:
        assert file.read(kept) == b"whole"
    assert "bindings/local/vectors/LOCK" not in done.files


async def test_what_postgres_holds_is_named(
    lived: Lived, tmp_path: Path, control_plane_url: str
) -> None:
    fresh = find_paths(tmp_path / "shared")
    settings = lived.settings.model_copy(update={"database_url": control_plane_url})
    service = await open_service(fresh, settings)
    await service.analysis.seal(CALLER, everything=True)
    await service.close()
    done = backup(fresh, settings, tmp_path / "b.zip", now=NOW)
    assert (done.database, "memtui.db" in done.files) == ("postgresql", False)
    assert "pg_dump" in done.left_out[0]
    there = find_paths(tmp_path / "there")
    restore(tmp_path / "b.zip", there)
    assert list(there.archive.rglob("operations.parquet"))


Change = Callable[[dict[str, bytes], dict[str, Any]], object]


def rewritten(source: Path, target: Path, change: Change) -> Path:
    """Write a backup anew with other files, or another account of them."""
    with zipfile.ZipFile(source) as file:
        files = {name: file.read(name) for name in file.namelist()}
    contents = json.loads(files.pop("backup.json"))
    change(files, contents)
    with zipfile.ZipFile(target, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
        file.writestr("backup.json", json.dumps(contents))
    return target


def _known(contents: dict[str, object], name: str, like: str = "memtui.db") -> None:
    files = contents["files"]
    assert isinstance(files, dict)
    files[name] = files[like]


def _leads_to(name: str) -> Change:
    def change(files: dict[str, bytes], contents: dict[str, object]) -> None:
        files[name] = files["memtui.db"]
        _known(contents, name)

    return change


def _older_database(files: dict[str, bytes], contents: dict[str, object]) -> None:
    logs = contents["logs"]
    assert isinstance(logs, dict)
    logs["local"]["seq"] += 1


def _newer(_files: dict[str, bytes], contents: dict[str, object]) -> None:
    contents["version"] = 2


CHANGES: dict[str, tuple[Change, str]] = {
    "another file": (lambda files, _: files.update({"bindings/x": b""}), "altered"),
    "a file less": (lambda files, _: [files.pop("memtui.db")], "altered"),
    "another content": (lambda files, _: files.update({"memtui.db": b"x"}), "altered"),
    "up": (_leads_to("../evil"), "altered"),
    "up inside": (_leads_to("bindings/../../evil"), "altered"),
    "absolute": (_leads_to("/tmp/recovery-evil"), "altered"),
    "backslashes": (_leads_to("bindings\\..\\evil"), "altered"),
    "nowhere": (_leads_to("evil"), "altered"),
    "another end": (_older_database, "cannot be verified"),
    "a newer one": (_newer, "upgrade memtui"),
}


@pytest.fixture
def backed(lived: Lived, tmp_path: Path) -> Path:
    write(lived, tmp_path / "good.zip")
    return tmp_path / "good.zip"


@pytest.fixture
def there(tmp_path: Path) -> Paths:
    return find_paths(tmp_path / "there" / "home")


def refused(file: Path, there: Paths, words: str) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        restore(file, there)
    assert "\n" not in str(caught.value)
    assert not there.data.exists()
    assert list(there.data.parent.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_altered_is_refused(backed: Path, there: Paths, name: str) -> None:
    change, words = CHANGES[name]
    refused(rewritten(backed, backed.with_name("bad.zip"), change), there, words)


def test_a_link_is_refused(backed: Path, there: Paths) -> None:
    def change(files: dict[str, bytes], contents: dict[str, object]) -> None:
        files.pop("memtui.db")

    bad = rewritten(backed, backed.with_name("bad.zip"), change)
    with zipfile.ZipFile(bad, "a") as file:
        link = zipfile.ZipInfo("memtui.db")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    refused(bad, there, "altered")


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_what_was_cut_short_is_refused(backed: Path, there: Paths, part: float) -> None:
    content = backed.read_bytes()
    backed.write_bytes(content[: int(len(content) * part)])
    refused(backed, there, "cut short")


def test_any_flipped_byte_is_refused_or_harmless(backed: Path, tmp_path: Path) -> None:
    content = bytearray(backed.read_bytes())
    with zipfile.ZipFile(backed) as file:
        good = {name: file.read(name) for name in file.namelist()}
    for number, place in enumerate(range(0, len(content), len(content) // 25)):
        content[place] ^= 0x10
        bad = tmp_path / f"{number}.zip"
        bad.write_bytes(content)
        content[place] ^= 0x10
        there = find_paths(tmp_path / f"there{number}")
        try:
            restore(bad, there)
        except Invalid:
            assert not there.data.exists()
        else:
            for name in set(good) - {"backup.json", "memtui.db"}:
                assert (there.data / name).read_bytes() == good[name]


def alter(database: Path) -> None:
    with closing(sqlite3.connect(database)) as changed:
        for (trigger,) in changed.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            changed.execute(f"DROP TRIGGER {trigger}")
        changed.execute("UPDATE memory_operations SET principal = 'user:eve'")
        changed.commit()


def test_a_changed_operation_does_not_prove_itself(
    backed: Path, there: Paths, tmp_path: Path
) -> None:
    def change(files: dict[str, bytes], contents: dict[str, Any]) -> None:
        database = tmp_path / "altered.db"
        database.write_bytes(files["memtui.db"])
        alter(database)
        content = files["memtui.db"] = database.read_bytes()
        told = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        contents["files"]["memtui.db"].update(told)

    refused(rewritten(backed, tmp_path / "eve.zip", change), there, "cannot be verified")


def test_an_altered_log_is_not_backed_up(lived: Lived, tmp_path: Path) -> None:
    alter(lived.paths.database)
    with pytest.raises(Unavailable, match=r"cannot be verified: Operation \d+ was altered.*copy"):
        write(lived, tmp_path / "b.zip")
    assert not list(tmp_path.glob("*b.zip*"))


@pytest.mark.usefixtures("held_by_rights")
def test_a_folder_that_may_not_be_written_is_a_sentence(lived: Lived, tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    with pytest.raises(Invalid, match="Permission denied"):
        write(lived, shut / "b.zip")
    write(lived, tmp_path / "b.zip")
    with pytest.raises(Invalid, match="Permission denied"):
        restore(tmp_path / "b.zip", find_paths(shut / "home"))
    assert list(shut.iterdir()) == []


def die(paths: Paths, settings: Settings, file: Path, to: Paths, during: str) -> None:
    def kill(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if during == "backup":
        type.__setattr__(_Writer, "_refuse_unproved", kill)  # in a process of its own
        backup(paths, settings, file, now=NOW)
    else:
        backup(paths, settings, file, now=NOW)
        vars(backups)["_prove"] = kill
        restore(file, to)


@pytest.mark.slow
@pytest.mark.parametrize("during", ["backup", "restore"])
@pytest.mark.parametrize("then", ["again", "doctor", "purge"])
async def test_what_a_killed_one_leaves_goes_with_what_comes_next(
    lived: Lived, tmp_path: Path, during: str, then: str
) -> None:
    file, to = tmp_path / "out" / "home.zip", find_paths(tmp_path / "to" / "home")
    file.parent.mkdir()
    assert killed_by_itself(die, lived.paths, lived.settings, file, to, during)
    place = file.parent if during == "backup" else to.data.parent
    [left] = [path for path in place.iterdir() if path != file]
    assert [path for path in left.rglob("*") if path.is_file()]
    if then == "doctor":
        assert remove_left_of(lived.paths.data) == [left]
    elif then == "purge":
        service = await open_service(lived.paths, lived.settings)
        await service.purging.apply(CALLER, PurgeRequest(before=NOW))
        await service.close()
    elif during == "backup":
        write(lived, file)
    else:
        restore(file, to)
    assert not left.exists()
