"""Hooks through the helper: the same answers, and nothing of the helper's own in them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from memtui.channels.helper.wire import HEADER
from memtui.config import Settings
from memtui.contract import Filter, OperationType
from memtui.service import Caller, Operation, open_service
from tests.channels.helper.conftest import FACT, PRE_RUN, STARTS, Hooks, wait_for

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are looked at in /proc"
)


async def test_a_hook_through_the_helper_is_the_hook_itself(
    served: Hooks, tmp_path: Path, caller: Caller
) -> None:
    helper = served.helper()
    for words in (PRE_RUN, (*PRE_RUN, "--no-such")):
        assert served.run(*words) == served.run_cold(*words)
    told = json.loads(served.run()[1])["hookSpecificOutput"]["additionalContext"]
    assert FACT in told

    as_scout = {"MEMTUI_PRINCIPAL": "agent:scout", "": "a name that no program can set"}
    hook, child = served.begin(cwd=tmp_path, env=as_scout, umask=0o027)
    held = {path.name: str(path.readlink()) for path in Path(f"/proc/{child}/fd").iterdir()}
    assert Path(f"/proc/{child}/cwd").readlink() == tmp_path
    assert "Umask:\t0027" in Path(f"/proc/{child}/status").read_text()
    assert not [path for path in held.values() if path.startswith((os.devnull, "/tmp/mt-"))]
    assert len([path for path in held.values() if path.startswith("pipe:")]) == 3
    for stream in ("1", "2"):
        assert held[stream] == str(Path(f"/proc/{hook.pid}/fd/{stream}").readlink())
    answer, _ = hook.communicate(STARTS, timeout=30)
    assert answer == served.run()[1]
    assert Path(f"/proc/{helper}/cwd").readlink() == Path("/")
    doers = [one.principal for one in await contexts(served, caller)]
    assert doers.count("agent:scout") == 1


async def contexts(hooks: Hooks, caller: Caller) -> Sequence[Operation]:
    """Return the newest contexts of the log."""
    service = await open_service(hooks.paths, Settings(principal="user:ana"))
    chosen = Filter(operation_type=OperationType.CONTEXT)
    told = (await service.log.page(caller, chosen, limit=500)).operations
    await service.close()
    return told


def test_a_helper_holds_nothing_open_and_is_one_thread(hooks: Hooks) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    with hooks.call(close_fds=False) as hook:
        os.close(writer)
        hook.communicate(STARTS, timeout=30)
    assert os.read(reader, 1) == b""  # nobody holds the other end
    os.close(reader)
    helper = hooks.helper()
    held = [str(path.readlink()) for path in Path(f"/proc/{helper}/fd").iterdir()]
    files = {path for path in held if path.startswith("/")} - {os.devnull}
    assert files == {hooks.place.socket.replace(".sock", ".lock")}
    assert len(list(Path(f"/proc/{helper}/task").iterdir())) == 1
    assert os.getsid(helper) == helper
    assert stat.S_IMODE(Path(hooks.place.folder).stat().st_mode) == 0o700


async def test_many_hooks_at_once(served: Hooks, caller: Caller) -> None:
    helper, before = served.helper(), len(await contexts(served, caller))
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: served.run(), range(8)))
    assert {code for code, _, _ in answers} == {0}
    assert len({output for _, output, _ in answers}) == 1
    assert served.place.holder() == helper
    assert len(await contexts(served, caller)) == before + 8


def test_a_hook_that_is_killed_in_the_middle_answers_nothing_and_fails_nobody(
    hooks: Hooks,
) -> None:
    helper = hooks.start()
    hook, child = hooks.begin()
    assert child is not None
    os.kill(child, signal.SIGKILL)
    assert hook.communicate(timeout=30) == (b"", b"")
    assert hook.returncode == 0
    assert "ended before it had answered" in hooks.paths.log_file.read_text()

    # Wherever it is killed, the answer is whole or empty.
    whole = hooks.run()[1]
    for opened in ("memtui.db", "memtui.db-wal", "vault.sqlite3"):
        hook, child = hooks.begin()
        with hook:
            assert child is not None
            assert hook.stdin is not None
            hook.stdin.write(STARTS)
            hook.stdin.close()
            wait_for(partial(_has_opened, child, opened))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            assert hook.stdout is not None
            assert hook.stdout.read() in {b"", whole}
        assert hook.returncode == 0
    assert json.loads(hooks.forked("audit", "verify", "--json"))["passed"]

    hook, child = hooks.begin()
    os.kill(helper, signal.SIGKILL)  # its child goes on alone
    answer, errors = hook.communicate(STARTS, timeout=30)
    assert (hook.returncode, errors) == (0, b"")
    assert answer == hooks.run_cold()[1]

    # What was left of it is in nobody's way.
    assert Path(hooks.place.socket).exists()
    fresh = hooks.start()
    assert fresh != helper
    assert hooks.is_served()

    state = json.loads(hooks.forked("hook", "helper", "--json"))
    assert (state["running"], state["process"], state["idle_s"]) == (True, fresh, 600)
    assert "No helper runs" in hooks.forked("hook", "helper", "--stop")
    assert hooks.place.holder() is None


def _has_opened(process: int, name: str) -> bool:
    """Whether a process has a file open, or is gone."""
    folder = Path(f"/proc/{process}/fd")
    try:
        return any(str(path.readlink()).endswith(name) for path in folder.iterdir())
    except OSError:
        return not folder.exists()


def test_a_client_that_is_gone_ends_its_hook(served: Hooks) -> None:
    for sign, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        hook, child = served.begin()
        with hook:
            assert child is not None
            hook.send_signal(sign)
            assert hook.wait(timeout=30) == code
            wait_for(partial(_is_gone, child))
    assert served.is_served()


def _is_gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


def test_who_talks_nonsense_to_a_helper_is_not_answered(served: Hooks) -> None:
    for words in (b"", b"\xff" * 100, HEADER.pack(5) + b"a\0b\0c", HEADER.pack(0)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(served.place.socket)
            if words:
                socket.send_fds(client, [words], [0, 0, 0])
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                assert words  # which it did not read to their end
    assert served.is_served()


def test_a_helper_that_hangs_is_not_waited_for(served: Hooks) -> None:
    helper, whole = served.helper(), served.run()
    os.kill(helper, signal.SIGSTOP)
    try:
        # To the end of its output, which nothing in the helper's queue may hold open.
        assert served.run() == whole
    finally:
        os.kill(helper, signal.SIGCONT)
    assert served.is_served()


def test_another_version_takes_the_place_of_a_helper(hooks: Hooks) -> None:
    old = hooks.start()
    other = {"PYTHONWARNINGS": "ignore"}
    assert not hooks.is_served(env=other)
    wait_for(lambda: hooks.place.holder() != old)
    hooks.run(env=other)
    hooks.helper()
    assert hooks.is_served(env=other)

    # So do new settings, which may want none.
    hooks.paths.config_file.write_text("helper_idle_s = 0\n")
    del hooks.environment["MEMTUI_HELPER_IDLE_S"]
    assert hooks.run(env=other)[0] == 0
    wait_for(lambda: hooks.place.holder() is None)
    assert not Path(hooks.place.socket).exists()


def test_a_process_of_fewer_rights_gets_nothing_from_a_helper(served: Hooks) -> None:
    def confine() -> None:
        assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS, see prctl(2)

    assert not served.is_served(preexec_fn=confine)


def test_a_folder_that_others_can_enter_is_not_used(hooks: Hooks, tmp_path: Path) -> None:
    folder = Path(hooks.place.folder)
    folder.mkdir(mode=0o755)
    assert hooks.run()[0] == 0
    assert [*folder.iterdir()] == []
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    assert hooks.run()[0] == 0
    assert [*elsewhere.iterdir()] == []
    checks = json.loads(hooks.forked("doctor", "--json"))["checks"]
    [found] = [check for check in checks if check["name"] == "helper"]
    assert found["status"] == "warning"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_another_user_listens_on_is_told_nothing(hooks: Hooks) -> None:
    Path(hooks.place.folder).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(hooks.place.socket)
        stranger = os.fork()
        if not stranger:
            os.setuid(65534)
            listener.listen()
            connection, _ = listener.accept()
            os._exit(len(connection.recv(1)))
        wait_for(lambda: _listens(hooks.place.socket))
        assert hooks.run(env={"MEMTUI_HELPER_IDLE_S": "600"})[0] == 0
        _, status = os.waitpid(stranger, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def _listens(path: str) -> bool:
    """Whether a socket takes connections, told by the system's table: the first one counts."""
    [line] = [one for one in Path("/proc/net/unix").read_text().splitlines() if one.endswith(path)]
    return line.split()[3] == "00010000"


def test_it_ends_when_nobody_needs_it(hooks: Hooks) -> None:
    hooks.environment["MEMTUI_HELPER_IDLE_S"] = "1"
    hooks.start()
    wait_for(lambda: not [*Path(hooks.place.folder).iterdir()])


def test_what_hooks_need_is_imported_before_they_come(served: Hooks) -> None:
    script = (
        "import io, sys; from memtui.channels.helper.server import warm\n"
        "from memtui.channels.cli.main import run; warm('gpt-4o'); known = {*sys.modules}\n"
        "for said in sys.stdin.read().splitlines():\n"
        "    sys.stdin = io.TextIOWrapper(io.BytesIO(said.encode())); run(sys.argv[1:])\n"
        "print([name for name in sys.modules.keys() - known if name.startswith('memtui')])"
    )
    asks = b'{"session_id": "s-9", "hook_event_name": "UserPromptSubmit", "prompt": "Deploys?"}'
    answer = subprocess.run(
        [sys.executable, "-c", script, *PRE_RUN],
        env=served.environment,
        input=STARTS + b"\n" + asks,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert answer.stdout.count(b"additionalContext") == 2
    assert answer.stdout.endswith(b"[]\n")
