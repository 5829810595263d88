"""One of each thing that memtui grows by, added to a copy of it in the files that it may take.

What is added stands here as texts. The copy then runs in a process of its own (`python -m
tests.test_adding`), where everything that was added is used.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[1]
COPIED = ("memtui", "docs", "styles.tcss", "pyproject.toml")


class Edit(NamedTuple):
    """A line of a file and what stands in its place; without a line it goes to the end."""

    line: str
    becomes: str


PROVIDER = '''\
"""A provider that keeps its records in one file of its binding."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Self

from memtui.contract import (
    Adapter,
    BindingContext,
    ContextBundle,
    ForgetReply,
    ForgetRequest,
    Model,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    WriteReply,
    WriteRequest,
)


class NotebookConfig(Model):
    """There is nothing to set."""


class NotebookAdapter(Adapter):
    """One line of JSON a record."""

    key = "notebook"
    config_model = NotebookConfig

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the file."""
        context.data_dir.mkdir(parents=True, exist_ok=True)
        return cls(context.data_dir / "notebook.jsonl")

    def _read(self) -> list[Record]:
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        return [Record.model_validate_json(line) for line in lines]

    def _keep(self, records: list[Record]) -> None:
        self._file.write_text("".join(f"{one.model_dump_json()}\\n" for one in records), "utf-8")

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a record."""
        handle = RecordHandle(provider_key=self.key, provider_record_id=uuid.uuid4().hex)
        record = Record(handle=handle, text=request.content, scope=request.scope)
        self._keep([*self._read(), record])
        return WriteReply(records=(handle,))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Find the records that hold the words."""
        found = [Snippet(**dict(one)) for one in self._read() if request.query in one.text]
        return ContextBundle(snippets=tuple(found[: request.top_k]))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a record."""
        return next((one for one in self._read() if one.handle == handle), None)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove records."""
        self._keep([one for one in self._read() if one.handle not in request.handles])
        return ForgetReply()
'''

DIALOG = '''\
"""The doors through which memtui is entered, over a screen."""

from __future__ import annotations

from textual.content import Content

from memtui.screens.modal import ModalListScreen
from memtui.widgets.columns import Column
from memtui.widgets.display import display


class Doors(ModalListScreen[str]):
    """List the doors."""

    ACTION_GROUP = "doors"
    NOUN = "door"

    def columns(self) -> list[Column[str]]:
        """Return the columns of the list."""
        return [Column("door", "door", str, 10)]

    def key(self, row: str) -> str:
        """Return the name of a door."""
        return row

    async def read(self) -> list[str]:
        """Return the doors."""
        return ["cli", "tui"]

    def draw_head(self) -> Content:
        """Return the lines above the list."""
        return display("Doors")

    def detail(self, row: str, width: int) -> Content:
        """Return a door whole."""
        return display("A door.")

    def action_knock(self) -> None:
        """Knock at the door."""
        self.toast("Knock, knock.")
'''

SCREEN = '''\
"""The machines that operations ran on."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from memtui.screens.base import MemtuiScreen
from memtui.widgets.display import display


class MachinesScreen(MemtuiScreen):
    """Show the machines."""

    MODE = "machines"
    FILTERED = False

    def compose_body(self) -> ComposeResult:
        """Lay out the text."""
        yield Static(id="machines")

    def load(self) -> None:
        """Say whose machines."""
        self.query_one("#machines", Static).update(display(f"of {self.session.company.name}"))

    def action_ping(self) -> None:
        """Ask whether they are there."""
        self.toast("They are there.")
'''

COMMAND = '''

async def ops_count(session: Session, scope: ScopeOptions, which: OperationOptions) -> None:
    """Count the operations of a scope."""
    page = await session.service.log.page(session.caller, which.filter(session, None, scope))
    session.out.answer({"total": page.total}, [str(page.total)])
'''

ADDED: dict[str, dict[str, str | tuple[Edit, ...]]] = {
    "a provider": {
        "memtui/backends/notebook.py": PROVIDER,
        "pyproject.toml": (
            Edit(
                'facts = "memtui.backends.facts:FactsAdapter"',
                'facts = "memtui.backends.facts:FactsAdapter"\n'
                'notebook = "memtui.backends.notebook:NotebookAdapter"',
            ),
        ),
    },
    "a modal screen": {
        "memtui/screens/doors.py": DIALOG,
        "memtui/actions.toml": (
            Edit(
                "[prune]",
                '[doors]\ndialog = "the doors"\nfooter = "knock help leave"\n\n'
                "[doors.actions]\n"
                'knock = { keys = "K", description = "Knock at the door." }\n'
                'help = { keys = "question_mark f1", description = "Show the keys." }\n'
                'leave = { keys = "escape q", description = "Go back.", label = "back" }\n\n'
                "[prune]",
            ),
            Edit(
                'theme = { keys = "ctrl+t", description = "Choose a theme." }',
                'theme = { keys = "ctrl+t", description = "Choose a theme." }\n'
                'doors = { keys = "f9", description = "Show the doors.", needs = "SERVICE" }',
            ),
        ),
        "memtui/app.py": (
            Edit(
                "    def action_limits(self) -> None:",
                "    def action_doors(self) -> None:\n"
                '        """Show the doors."""\n'
                "        from memtui.screens.doors import Doors\n\n"
                "        self.push_screen(Doors(self.state))\n\n"
                "    def action_limits(self) -> None:",
            ),
        ),
    },
    "a numbered screen": {
        "memtui/screens/machines/__init__.py": '"""Machines."""\n',
        "memtui/screens/machines/screen.py": SCREEN,
        "memtui/actions.toml": (
            Edit(
                "[list.actions]",
                "[machines]\n"
                'screen = { number = 7, title = "Machines", short = "Mach", groups = "" }\n'
                'footer = "ping"\n\n'
                "[machines.actions]\n"
                'ping = { keys = "i", description = "Ask whether they are there." }\n\n'
                "[list.actions]",
            ),
        ),
    },
    "a command": {"memtui/channels/cli/ops.py": (Edit("", COMMAND),)},
    "a setting": {
        "memtui/config.py": (
            Edit(
                "    keymap: dict[str, str] = {}",
                "    quiet_hours: Annotated[int, Field(ge=0, le=24)] = 0\n"
                '    """How many hours of a day nobody is told anything."""\n'
                "    keymap: dict[str, str] = {}",
            ),
        )
    },
    "a field of an operation": {
        "memtui/store/operation.py": (
            Edit(
                "    absent: dict[str, Absent] = {}",
                '    host: str | None = Field(default=None, title="ran on")\n'
                '    """The machine that it ran on."""\n'
                "    absent: dict[str, Absent] = {}",
            ),
        ),
        "memtui/service/recorder.py": (
            Edit(
                "            channel=self.caller.channel,",
                '            channel=self.caller.channel,\n            host="mill-3",',
            ),
        ),
    },
}


def promised() -> dict[str, int]:
    """Return how many files CONTRIBUTING says that each takes, its test aside."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    return {what: int(files) for what, files in re.findall(r"(?m)^\| (an? [^|]+) \| (\d) \|", text)}


def add(copy: Path, files: dict[str, str | tuple[Edit, ...]]) -> None:
    for name, change in files.items():
        path = copy / name
        if isinstance(change, str):
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(change, "utf-8")
            continue
        text = path.read_text("utf-8")
        for line, becomes in change:
            assert not line or text.count(f"{line}\n") == 1, f"{name} has not one line {line!r}"
            text = text.replace(f"{line}\n", f"{becomes}\n") if line else text + becomes
        path.write_text(text, "utf-8")


def install(copy: Path) -> None:
    """Do what an installation does with the entry points."""
    project = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))["project"]
    folder = copy / "memtui-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: memtui\nVersion: 0\n")
    lines = [f"{name} = {place}" for name, place in _providers(project).items()]
    (folder / "entry_points.txt").write_text("\n".join(["[memtui.providers]", *lines, ""]))


def _providers(project: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = project["entry-points"]["memtui.providers"]
    return found


def test_one_of_each_takes_no_more_files_than_promised_and_works(tmp_path: Path) -> None:
    assert promised() == {what: len(files) for what, files in ADDED.items()}
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    for files in ADDED.values():
        add(copy, files)
    install(copy)
    places = f"{copy}{os.pathsep}{REPOSITORY}"
    own = os.environ | {"PYTHONPATH": places, "MEMTUI_HOME": str(tmp_path / "home")}
    for module in ("tools.generate", "tests.test_adding"):
        done = subprocess.run(
            [sys.executable, "-m", module],
            cwd=copy,
            env=own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def memtui(*arguments: str, code: int = 0, as_json: bool = True) -> Any:
    """Run a command in this process; returns its JSON, or its text."""
    from memtui.channels.cli.main import run

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()) as told:
        ended = run([*arguments, *(["--json"] if as_json else [])])
    out.seek(0)
    said = out.read()
    assert ended == code, (arguments, said, told.getvalue())
    return json.loads(said) if as_json and not code else said + told.getvalue()


def prove_provider() -> None:
    listed = memtui("bindings", "providers")
    assert "notebook" in json.dumps(listed)
    memtui("bindings", "add", "notes", "notebook")
    memtui("bindings", "target", "set", "notes", "company")
    memtui("note", "The mill runs at night.")
    found = memtui("query", "mill")
    assert [one["text"] for one in found["snippets"]] == ["The mill runs at night."]


def prove_command() -> None:
    total = memtui("ops", "count")["total"]
    assert total > 0
    assert int(memtui("ops", "count", as_json=False)) >= total
    listed = memtui("ops", "--help", as_json=False)
    assert re.search(r"count +Count the operations of a scope\.", listed)
    assert "--project" in memtui("ops", "count", "--help", as_json=False)


def prove_setting(home: Path) -> None:
    from memtui.config import find_paths, load_settings

    paths, file = find_paths(home), home / "config.toml"
    file.write_text("quiet_hours = 7\n")
    assert load_settings(paths).quiet_hours == 7  # type: ignore[attr-defined]
    file.write_text("quiet_hours = 25\n")
    assert "quiet_hours" in memtui("ops", "count", code=2)
    file.write_text("quiet_hour = 7\n")
    assert "did you mean quiet_hours?" in memtui("ops", "count", code=2)
    file.unlink()


def prove_field(folder: Path) -> None:
    last = memtui("ops", "list")["operations"][0]
    assert memtui("ops", "show", last["operation_id"])["host"] == "mill-3"
    assert re.search(r"ran on +mill-3", memtui("ops", "show", last["operation_id"], as_json=False))
    hosts = "SELECT host, count(*) FROM operations GROUP BY ALL"
    [[host, count]] = memtui("sql", hosts)["rows"]
    assert host == "mill-3"
    memtui("ops", "archive", "seal", "--all")
    assert dict(memtui("sql", hosts)["rows"])["mill-3"] >= count
    logged = [one["host"] for one in memtui("ops", "list")["operations"]]
    files = [folder / f"log.{form}" for form in ("jsonl", "csv", "parquet")]
    for file in files:
        memtui("ops", "export", "--to", str(file))
    for file in files:
        memtui("ops", "import", str(file), "--company", file.suffix[1:])
        brought = memtui("--company", file.suffix[1:], "ops", "list")["operations"]
        assert [one["host"] for one in brought] == logged, file
    assert memtui("audit", "verify")["broken_seq"] is None
    memtui("purge", "--texts-older-than", "0d", "--yes")
    [written] = memtui("ops", "list", "--type", "write")["operations"]
    assert written["host"] is None
    assert "host" in written["absent"]
    assert memtui("audit", "verify")["broken_seq"] is None


async def prove_screens(home: Path) -> None:
    from memtui.config import find_paths, load_settings
    from tests.screens.piloting import running, toasts, until

    paths = find_paths(home)
    async with running(paths, load_settings(paths), "operations") as (app, pilot):
        shown = lambda: type(app.screen).__name__  # noqa: E731
        await pilot.press("f9", "K")
        await until(pilot, lambda: "Knock, knock." in toasts(app))
        assert shown() == "Doors"
        await pilot.press("question_mark")
        await until(pilot, lambda: "Knock at the door." in text_of(app.screen.query("Static")))
        await pilot.press("escape", "escape", "7")
        await until(pilot, lambda: shown() == "MachinesScreen")
        await until(pilot, lambda: "of local" in text_of(app.screen.query("#machines")).lower())
        await pilot.press("i")
        await until(pilot, lambda: "They are there." in toasts(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: "Show the doors." in text_of(app.screen.query("Static")))


def text_of(widgets: Iterable[Any]) -> str:
    return " ".join(str(one.content) for one in widgets if hasattr(one, "content"))


def prove_pages() -> None:
    """Make the pages anew, and find there what was added."""
    from tools.reference import PAGES, write

    docs = Path("docs")
    write(docs)
    pages = " ".join((docs / name).read_text("utf-8") for name in PAGES)
    for said in (
        "`memtui ops count`",
        "`MEMTUI_QUIET_HOURS`",
        "| `host` | VARCHAR | The machine that it ran on. |",
        "`doors.knock`",
        "`machines.ping`",
    ):
        assert said in pages, said


def prove() -> None:
    """Use everything that was added, in the copy."""
    home = Path(os.environ["MEMTUI_HOME"])
    prove_provider()
    prove_command()
    prove_setting(home)
    asyncio.run(prove_screens(home))
    prove_field(home.parent)
    prove_pages()


if __name__ == "__main__":
    prove()
