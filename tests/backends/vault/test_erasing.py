"""What a purge takes out of a vault, of each that it means and of nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from memtui.backends.vault import VaultAdapter
from memtui.contract import EraseReply, EraseRequest, ForgetRequest, RecordHandle, Scope

from .conftest import SCOPE, Open, contents, fact, note, upsert

ANA, BO = (Scope(company_id="acme", subject_id=who) for who in ("ana", "bo"))
ABOUT_ANA = SCOPE.model_copy(update={"subject_id": "ana"})
HISTORY = "projects/web/facts.history.jsonl"


async def forget(adapter: VaultAdapter, *handles: RecordHandle) -> None:
    await adapter.forget(ForgetRequest(scope=Scope(company_id="acme"), handles=handles))


async def erase(adapter: VaultAdapter, scope: Scope, *gone: RecordHandle) -> EraseReply:
    """Erase, after a look that must tell the same and change nothing."""
    ids = tuple(one.provider_record_id for one in gone)
    asked = EraseRequest(scope=scope, record_ids=ids)
    told = await adapter.erase(asked)
    assert await adapter.erase(asked) == told
    done = await adapter.erase(asked.model_copy(update={"apply": True}))
    assert (done.kept, done.texts, done.record_ids) == (told.kept, told.texts, told.record_ids)
    assert not (await adapter.erase(asked)).kept
    return done


async def test_each_version_that_was_about_a_subject_goes(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    gone = await upsert(adapter, "oncall: ana", scope=ABOUT_ANA)
    await upsert(adapter, "oncall: nobody")
    second = await fact(adapter, "backup: ana", scope=ABOUT_ANA)
    other = await fact(adapter, "lead: bo", scope=SCOPE.model_copy(update={"subject_id": "bo"}))
    kept = await fact(adapter, "badge: ana", scope=ABOUT_ANA)
    own = [await fact(adapter, f"{word}: here", scope=ANA) for word in ("desk", "chair")]
    await forget(adapter, gone, second, other, *own)
    done = await erase(adapter, ANA)
    assert sorted(done.texts) == [
        "backup: ana", "chair: here", "desk: here", "oncall: ana", "oncall: nobody"
    ]  # fmt: skip
    assert set(done.record_ids) == {one.provider_record_id for one in (gone, second, *own)}
    assert done.kept == {HISTORY: 3, "users/ana/facts.history.jsonl": 2}
    left = (root / HISTORY).read_text()
    assert "oncall" not in left
    assert "backup" not in left
    assert '"lead: bo"' in left
    assert await adapter.get(kept, SCOPE) is not None


async def test_a_subjects_empty_folders_go_and_no_one_elses(open_vault: Open, root: Path) -> None:
    for name in ("ana", "bo"):  # made by hand, or forgetting would remove them
        (root / "users" / name / "memory").mkdir(parents=True)
    adapter = await open_vault()
    handles = [await note(adapter, f"{scope.subject_id} was here.", scope=scope)
               for scope in (ANA, BO)]  # fmt: skip
    handles += [await fact(adapter, "shoe: 40", scope=scope) for scope in (ANA, BO)]
    await forget(adapter, *handles)
    await erase(adapter, ANA, *handles[::2])
    assert not (root / "users/ana").exists()
    assert (root / "users/bo/memory").is_dir()
    assert "users/bo/facts.history.jsonl" in contents(root)


async def test_of_what_is_gone_the_index_keeps_no_name(open_vault: Open, tmp_path: Path) -> None:
    adapter = await open_vault()
    handles = [await note(adapter, f"The quagga number {n}.", title=f"Quagga {n}") for n in (1, 2)]
    kept = await note(adapter, "The zebra.", title="Zebra")
    await forget(adapter, *handles)
    await erase(adapter, Scope(company_id="acme"), *handles)
    await adapter.close()
    with sqlite3.connect(tmp_path / "data/index/vault.sqlite3") as database:
        tables = [name for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
        )]  # fmt: skip
        held = {name: str(database.execute(f"SELECT * FROM {name}").fetchall()) for name in tables}
    database.close()
    assert not [name for name, rows in held.items() if "quagga" in rows.lower()]
    assert kept.provider_record_id in held["written"]
