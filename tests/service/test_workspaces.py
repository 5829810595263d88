"""Memories are judged by the workspace of their project, and compared over bindings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from shutil import rmtree

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import Filter, Invalid, NotFound, Scope, SourceRef, Use, UseTest, WriteRequest
from memtui.pruning.candidates import Reason
from memtui.service import Caller, MemoryService, open_service
from memtui.service.context.pruning import PruneRequest

ANA = Caller(company_id="local", principal="user:ana", channel="test")
AT_HAND = ANA.model_copy(update={"channel": "cli"})
COMPANY = Scope(company_id="local")
WEB = Scope(company_id="local", project_id="web")
SOURCE = SourceRef(kind="manual_note", company_id="local")
EVERYTHING = PruneRequest(scope=COMPANY, kind=None)
GONE = "Rows are HeldRow objects."
_SAME = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.example",
         "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.example",
         "GIT_COMMITTER_DATE": "2090-01-01T00:00:00Z"}  # fmt: skip


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, env=os.environ | _SAME, check=True)


def of(folder: Path) -> str:
    """Return the checked-out commit."""
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """The repository of the project, which had a class `HeldRow` once."""
    folder = tmp_path / "web"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for text in ("class HeldRow: ...\n", "x = 1\n"):
        (folder / "a.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "Change")
    return folder


@pytest.fixture
async def service(paths: Paths) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, load_settings(paths))
    await opened.bindings.add(ANA, "facts", "facts", {})
    yield opened
    await opened.close()


async def wrote(service: MemoryService, text: str, scope: Scope = WEB) -> str:
    request = WriteRequest(scope=scope, source=SOURCE, content=text, kind="fact",
                           binding_key="facts")  # fmt: skip
    [record] = (await service.write(ANA, request)).records
    return record.handle.provider_record_id


async def reasons(
    service: MemoryService, caller: Caller = ANA, **more: Path
) -> dict[str, list[str]]:
    """Return the sentences of what could go because of its workspace, by text."""
    request = EVERYTHING.model_copy(update=more)
    plans = (await service.pruning.everything(caller, request)).plans
    found: dict[str, list[str]] = {}
    for one in (one for plan in plans.values() for one in plan.candidates):
        if one.reason in {Reason.REFERS_TO_GONE, Reason.SAID_ELSEWHERE, Reason.SAYS_OTHERWISE}:
            found.setdefault(one.record.text, []).append(one.sentence)
    return found


async def test_only_memories_of_a_known_workspace_are_judged(
    service: MemoryService, web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wrote(service, GONE)
    await wrote(service, "Say HeldRow twice.", Scope(company_id="local", project_id="other"))
    assert await reasons(service) == await reasons(service, AT_HAND) == {}
    monkeypatch.chdir(web)
    assert await reasons(service) == {}  # a server's own folder tells nobody anything
    assert [*await reasons(service, AT_HAND)] == [GONE]
    assert len(await reasons(service, workspace=web)) == 2
    with pytest.raises(Invalid, match="is no folder"):
        await reasons(service, workspace=web / "never")


async def test_a_setting_names_the_folder_of_a_project(paths: Paths, web: Path) -> None:
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(f'[workspaces]\nweb = "{web}"\n')
    service = await open_service(paths, load_settings(paths))
    await service.bindings.add(ANA, "facts", "facts", {})
    await wrote(service, GONE)
    [sentence] = (await reasons(service))[GONE]
    assert sentence.startswith("`HeldRow` is gone since ")
    risk = Filter(uses=(UseTest(use=Use.RISK, among=("refers_to_gone",)),))
    found = await service.risks.check(ANA)
    assert [one.severity for one in found.risky] == ["outdated"]
    request = EVERYTHING.model_copy(update={"filter": risk})
    plan = (await service.pruning.everything(ANA, request)).plans["facts"]
    assert "refers_to_gone" in {one.reason for one in plan.candidates}
    (web / "a.py").write_text("class HeldRow: ...\n")
    assert not (await service.risks.check(ANA)).risky  # it is back
    await service.close()


async def test_the_own_folder_of_a_project_wins_and_a_damaged_one_hides_no_other(
    paths: Paths, web: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad" / ".git").mkdir(parents=True)
    folders = f'bad = "{tmp_path / "bad"}"\nweb = "{web}"\n'
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(f"[workspaces]\n{folders}")
    service = await open_service(paths, load_settings(paths))
    await service.bindings.add(ANA, "facts", "facts", {})
    for name in ("bad", "web", "bad"):
        await wrote(service, GONE, Scope(company_id="local", project_id=name))
    request = EVERYTHING.model_copy(update={"workspace": tmp_path})
    plans = (await service.pruning.everything(ANA, request)).plans
    found = [one.record.scope.project_id for one in plans["facts"].candidates
             if one.reason is Reason.REFERS_TO_GONE]  # fmt: skip
    assert found == ["web"]
    await wrote(service, "Rows are OldRow objects.")
    for text, number in (("class OldRow: ...\n", 1), ("x = 1\n", 2)):
        (web / "a.py").write_text(text)
        git(web, "commit", "-qam", "Change")
        assert len(await reasons(service)) == number
    await service.close()


async def test_a_workspace_that_cannot_be_read_is_named(
    service: MemoryService, web: Path, tmp_path: Path
) -> None:
    await wrote(service, GONE)
    (web / ".git" / "objects" / "info" / "alternates").write_text(f"{tmp_path}\n")
    request = EVERYTHING.model_copy(update={"workspace": web})
    [limit] = (await service.pruning.everything(ANA, request)).limits
    assert "borrows objects" in limit


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (lambda web: (web / ".git" / "HEAD").unlink(), "cannot be read"),
        (lambda web: (web / ".git" / "HEAD").write_bytes(b"\0\xff"), "names no branch"),
        (lambda web: (web / ".git" / "config").write_bytes(b"[[\0"), "cannot be read: fatal: bad"),
        (lambda web: [step(web / ".git") for step in (rmtree, os.mkfifo)], "cannot be read"),
        (lambda web: rmtree(web / ".git"), "is no work tree of git"),
        (lambda web: (web / ".git").rename(web / "bare"), "is no work tree of git"),
        (lambda web: (web / ".git" / "shallow").write_text(of(web)), "is a shallow clone"),
    ],
)
async def test_a_workspace_of_which_little_is_known_is_told_in_a_sentence(
    service: MemoryService, web: Path, plant: Callable[[Path], object], sentence: str
) -> None:
    await wrote(service, GONE)
    plant(web)
    request = EVERYTHING.model_copy(update={"workspace": web})
    [limit] = (await service.pruning.everything(ANA, request)).limits
    assert sentence in limit


async def test_what_instructions_say_already_is_named_with_its_place(
    service: MemoryService, web: Path
) -> None:
    (web / "CLAUDE.md").write_text(
        "# Rules\n\n- Deploy from the branch main only.\n- Releases are cut on Thursdays.\n"
    )
    await service.bindings.add(
        ANA, "rules", "instructions", {"path": str(web), "project_id": "web"}
    )
    await wrote(service, "deploy from the branch main only")
    await wrote(service, "Releases are cut on Tuesdays.")
    await wrote(service, "Coffee is on the second floor.")
    found = await reasons(service)
    [twice] = found["deploy from the branch main only"]
    assert (
        f"rules ({web / 'CLAUDE.md'}:3) says it too: “Deploy from the branch main only.”" in twice
    )
    assert "Coffee is on the second floor." not in found
    assert len(found) <= 2


async def test_a_dismissed_contradiction_leaves_that_of_another_line(
    service: MemoryService, web: Path
) -> None:
    names = [await wrote(service, f"{what} happens on Tuesdays.") for what in ("Release", "Review")]
    (web / "CLAUDE.md").write_text(
        "# Rules\n\n- Release happens on Thursdays.\n- Review happens on Thursdays.\n"
    )
    config = {"path": str(web), "project_id": "web"}
    await service.bindings.add(ANA, "rules", "instructions", config)
    for name, left in zip(reversed(names), (1, 0), strict=True):
        await service.risks.dismiss(ANA, "facts", name)
        assert len(await reasons(service)) == left


async def test_what_can_be_forgotten_goes_where_a_read_only_binding_says_it(
    service: MemoryService,
) -> None:
    await service.bindings.add(ANA, "closed", "facts", {})
    request = WriteRequest(scope=WEB, source=SOURCE, content="Say it twice.", kind="fact",
                           binding_key="closed")  # fmt: skip
    await service.write(ANA, request)
    await wrote(service, "Say it twice.")
    await service.bindings.update(ANA, "closed", read_only=True)
    plans = (await service.pruning.everything(ANA, EVERYTHING)).plans
    found = {key: [one.reason for one in plan.candidates if one.reason is Reason.SAID_ELSEWHERE]
             for key, plan in plans.items()}  # fmt: skip
    assert found == {"default": [], "facts": [Reason.SAID_ELSEWHERE], "closed": []}


async def test_a_check_for_risks_takes_a_chosen_workspace(
    service: MemoryService, web: Path
) -> None:
    await wrote(service, GONE, Scope(company_id="local", project_id="other"))
    assert not (await service.risks.check(ANA)).risky
    [risky] = (await service.risks.check(ANA, workspace=web)).risky
    assert (risky.severity, risky.record.text) == ("outdated", GONE)
    # A check that does not know the workspace leaves what is known.
    assert len((await service.risks.check(ANA)).risky) == 1
    with pytest.raises(Invalid, match="is no folder"):
        await service.risks.check(ANA, workspace=web / "never")


async def test_a_vault_names_the_workspace_of_a_project(
    service: MemoryService, web: Path, tmp_path: Path
) -> None:
    for key, folder in {"whole": web, "part": web / "docs"}.items():
        folder.mkdir(exist_ok=True)
        config = {"path": str(tmp_path / key), "workspaces": {"web": str(folder)}}
        await service.bindings.add(ANA, key, "vault", config)
        request = WriteRequest(scope=WEB, source=SOURCE, content=GONE, binding_key=key)
        await service.write(ANA, request)
    plans = (await service.pruning.everything(ANA, EVERYTHING)).plans
    found = {key: [one.reason for one in plan.candidates if one.reason is Reason.REFERS_TO_GONE]
             for key, plan in plans.items()}  # fmt: skip
    assert (len(found["whole"]), len(found["part"])) == (1, 0)


async def test_what_another_binding_contradicts_can_be_dismissed(
    service: MemoryService, web: Path
) -> None:
    said = "Releases are cut on Tuesdays."
    name = await wrote(service, said)
    rules = web / "CLAUDE.md"
    rules.write_text("# Rules\n\n- Releases are cut on Thursdays.\n- Deploy on Fridays.\n")
    await service.bindings.add(
        ANA, "rules", "instructions", {"path": str(web), "project_id": "web"}
    )
    assert [*await reasons(service)] == [said]
    assert await service.risks.dismiss(ANA, "facts", name) == ("says_otherwise",)
    assert not await reasons(service)
    rules.write_text(rules.read_text().replace("Fridays", "Mondays"))
    assert not await reasons(service)  # another line
    with pytest.raises(NotFound, match="no known risk"):
        await service.risks.dismiss(ANA, "facts", name)
    assert (await service.undo(ANA)).operation_id
    assert [*await reasons(service)] == [said]
    await service.risks.dismiss(ANA, "facts", name, ["says_otherwise"])
    assert await service.risks.dismiss(ANA, "facts", name, again=True) == ("says_otherwise",)
    assert [*await reasons(service)] == [said]
    await service.risks.dismiss(ANA, "facts", name)
    rules.write_text(rules.read_text().replace("Thursdays", "Wednesdays"))
    assert [*await reasons(service)] == [said]  # the other text has changed
