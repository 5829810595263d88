"""`completion`, installed by the command and used in real shells."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pexpect
import pytest

from memtui.config import find_paths, load_settings
from memtui.service import Caller, open_service
from tests.channels.cli.conftest import Run

STARTED = {"bash": ".bashrc", "zsh": ".zshrc", "fish": None}


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)


def install(here: Run, verb: str, shell: str) -> None:
    shown = here("config", "completion", verb, shell, "--json")
    assert (shown.code, shown.document["done"]) == (2, False)
    done = here("config", "completion", verb, shell, "--yes", shown.document["code"])
    assert done.code == 0, done.err
    assert here("config", "completion", verb, shell).out.startswith("Nothing to do: ")


@pytest.mark.parametrize("shell", STARTED)
def test_what_is_installed_is_shown_first_and_taken_away_to_the_byte(
    here: Run, person: Path, shell: str
) -> None:
    def files() -> dict[str, bytes]:
        found = (path for path in person.rglob("*") if path.is_file())
        return {str(path.relative_to(person)): path.read_bytes() for path in found}

    dotfiles = person / "dotfiles"
    dotfiles.mkdir()
    started = STARTED[shell]
    if started is not None:
        (dotfiles / "rc").write_bytes(b"# \xff mine\nalias x=y\n")
        (person / started).symlink_to(dotfiles / "rc")
    before = files()
    shown = here("config", "completion", "install", shell)
    assert (shown.code, files()) == (2, before)
    assert "_MEMTUI_COMPLETE" in shown.out
    install(here, "install", shell)
    if started is not None:
        assert (person / started).is_symlink()
        assert (dotfiles / "rc").read_bytes().startswith(before["dotfiles/rc"])
    assert any(b"_MEMTUI_COMPLETE" in text for text in files().values())
    install(here, "remove", shell)
    assert files() == before


def test_a_link_to_a_file_that_says_nothing_else_stays(here: Run, person: Path) -> None:
    (person / "rc").touch()
    (person / ".zshrc").symlink_to(person / "rc")
    install(here, "install", "zsh")
    install(here, "remove", "zsh")
    assert ((person / ".zshrc").is_symlink(), (person / "rc").read_bytes()) == (True, b"")


def test_a_startup_file_that_cannot_be_read_is_told(here: Run, person: Path) -> None:
    (person / ".bashrc").mkdir()
    ran = here("config", "completion", "install", "bash")
    assert (ran.code, ran.err) == (3, f"{person / '.bashrc'} cannot be read: Is a directory.\n")


@pytest.mark.slow
@pytest.mark.parametrize("shell", STARTED)
def test_a_real_shell_completes_bindings(
    here: Run, home: Path, person: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    paths = find_paths(home)
    caller = Caller(company_id="local", principal="user:ana", channel="test")

    async def prepare() -> None:
        service = await open_service(paths, load_settings(paths))
        await service.bindings.add(caller, "research-kb", "vault", {})
        await service.close()

    asyncio.run(prepare())
    install(here, "install", shell)
    program = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MEMTUI")},
        "PATH": f"{program}{os.pathsep}{os.environ['PATH']}",
        "MEMTUI_HOME": str(home),
        "TERM": "xterm",
    }
    terminal = pexpect.spawn(
        shell, ["-i"], env=environment, encoding="utf-8", timeout=60, dimensions=(40, 200)
    )
    try:
        terminal.sendline("echo rea'dy'")
        terminal.expect("ready")
        terminal.send("memtui bindings show res\t")
        terminal.expect("earch-kb|research-kb")
    finally:
        terminal.close(force=True)


def test_completing_in_an_empty_home_makes_nothing(
    tmp_path: Path, here: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    monkeypatch.setenv("_MEMTUI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"memtui --home {empty} bindings show ")
    monkeypatch.setenv("COMP_CWORD", "5")
    assert here().code == 0
    assert not empty.exists()


def test_a_shell_that_is_not_known_is_asked_for(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    ran = here("config", "completion", "install")
    assert (ran.code, ran.err) == (2, "The shell is not known; name it: bash, zsh or fish.\n")
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert "compdef _memtui_completion memtui" in here("config", "completion", "show").out


def test_a_word_that_a_command_takes_names_that_command(here: Run) -> None:
    said = here("config", "completion", "bash")
    assert (said.code, "Did you mean 'memtui config completion show bash'" in said.err) == (2, True)
    assert "Did you mean 'show'?" in here("config", "completion", "shwo").err


def test_what_figures_are_grouped_by_is_completed(
    here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_MEMTUI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "memtui stats --by i")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert here().out.split() == ["issue"]
