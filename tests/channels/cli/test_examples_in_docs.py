"""Every example of the documents is run: what they tell a person to type works, and says that.

A page's examples are run in their order, in one home: a copy of the demo, or an empty one. Output
that a page shows is compared, where `…` stands for any text. What cannot be run where there is no
such server is marked `<!-- not run: why -->` above its block; its words are checked all the same.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import httpx
import pytest

from memtui.importing.translating import FIELDS
from tests.backends.hermes import hermes_facts
from tests.backends.tables.kit import enteros, put_memory, put_workspace, stored
from tests.channels.cli.conftest import Run
from tests.channels.http.plugin_server import VAULT, plugin_over
from tests.demos import Built
from tests.processes import PYTEST, Forked
from tools.reference import walk

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_CONSENT = re.compile(r"(?:to do it give|so add) (--yes(?: \w+)?)")
"""How a command that has nobody to ask says what a yes is."""
_ENDS = re.compile(r"# exits with (\d)")
_COMMENT = re.compile(r"(?:^|\s+)#\s.*")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
_ADDRESS = re.compile(r"http://[\w.]+:\d+")


class Example(NamedTuple):
    """A block of a page."""

    page: str
    language: str
    code: str
    not_run: str | None
    """Why it is not run."""

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Its commands, each with the output that stands below it."""
        if self.language == "sh":
            return [(line, "") for line in self.code.replace("\\\n", "").splitlines() if line]
        parts = re.split(r"^\$ ", self.code.replace("\\\n", ""), flags=re.MULTILINE)
        assert not parts[0], f"{self.page}: a console begins with a command"
        return [(line, said) for line, _, said in (part.partition("\n") for part in parts[1:])]


EXAMPLES = [
    Example(page.name, found["language"], found["code"], found["why"])
    for page in PAGES
    for found in _BLOCK.finditer(page.read_text("utf-8"))
]


def pages_with(*languages: str) -> list[str]:
    return sorted({one.page for one in EXAMPLES if one.language in languages and not one.not_run})


def of(page: str, *languages: str) -> list[Example]:
    return [one for one in EXAMPLES if one.page == page and one.language in languages]


def words_of(line: str) -> list[str]:
    return shlex.split(_COMMENT.sub("", line))


def test_what_is_not_run_is_little_and_every_block_says_what_it_is() -> None:
    assert all(one.language for one in EXAMPLES if one.page != "CONTRIBUTING.md")
    assert len([one for one in EXAMPLES if one.not_run]) <= 15


def test_every_link_leads_to_a_page_and_a_heading_that_are_there() -> None:
    prose = {page: _FENCED.sub("", page.read_text("utf-8")) for page in PAGES}
    headings = {page: {_anchor(one) for one in _HEADING.findall(prose[page])} for page in PAGES}
    for page, text in prose.items():
        for target in _LINK.findall(text):
            place, _, anchor = target.partition("#")
            led = (page.parent / place).resolve() if place else page
            assert led.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in headings[led], f"{page.name}: {target}"


def _anchor(heading: str) -> str:
    """Return the name under which a heading can be linked to, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_what_is_not_run_has_the_words_of_commands_that_are_there() -> None:
    commands = dict(walk())
    for example in EXAMPLES:
        for line, _ in example.commands if example.language in {"sh", "console"} else ():
            words = words_of(re.sub(r"--(company|principal) \S+ ", "", line))
            if words[0] != "memtui" or not example.not_run:
                continue
            begun = (" ".join(words[:end]) for end in range(1, len(words) + 1))
            path = max((one for one in begun if one in commands), key=len)
            known = {option for one in commands[path].params for option in one.opts}
            assert {one for one in words if one.startswith("--")} <= known, line


class Shell:
    """A person who types what a page says; plain commands run in this process."""

    def __init__(self, here: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = here
        self.home = home
        self._patch = monkeypatch
        self._token = ""
        self._noted = ""
        """What the last check of the log told to note."""
        self._served: dict[str, str] = {}
        """Where a server that a page starts really answers, by the address that the page shows."""
        self._servers: list[Forked] = []
        monkeypatch.setenv("MEMTUI_HOME", str(home))
        monkeypatch.setenv("PATH", Path(sys.executable).parent.as_posix(), prepend=os.pathsep)

    def stands_for(self, told: str, real: str) -> None:
        """Let an address that the page shows mean a real one."""
        self._served[told] = real

    def stop(self) -> None:
        """End the servers that the page started."""
        for server in self._servers:
            with server:
                server.send_signal(signal.SIGTERM)
                server.communicate()

    def type(self, line: str, shown: str) -> None:
        """Run a line, which must work, and compare what it prints with what the page shows."""
        line = self.meant(line)
        words = [str(Path(w).expanduser()) if w[0] == "~" else w for w in words_of(line)]
        if not words or words[0].endswith("pip"):
            return
        if words[0] == "export":
            self._patch.setenv(*words[1].split("=", 1))
        elif words[0] == "curl":
            self._compare(line, shown, self._fetched(words))
        elif words[1] in {"serve", "web"} or "--http" in words:
            self._serve(words[1:], shown)
        elif {"|", ">"} & set(words):
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
            assert done.returncode == 0, line + done.stderr
        else:
            ran = self.here(*words[1:])
            if consent := _CONSENT.search(ran.err):
                ran = self.here(*words[1:], *consent[1].split())
            ends = _ENDS.search(line)
            assert ran.code == int(ends[1] if ends else 0), f"{line}\n{ran.out}{ran.err}"
            if words[1:4] == ["companies", "tokens", "add"]:
                self._token = ran.out.split()[-1]
            if words[1:] == ["audit", "verify"]:
                self._noted = ran.out.split()[-1]
            if shown:
                self._compare(line, shown, ran.out, ran.out + ran.err)

    def meant(self, line: str) -> str:
        """Return a line with what a person puts in the place of names in capitals."""
        for told, real in self._served.items():
            line = line.replace(told, real)
        if "RECORD_ID" in line:
            scope = [word for word in ("--project", "mech-fighters") if word in line]
            note = self.here("note", f"Written at {time.time_ns()}.", *scope, "--json")
            line = line.replace("RECORD_ID", note.document["handles"][0]["provider_record_id"])
        if "OPERATION_ID" in line:
            asked = self.here("ops", "list", "--type", "query", "--limit", "1", "--json").document
            line = line.replace("OPERATION_ID", asked["operations"][0]["operation_id"])
        line = line.replace("$TOKEN", self._token).replace("SEQ:DIGEST", self._noted)
        return os.path.expandvars(line).replace("COMPANY", "acme")

    def _serve(self, words: list[str], shown: str) -> None:
        """Start a server on a free port; the page's later lines speak to it."""
        server = Forked([*words, "--port", "0"], os.environ)
        self._servers.append(server)
        said = next((one for one in server.stdout if _ADDRESS.search(one)), "")
        told, real = _ADDRESS.search(shown), _ADDRESS.search(said)
        assert told, f"the page shows no address of memtui {' '.join(words)}"
        assert real, server.stderr.read()
        self._compare(" ".join(words), shown, said.replace(real[0], told[0]))
        self._served[told[0]] = real[0]

    def _fetched(self, words: list[str]) -> str:
        """Return what curl would print, where there may be none."""
        options = {"-X": "method", "-H": "header", "-d": "body"}
        asked: dict[str, list[str]] = {name: [] for name in options.values()}
        url, rest = "", iter(words[1:])
        for word in rest:
            if word in options:
                asked[options[word]].append(next(rest))
            else:
                assert not word.startswith("-"), word
                url = word
        body = "".join(asked["body"])
        [method] = asked["method"] or ["POST" if body else "GET"]
        headers = dict(one.split(": ", 1) for one in asked["header"])
        answer = httpx.request(method, url, headers=headers, content=body)
        assert answer.is_success, answer.text
        return answer.text

    @staticmethod
    def _compare(line: str, shown: str, *said: str) -> None:
        """Fail unless one of several is what is shown: a page may leave out what goes to stderr."""
        pattern = re.compile(".*?".join(map(re.escape, shown.strip().split("…"))), re.DOTALL)
        assert any(pattern.fullmatch(one.strip()) for one in said), f"{line}\nprints\n{said[-1]}"


@pytest.fixture
def shell(here: Run, home: Path, person: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    opened = Shell(here, home, monkeypatch)
    yield opened
    opened.stop()


EMPTY = {"http.md", "impact.md", "mcp.md", "purge.md", "scaling-out.md", "sync.md", "time.md"}
"""Pages whose examples begin in an empty home; those of the others begin in the demo."""


FOLLOWED = {"enteros.md", "review.md"}
"""Pages that tests of their own follow, for servers that they need or ids that they print."""


@pytest.mark.parametrize("page", sorted(set(pages_with("console", "sh")) - FOLLOWED))
def test_what_a_page_tells_to_type_works(
    page: str, shell: Shell, home: Path, person: Path, built: Built
) -> None:
    if page not in EMPTY:
        shutil.rmtree(home)
        shutil.copytree(built.paths.data, home)
    prepare = PREPARED.get(page)
    if prepare is not None:
        prepare(shell, person)
    for example in of(page, "console", "sh"):
        if not example.not_run:
            for line, shown in example.commands:
                shell.type(line, shown)


def _import(shell: Shell, person: Path) -> None:
    (person / "audit.csv").write_text("started_at,operation_type\n2026-03-09T10:00:00Z,query\n")
    (person / "tools.csv").write_text(
        "When,Agent,Tool,Result,Took (s)\n2026-03-09 10:00,bob,vector lookup,gave up,1.5\n"
    )
    (person / "events.jsonl").write_text(
        '{"ts": 1772357400.5, "action": "QUERY", "meta": {"agent": "bob", "usage": {"in": 7}}}\n'
        '{"ts": 1772357401, "action": "PING", "meta": null}\n'
    )
    (person / "spans.jsonl").write_text(
        '{"traceId": "t1", "spanId": "5b8efff798038103", "startTimeUnixNano": "1772359200000000000"'
        ', "endTimeUnixNano": "1772359201500000000", "gen_ai.operation.name": "chat",'
        ' "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": "1000",'
        ' "gen_ai.usage.output_tokens": "5"}\n'
    )
    (person / ".claude/projects/app").mkdir(parents=True)
    message = {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": {"output_tokens": 9}}
    said = {
        "type": "assistant",
        "uuid": "u1",
        "sessionId": "s1",
        "timestamp": "2026-03-01T10:00:00.000Z",
        "message": message,
    }
    (person / ".claude/projects/app/s1.jsonl").write_text(json.dumps(said) + "\n")


def _purge(shell: Shell, person: Path) -> None:
    for owner in ("--subject ana", "--project apollo"):
        shell.type(f"memtui note 'Likes tea' {owner}", "")
    document = "--source external_document --external-ref https://forum.acme.example/t/7311"
    for source in ("--run run-4409", document):
        shell.type(f"memtui note 'The mirror of the build server is down.' {source}", "")


def _impact(shell: Shell, person: Path) -> None:
    """A log of one question about what is said twice, not of sixty days."""
    shell.type("memtui facts add 'Deploys happen from release' --project infra", "")
    shell.type("memtui note 'deploys happen from `release`.' --kind fact --project infra", "")
    shell.type("memtui query 'where do deploys happen' --project infra", "")


def _checks(shell: Shell, person: Path) -> None:
    [example] = of("checks.md", "toml")
    (person / "my-checks.toml").write_text(example.code)


def _start(shell: Shell, person: Path) -> None:
    for folder in (shell.home / "bindings/acme/default/vault/projects").glob("*/[mr]e*"):
        for note in sorted(folder.glob("*.md"))[2:]:
            note.unlink()  # each would be copied
    shell.type("memtui bindings add vectors vault", "")  # the page of syncs has one of Milvus


def _http(shell: Shell, person: Path) -> None:
    shell.type("memtui bindings add notes vault", "")


def _providers(shell: Shell, person: Path) -> None:
    (person / "memory.jsonl").touch()
    (person / "agent-queue").mkdir()
    for folder in (
        "src/web",
        ".claude/projects/-home-ann-app/memory",
        ".codex/memories",
        ".gemini/tmp/web/memory",
        ".hermes/memories",
        ".openclaw/workspace",
        "basic-memory",
        ".letta/agents/agent-1/memory",
    ):
        (person / folder).mkdir(parents=True)
    (person / "mem0.json").write_text("{}")
    with hermes_facts(str(person / ".hermes" / "memory_store.db")):
        pass
    shell.type("export MEM0_API_KEY=m0-example", "")


PREPARED: Mapping[str, Callable[[Shell, Path], None]] = {
    "checks.md": _checks,
    "start.md": _start,
    "http.md": _http,
    "impact.md": _impact,
    "import.md": _import,
    "purge.md": _purge,
    "providers.md": _providers,
}
"""What a page takes to be there."""


def test_the_page_about_enteros_moves_its_memories(
    shell: Shell, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    above, below = (
        "5a2f8c1e-7d3b-4e6a-9f10-2b4c6d8e0f12",
        "8e1d4b7a-2c5f-4a90-b3e6-7f9a1c3d5e70",
    )
    with enteros(postgres_url) as connection:
        connection.execute("DELETE FROM workspaces")
        put_workspace(connection, above, None)
        put_workspace(connection, below, above)
        for number, scope in enumerate(("LOCAL", "TEAM", "GLOBAL")):
            put_memory(connection, number, below, scope)
    before = stored(postgres_url, "agent_memories")
    with plugin_over(tmp_path_factory.mktemp("plugin"), *VAULT) as url:
        shell.stands_for("postgresql://enteros:password@db.example.com/enteros", postgres_url)
        shell.stands_for("http://plugin.example.com:9100", url)
        for example in of("enteros.md", "console"):
            for line, shown in example.commands:
                shell.type(line, shown)
        page = shell.here("browse", "--binding", "new", "--json").document
        ids = sorted(one["handle"]["provider_record_id"] for one in page["records"])
        assert [one.partition("/")[0] for one in ids] == [
            f"org:{above}",
            f"team:{above}",
            f"workspace:{below}",
        ]
    assert stored(postgres_url, "agent_memories") == before


def test_the_python_of_the_conformance_page_checks_a_plugin(shell: Shell, tmp_path: Path) -> None:
    shell.type(
        "memtui serve plugin",
        "Serving default of local as a memory plugin at http://localhost:9100",
    )
    function, kept = of("conformance.md", "python")
    exec(shell.meant(function.code), {})
    suite = tmp_path / "test_plugin.py"
    suite.write_text(shell.meant(kept.code))
    words = [*PYTEST, "-k", "health", str(suite)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("first-provider.md", ("pyproject.toml", "memtui_shelf.py", "test_shelf.py")),
        ("providers-files.md", ("memtui_lines.py", "memtui_objects.py", "test_lines.py")),
        ("providers-server.md", ("memtui_cards.py", "test_cards.py")),
    ],
)
def test_the_files_of_a_provider_pass_the_checks(
    page: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    blocks = [one.code for one in of(page, "toml", "python")]
    for name, code in zip(names, blocks, strict=True):
        (tmp_path / name).write_text(code)
    command = [*PYTEST, "-o", "asyncio_mode=auto"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["keys.md", "settings.md"])
def test_the_settings_of_a_page_fit(page: str, shell: Shell, home: Path) -> None:
    for example in of(page, "toml"):
        (home / "config.toml").write_text(example.code)
        checked = shell.here("config", "check")
        assert checked.code == 0, checked.out


def test_the_import_page_reads_other_logs(shell: Shell, person: Path) -> None:
    _import(shell, person)
    for example in of("import.md", "sh"):
        for line, _ in example.commands:
            if "--map" in line:
                shell.type(line, "")
    found = {
        company: shell.here("--company", company, "ops", "list", "--json").document["operations"]
        for company in ("tools", "events", "traces")
    }
    [[tool], [event], [span]] = found.values()
    assert (tool["operation_type"], tool["status"], tool["latency_ms"]) == ("query", "error", 1500)
    assert (event["started_at"], event["scope"]["agent_id"]) == (
        "2026-03-01T09:30:00.500000Z",
        "bob",
    )
    assert (span["latency_ms"], span["usage"][0]["cost_usd"]) == (1500, "0.00255")


def test_the_import_page_lists_every_field() -> None:
    page = (ROOT / "docs" / "import.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page.partition("## Every field")[2], re.MULTILINE)
    assert set(listed) == set(FIELDS)
    assert len(listed) == len(FIELDS)


def test_the_statements_of_the_pages_run(shell: Shell, home: Path, built: Built) -> None:
    shutil.rmtree(home)
    shutil.copytree(built.paths.data, home)
    assert shell.here("ops", "archive", "seal", "--all").code == 0
    for page in pages_with("sql"):
        for statement in "".join(one.code for one in of(page, "sql")).split(";\n"):
            local = statement.replace("s3://company-memory/log", str(home / "archive"))
            if "read_parquet" in local:
                assert duckdb.execute(local).fetchall()
            elif local.strip():
                ran = shell.here("sql", local)
                assert ran.code == 0, ran.err


def test_the_server_that_the_mcp_page_names_answers(shell: Shell) -> None:
    [example] = of("mcp.md", "json")
    [server] = json.loads(example.code)["mcpServers"].values()
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    done = subprocess.run(
        [server["command"], *server["args"]],
        input=json.dumps(asked) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "memtui"
