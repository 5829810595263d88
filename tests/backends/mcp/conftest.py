from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from memtui.backends.mcp import McpAdapter
from memtui.contract import BindingContext
from tests.backends.mcp.fakes import FAKE

NOTES = Path(__file__).with_name("notes_server.py")
_PAGE = Path(__file__).parents[3] / "docs" / "providers.md"


def _shown() -> str:
    """Return the path of a file with the mapping that the page shows."""
    [text] = re.findall(r"```toml\n(title = .*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    file = Path(mkdtemp()) / "notes.toml"
    atexit.register(shutil.rmtree, file.parent)
    file.write_text(text)
    return str(file)


MAPPING = _shown()


def without(*sections: str) -> str:
    """Return the text of the notes' mapping without some sections."""
    names = "|".join(sections)
    return re.sub(rf"\[({names})\]\n(.+\n)*", "", Path(MAPPING).read_text())


def notes_command(file: Path) -> str:
    return shlex.join([sys.executable, str(NOTES), str(file)])


@pytest.fixture(scope="session")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The notes' server over HTTP: its address, and the file of its notes."""
    file = tmp_path_factory.mktemp("notes") / "notes.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(NOTES), str(file), str(port)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "running on" in line:
            break
    else:
        raise AssertionError("the notes' server did not start")
    yield f"http://127.0.0.1:{port}/mcp", file
    process.kill()
    process.wait()
    process.stderr.close()


_CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    socket.send_fds(server, [sys.argv[2].encode()], [0, 1, 2])
    server.recv(1)
"""


@pytest.fixture(scope="session")
def forked_notes() -> Iterator[Callable[[Path], str]]:
    """Give the command of a notes' server that imports nothing: it is forked of a ready one."""
    with TemporaryDirectory() as folder:  # short, as the path of a socket has to be
        waiting = str(Path(folder) / "s")
        command = [sys.executable, str(NOTES), os.devnull, waiting]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            connect = [sys.executable, "-S", "-c", _CONNECT, waiting]
            yield lambda file: shlex.join([*connect, str(file)])
            process.kill()


Opened = Callable[..., Awaitable[McpAdapter]]


@pytest.fixture
async def opened(tmp_path: Path) -> Any:
    """Opens a binding to a server that behaves as told; it is closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_(*behaviour: str, **config: Any) -> McpAdapter:
            command = shlex.join([sys.executable, "-S", str(FAKE), str(tmp_path), *behaviour])
            given = {"command": command, "mapping": MAPPING, **config}
            context = BindingContext(
                company_id="acme",
                binding_key="notes",
                config=given,
                data_dir=tmp_path / "data",
                secret=os.environ.get,
                redact=lambda text: text.replace("hunter2", "•••"),
            )
            adapter = await McpAdapter.open(context)
            stack.push_async_callback(adapter.close)
            return adapter

        yield open_
