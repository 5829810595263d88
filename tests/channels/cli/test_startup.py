from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from memtui import config, contract
from memtui.channels.cli import main
from memtui.channels.cli.session import Invocation, global_options
from memtui.service import answers, visibility
from memtui.store import operation
from tests.channels.cli.conftest import Run, Terminal

HEAVY = {"textual", "sqlmodel", "sqlalchemy", "duckdb", "pydantic", "rich", "asyncio", "alembic"}
SLOW = {"email", "filelock", "importlib.metadata", "tomllib", "zipfile"}
"""What a query needs none of, each some hundredths of its time."""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from memtui.channels.cli.main import run; "
        f"code = run({arguments!r}); print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & HEAVY == set()
    assert done.stdout


def test_a_query_loads_no_engine_even_beside_sealed_operations(tmp_path: Path) -> None:
    def loaded(*commands: list[str]) -> list[set[str]]:
        """Run commands in one fresh process; give which engines it has after each."""
        code = (
            "import sys; from memtui.channels.cli.main import run\n"
            f"for words in {commands!r}:\n"
            "    assert run(words) == 0; print(*sys.modules, file=sys.stderr)"
        )
        home = os.environ | {"MEMTUI_HOME": str(tmp_path), "MEMTUI_HOT_DAYS": "0"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home
        )
        told = [set(line.split()) for line in done.stderr.splitlines()]
        return [engines & names for names in told if "memtui.channels.cli.main" in names]

    engines = {"sqlalchemy", "sqlmodel", "duckdb", "alembic"}
    assert "duckdb" in loaded(["note", "Yes."], ["ops", "archive", "seal"])[-1]
    commands = ["note", "No."], ["query", "deploy"], ["bindings", "list"], ["budget", "list"]
    assert loaded(*commands) == [set()] * len(commands)


def test_a_query_compiles_and_checks_no_more_than_it_uses(tmp_path: Path) -> None:
    code = (
        "import sys, typer._adapters as adapters; from memtui.channels.cli.main import run\n"
        "assert run(['note', 'Yes.']) == 0\n"
        "built, make = [], adapters.try_build_adapter\n"
        "adapters.try_build_adapter = lambda **given: built.append(given) or make(**given)\n"
        "assert run(['query', 'deploy', '--top-k', '3']) == 0\n"
        "from memtui.service.operations import redaction\n"
        "print(len(built), 'search' in vars(redaction._NAMED), file=sys.stderr)"
    )
    home = os.environ | {"MEMTUI_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home
    )
    # The text, and the three options that have a default.
    assert done.stderr.splitlines()[-1] == "4 False"


@pytest.mark.parametrize("module", [contract, answers, operation, visibility, config])
def test_the_models_of_every_command_have_no_annotations_to_compile(module: ModuleType) -> None:
    models = [one for one in vars(module).values() if isinstance(one, type)]
    own = [
        one.__annotations__
        for one in models
        if one.__module__ == module.__name__ and issubclass(one, BaseModel)
    ]
    assert own
    assert not [name for found in own for name, hint in found.items() if isinstance(hint, str)]


@pytest.mark.parametrize(
    ("arguments", "imported", "told"),
    [(["query", "Yes"], "sys", "True"), (["--version"], "duckdb", "False")],
)
def test_a_command_collects_no_garbage_not_even_at_its_end_and_imports_little(
    arguments: list[str], imported: str, told: str, tmp_path: Path
) -> None:
    assert main.run(["--home", str(tmp_path), "note", "Yes."]) == 0
    code = (
        f"import atexit, gc, sys, {imported}; from memtui.__main__ import main; ran = []\n"
        f"def tell(): print(*ran, *{SLOW} & {{*sys.modules}} - known, gc.get_freeze_count() > 0)\n"
        "atexit.register(tell); gc.callbacks.append(lambda phase, info: ran.append(phase))\n"
        f"known = {{*sys.modules}}; sys.argv = ['memtui', *{arguments}]; main()"
    )
    home = os.environ | {"MEMTUI_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home
    )
    assert done.stdout.splitlines()[-1] == told


def test_what_the_app_froze_is_not_told_as_leaked_when_it_ends(tmp_path: Path) -> None:
    code = (
        "import gc, duckdb; duckdb.connect(); gc.freeze(); from memtui import app; "
        "from memtui.config import Settings, find_paths; "
        "app.MemtuiApp.run = lambda self, mouse: None; app.run_app(find_paths(), Settings())"
    )
    home = os.environ | {"MEMTUI_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home
    )
    assert done.stderr == ""


def test_the_first_paint_waits_for_textual_alone(tmp_path: Path) -> None:
    # Where the app would run, its modules are printed instead.
    code = (
        "import sys; from memtui import app, __main__\n"
        "shown = open('modules', 'w')\n"
        "app.MemtuiApp.run = lambda self, mouse: shown.write(' '.join(sys.modules))\n"
        "__main__.main()"
    )
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=os.environ | {"MEMTUI_HOME": str(tmp_path)},
        check=False,
    )
    os.close(theirs)
    os.close(ours)
    modules = set((tmp_path / "modules").read_text(encoding="utf-8").split())
    heavy = (HEAVY | {"typer"}) - {"textual", "rich", "asyncio"}
    assert {name.partition(".")[0] for name in modules} & heavy == set()
    assert modules & {"memtui.contract", "memtui.service", "memtui.screens.base"} == set()


@pytest.mark.parametrize(
    ("arguments", "quick"),
    [
        ([], True),
        (["--company", "acme"], True),
        (["--company=acme", "--read-only"], True),
        (["--home", "{home}", "--principal", "user:ana"], True),
        (["--home=none", "--home", "{home}", "--principal=agent:x", "--acts-for", "user:a"], True),
        (["--home", "~/x", "--company", "a b=c"], True),
        (["--home", "{file}"], False),
        (["--company"], False),
        (["--company", ""], False),
        (["--company", "-x"], False),
        (["--compan", "acme"], False),
        (["--read-only=1"], False),
        (["--version"], False),
        (["--help"], False),
        (["query", "x"], False),
        (["--", "query"], False),
        (["--company", "\udcff"], False),
    ],
)
def test_the_quick_way_into_the_app_takes_the_options_that_the_parser_takes(
    arguments: list[str], quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    given = [one.format(home=tmp_path, file=file) for one in arguments]
    found = global_options(given)
    assert (found is not None) == quick
    if found is not None:
        opened: list[Invocation] = []
        monkeypatch.setattr(main, "open_app", opened.append)
        assert main.run(given) == 0
        assert opened == [found]


@pytest.mark.parametrize("encoding", ["iso-8859-1", "ascii", "cp1252", "utf-16"])
def test_a_terminal_of_another_encoding_is_told_so_in_one_sentence(
    here: Run, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(Terminal, "encoding", encoding)
    ran = here(terminal=True)
    assert ran.code == 2
    assert f"this terminal takes {encoding}; set LANG" in ran.err
    assert ran.err.count("\n") == 1


def test_names_of_files_in_another_encoding_are_refused_before_one_is_met(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "browse"], capture_output=True, text=True, check=False,
        env=os.environ | plain | {"MEMTUI_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "Python takes names of files for ascii here" in done.stderr
    assert done.stderr.count("\n") == 1
