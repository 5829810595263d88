"""Finds the memories that exist on this machine, with the config of a binding for each.

Discovery only reads known places and creates no bindings. It blocks for a bounded time and never
raises. It does not read other users' home folders, even if a configuration names one.
"""

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memtui.backends import basic_memory, gemini, hermes, openclaw
from memtui.backends.claude_memory import INDEX
from memtui.backends.client_configs import (
    client_files,
    codex_folder,
    managed_folder,
    program_folders,
    projects,
    read_configuration,
    servers,
)
from memtui.backends.instructions import (
    OTHERS,
    PROJECT_FILES,
    PROJECT_RULES,
    USER_FILES,
    USER_RULES,
)
from memtui.backends.letta import memory_files
from memtui.contract import Json, MemtuiError, Model
from memtui.provider_kit.files.reading import (
    FileReader,
    FileRefused,
    digest,
    is_file,
    is_folder,
    read_whole,
    resolved,
    sign,
)
from memtui.threads import LooseThreads

ENTRY_LIMIT = 2_000
"""Most entries of one folder that are examined."""
_COUNT_BYTES = 4 * 1024 * 1024
_SERVER_LIMIT = 1_000
_PARENTS = 20
_PROJECT_LIMIT = 200
"""Most projects named by clients that are examined."""
_SECONDS = 10.0
"""Time limit of a search."""
_VAULTS = ("vault", ".agent-queue/vault", "agent-queue/vault", ".memtui/vault")
_MILVUS = ("", ".memsearch", ".agent-queue", "agent-queue")
"""Folders in which programs may store a Milvus Lite file."""
_NOT_OURS = (
    "It holds no collections of agent-queue; memsearch's are searched through the binding of its "
    "logs."
)
_OLD_MILVUS = "It was made by Milvus Lite before version 3; newer versions cannot open it."
_AGENT_MEMORIES = ("agent-memory", "agent-memory-local")
"""Folders of Claude Code with one folder per subagent that has a memory."""
_OBSIDIAN_LISTS = (
    ".var/app/md.obsidian.Obsidian/config/obsidian/obsidian.json",
    "snap/obsidian/current/.config/obsidian/obsidian.json",
)
_OBSIDIAN_HOMES = ("", "Documents", "Obsidian")
_NO_NOTES = frozenset({*PROJECT_FILES, OTHERS, "README.md", "CHANGELOG.md", "CONTRIBUTING.md"})
_ABOVE = "It is above the folder you are in."
_NOTES_DEPTH = 2
"""Down to which level the observations of notes are counted."""
_LEAST_NOTES = 2
"""Least documents of a plain folder that is offered as notes."""
_UNOPENED = (
    ("letta", ".letta/sqlite.db", "Letta server"),
    ("claude-mem", ".claude-mem/claude-mem.db", "claude-mem database"),
    ("mcp-memory-service", ".local/share/mcp-memory/sqlite_vec.db", "mcp-memory-service"),
    (
        "mcp-memory-service",
        "Library/Application Support/mcp-memory/sqlite_vec.db",
        "mcp-memory-service",
    ),
)
"""Files that no provider opens: system, path under the home folder, and title."""
_BY_ADDRESS = {
    "mcp-memory-service": "Its server opens it: start `memory server --http` there, then `memtui "
    "bindings add memories mcp-memory-service --set url=http://127.0.0.1:8000 --set "
    "token_secret=MCP_API_KEY`.",
}
"""How to bind what a provider opens by the address of its server, by system."""
_VAULT_PARTS = ("system", "orchestrator", "projects/*", "agent-types/*", "users/*")
_TURN = re.compile(rb"^###[ \t]", re.MULTILINE)
_HEADING = re.compile(rb"^#{1,6}[ \t]", re.MULTILINE)
_FULL_LINE = re.compile(rb"^[^\S\n]*\S", re.MULTILINE)
_VARIABLE = "MEMORY_FILE_PATH"
_PACKAGE = "@modelcontextprotocol/server-memory"
_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}")
_KEY_LIMIT = 48
_HOMES = (Path("/home"), Path("/Users"))
_ANOTHERS = "It is in another user's folder, so it was not searched."
_HOSTED = {"openmemory": "OpenMemory", "mem0": "mem0"}
"""Words in an MCP server's entry that identify mem0."""
_MEM0 = "https://api.mem0.ai"
_MEM0_KEY = "MEM0_API_KEY"
_HOW_MEM0 = {
    "OpenMemory": "memtui has no provider for OpenMemory yet.",
    "mem0": (
        f"Put its key into the environment or the keyring as {_MEM0_KEY}, then "
        f"`memtui bindings add mem0 mem0 --set api_key_secret={_MEM0_KEY}` opens it."
    ),
    "library": (
        "It needs the mem0 configuration of the program that writes it: `memtui bindings add mem0 "
        "mem0 --set library=FILE` opens it."
    ),
}


class DiscoveredMemory(Model):
    """A memory on this machine that could become a read-only binding."""

    provider: str
    """The name of the provider that can open it."""
    key: str
    """A suggested binding key: lower case, digits and hyphens, unique among the findings."""
    title: str
    path: str
    """Its path or address."""
    config: Json = {}
    """The binding's config; empty if it cannot be opened, for the reasons in `problems`."""
    records: int | None = None
    """Number of records; None: not counted."""
    estimated: bool = True
    """`records` was counted without parsing, so the true number may differ."""
    why: str
    """Why this place was searched, as a sentence."""
    problems: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a binding can open it."""
        return bool(self.config)

    def is_read_by(self, provider: str, config: Json) -> bool:
        """Whether a binding of that provider and config already reads it."""
        is_same = provider == self.provider and self.config.items() <= config.items()
        return (self.usable and is_same) or self.path in map(str, config.values())


def discover(
    home: Path,
    cwd: Path,
    env: Mapping[str, str],
    *,
    managed: Path | None = None,
    seconds: float = _SECONDS,
) -> list[DiscoveredMemory]:
    """Return the memories found on this machine, those of `cwd` and its project first. Blocking.

    Searches `cwd` and its parents up to the git root, the known folders of `home`, the `managed`
    folder of the whole machine, and the places that `env` and the configuration of agents' programs
    name. It walks no tree, reads a bounded part of each place, writes nothing and raises nothing.
    A memory that is unreadable, or without a provider, is a finding without a config, with the
    reason in its problems. After `seconds` it returns the findings so far, with a note: a file
    system that hangs cannot block it.
    """
    place = resolved(home) or home, resolved(cwd) or cwd
    found: list[DiscoveredMemory] = []
    search = _Search(*place, managed or managed_folder(), env)
    threads = LooseThreads(1)
    searching = threads.submit(found.extend, search.findings())
    try:
        searching.result(seconds)
    except TimeoutError:
        searching.cancel()
        problem = f"The search stopped after {seconds:g} s; the rest was not searched."
        found = [*found, _named("discovery", cwd, "This machine", "It was searched.", problem)]
    finally:
        threads.shutdown(wait=False)
    return _with_keys(sorted(found, key=lambda one: not search.is_near(one)))


def discover_here() -> list[DiscoveredMemory]:
    """Discover from the user's home, and from the working folder upwards. Blocking."""
    home = Path.home()
    try:
        cwd = Path.cwd()
    except FileNotFoundError:  # the working folder was deleted
        cwd = home
    return discover(home, cwd, os.environ)


def _with_keys(findings: Iterable[DiscoveredMemory]) -> list[DiscoveredMemory]:
    """Return the findings in order, each place once and with a unique key."""
    kept: dict[tuple[str, str], DiscoveredMemory] = {}
    taken: set[str] = set()
    for finding in findings:
        place = (finding.provider, finding.path)
        if place in kept and (kept[place].usable or not finding.usable):
            continue
        if place in kept:
            key = kept[place].key
        else:
            plain = unicodedata.normalize("NFKD", finding.key).encode("ascii", "ignore").decode()
            slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or digest(finding.key)
            wanted = key = f"{finding.provider}-{slug}"[:_KEY_LIMIT].strip("-")
            number = 1
            while key in taken:
                number += 1
                key = f"{wanted}-{number}"
        taken.add(key)
        kept[place] = finding.model_copy(update={"key": key})
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class _Listing:
    """The visible names in a folder, sorted; `problems` say why the folder is unreadable."""

    names: tuple[str, ...] = ()
    capped: bool = False
    problems: tuple[str, ...] = ()

    def documents(self) -> list[str]:
        return [name for name in self.names if name.lower().endswith(".md")]


def _list_folder(folder: Path) -> _Listing:
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(names) == ENTRY_LIMIT:
                    return _Listing(tuple(sorted(names)), capped=True)
                if not entry.name.startswith(".") and entry.name.isprintable():
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _Listing()
    except OSError as error:
        return _Listing(problems=(f"{folder} cannot be listed: {error.strerror}.",))
    return _Listing(tuple(sorted(names)))


def _count(paths: Sequence[Path], what: re.Pattern[bytes], least: int = 0) -> int | None:
    """Count matches in files, at least `least` in each; None if there are more than 4 MiB."""
    total = size = 0
    for path in paths:
        found = sign(path)
        if found is None or not found.is_file:
            continue
        size += found.size
        if size > _COUNT_BYTES:
            return None
        try:
            total += max(least, len(what.findall(path.read_bytes())))
        except OSError:
            return None
    return total


def _count_entries(paths: Iterable[Path], entries: Callable[[str], Iterable[object]]) -> int | None:
    """Count the entries of files; None if there are more than 4 MiB."""
    count = size = 0
    for path in paths:
        try:
            content = read_whole(path)[0]
        except (FileRefused, OSError):
            continue
        size += len(content)
        if size > _COUNT_BYTES:
            return None
        count += sum(1 for _ in entries(content.decode("utf-8", "replace")))
    return count


def _first_line(path: Path) -> str:
    """Return the first line of a small file; empty where there is none."""
    try:
        return read_whole(path)[0].decode().split("\n", 1)[0].strip()
    except (FileRefused, OSError, UnicodeDecodeError):
        return ""


def _count_of_facts(path: Path) -> int | None:
    """Return how many facts are in Hermes's database; None: it cannot be read."""
    from memtui.provider_kit.databases import DatabasePool, open_sqlite

    try:
        database = DatabasePool(open_sqlite(path, read_only=True))
        with closing(database), database.read() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM facts").scalar_one())
    except MemtuiError:
        return None


def _found(
    provider: str, path: Path, key: str, title: str, why: str, *,
    problems: tuple[str, ...] = (), records: int | None = None, **config: str,
) -> DiscoveredMemory:  # fmt: skip
    return DiscoveredMemory(
        provider=provider,
        key=key,
        title=title,
        path=str(path),
        config={} if problems else {"path": str(path), **config},
        records=None if problems else records,
        why=why,
        problems=problems,
    )


def _named(provider: str, path: Path | str, title: str, why: str, problem: str) -> DiscoveredMemory:
    """Return the finding of a memory that cannot be opened."""
    key = Path(path).name or provider
    return DiscoveredMemory(
        provider=provider, key=key, title=title, path=str(path), why=why, problems=(problem,)
    )


def _workspace(settings: object) -> str:
    """Return the workspace that settings of OpenClaw's agents name; empty: none."""
    named = settings.get("workspace") if isinstance(settings, dict) else None
    return named.strip() if isinstance(named, str) and "\0" not in named else ""


def _settings(
    provider: str, file: Path, title: str, why: str
) -> tuple[Json, list[DiscoveredMemory]]:
    """Return a program's configuration, or a finding that says why it is unreadable."""
    config = read_configuration(file)
    broken = [_named(provider, file, title, why, config)] if isinstance(config, str) else []
    return config if isinstance(config, dict) else {}, broken


class _Search:
    """One search of a machine."""

    def __init__(self, home: Path, cwd: Path, managed: Path, env: Mapping[str, str]) -> None:
        self._home, self._managed, self._env = home, managed, env
        own = env.get("CLAUDE_CONFIG_DIR")
        self._claude = Path(own) if own else home / ".claude"
        climbed = [cwd, *cwd.parents][:_PARENTS]
        roots = (n for n, folder in enumerate(climbed) if sign(folder / ".git") is not None)
        self._projects = climbed[: next(roots, 0) + 1]
        """The folder and its parents up to the git root; without a root, only the folder."""

    def _is_anothers(self, path: Path) -> bool:
        """Whether a path, with links resolved, is in the home folder of another user.

        The folder that the user works in is always allowed.
        """
        leads, home = resolved(path) or path, self._home
        if any(leads.is_relative_to(own) for own in (home, *self._projects)):
            return False
        beside = {home.parent} if home.parent.name in {"home", "Users"} else set()
        return leads.is_relative_to("/root") or any(
            leads.is_relative_to(one) and leads.relative_to(one).parts[:1] not in {(), ("Shared",)}
            for one in {*_HOMES, *beside}
        )

    def is_near(self, finding: DiscoveredMemory) -> bool:
        """Whether a finding is of the folder that the user is in, or of its project."""
        cwd, path = self._projects[0], Path(finding.path)
        folders = [one for one in self._projects if not self._home.is_relative_to(one)]
        is_above = cwd.is_relative_to(path) and not self._home.is_relative_to(path)
        return (
            is_above
            or any(path.is_relative_to(one) for one in folders)
            or finding.config.get("project_id") in {one.name for one in folders}
        )

    def findings(self) -> Iterator[DiscoveredMemory]:
        """Yield the findings, the nearest first."""
        yield from self._in_projects()
        yield from self._in_home()
        files = client_files(self._home, self._projects, self._managed, self._env)
        configs = {path: read_configuration(path) for path in files}
        read = [one for one in configs.values() if isinstance(one, dict)]
        known = list(dict.fromkeys(path for config in read for path in projects(config)))
        yield from self._claude_memories(known)
        yield from self._in_known_projects(known)
        yield from self._obsidian()
        yield from self._basic_memory()
        yield from self._letta()
        if written := self._env.get(_VARIABLE, "").strip():
            yield self._graph(written, f"The environment variable {_VARIABLE} names it.")
        for path, config in configs.items():
            yield from self._in_configuration(path, config)
        yield from self._default_graphs()
        yield from self._mem0()
        for system, name, title in _UNOPENED:
            if is_file(path := self._home / name):
                problem = _BY_ADDRESS.get(system, f"memtui has no provider for {title} yet.")
                yield _named(system, path, title, "It is a usual place for it.", problem)

    def _in_projects(self) -> Iterator[DiscoveredMemory]:
        for number, folder in enumerate(self._projects):
            why = _ABOVE if number else "You are in this folder."
            if not self._home.is_relative_to(folder):
                # A home folder with projects looks like a vault, but is none.
                yield from self._vault(folder, why)
            yield from self._vault(folder / "vault", why)
            yield from self._memsearch(folder, why)
            yield from self._milvus(folder, why)
            if is_folder(folder / ".obsidian"):
                yield _found("vault", folder, folder.name, f"Obsidian vault {folder}", why)
            elif len(self._projects) == 1 and sign(folder / ".git") is None:
                yield from self._plain_notes(folder, why)
            files = self._instruction_files(folder, PROJECT_FILES, PROJECT_RULES)
            own = [path for path in files if not path.is_relative_to(self._claude)]
            whose = self._project(folder)
            yield from self._instructions(folder, own, "project", why, **whose)
            yield from self._agent_memories(folder / ".claude", why, **whose)

    def _plain_notes(self, folder: Path, why: str) -> Iterator[DiscoveredMemory]:
        """Yield the vault around a folder, else its markdown if it is no project or program's."""
        for above in folder.parents:
            if is_folder(above / ".obsidian") and not self._home.is_relative_to(above):
                yield from self._notes(above, above.name, f"Obsidian vault {above}", _ABOVE)
                return
        listed = [name for name in _list_folder(folder).documents() if name not in _NO_NOTES]
        if len(listed) < _LEAST_NOTES or self._home.is_relative_to(folder):
            return
        if not folder.is_relative_to(self._claude):
            title, why = f"Notes in {folder}", f"{why} It holds {', '.join(listed[:3])}."
            yield _found("vault", folder, folder.name, title, why)

    def _in_home(self) -> Iterator[DiscoveredMemory]:
        why = "It is a usual place for it."
        for name in _VAULTS:
            yield from self._vault(self._home / name, why)
        yield from self._memsearch(self._home, why)
        yield from self._milvus(self._home, why)
        files = self._instruction_files(self._claude, USER_FILES, USER_RULES)
        why = "Claude Code loads it into every session."
        yield from self._instructions(self._claude, files, "user", why)
        files = self._instruction_files(self._managed, USER_FILES, USER_RULES)
        why = "Claude Code loads it into every session on this machine."
        yield from self._instructions(self._managed, files, "user", why)
        yield from self._agent_memories(self._claude, "Claude Code's subagents write it.")
        codex = codex_folder(self._home, self._env)
        files = self._instruction_files(codex, (), USER_RULES)
        yield from self._instructions(codex, files, "project", "Codex loads it into every session.")
        yield from self._notes(
            codex / "memories", "codex", "Codex memories", "Codex writes it.", "codex-memory"
        )
        yield from self._hermes()
        yield from self._gemini()
        yield from self._openclaw()

    def _hermes(self) -> Iterator[DiscoveredMemory]:
        """Yield the memories of Hermes, and of each of its profiles."""
        home = self._expanded(self._env.get("HERMES_HOME") or "~/.hermes")
        profiles = home / "profiles"
        named = {profile: profiles / profile for profile in self._listed(profiles).names}
        for name, folder in {"hermes": home, **named}.items():
            title = "Hermes's memories" if folder == home else f"Memories of Hermes's {name}"
            path, why = folder / "memories", "Hermes writes it."
            if self._is_anothers(path):
                yield _named("hermes", path, title, why, _ANOTHERS)
            elif is_folder(path):
                files = (path / hermes.MEMORY, path / hermes.USER)
                count = _count_entries(files, hermes.entries_of)
                yield _found("hermes", path, name, title, why, records=count)
            facts = folder / hermes.FACTS
            title = "Hermes's facts" if folder == home else f"Facts of Hermes's {name}"
            if not self._is_anothers(facts) and is_file(facts):
                if (found := _count_of_facts(facts)) is None:
                    yield _named("hermes-facts", facts, title, why, "It cannot be read.")
                else:
                    yield _found("hermes-facts", facts, name, title, why, records=found)

    def _gemini(self) -> Iterator[DiscoveredMemory]:
        """Yield the global memory of Gemini CLI, and those of its projects."""
        home = self._expanded(self._env.get("GEMINI_CLI_HOME") or "~/") / ".gemini"
        projects = home / "tmp"
        folders = [home, *(projects / name / "memory" for name in self._listed(projects).names)]
        for folder in folders:
            config, name = {}, "gemini"
            title, why = "Gemini CLI's global memory", "Gemini CLI loads it into every session."
            if folder != home:
                name = folder.parent.name
                root = _first_line(folder.parent / ".project_root")
                config = self._project(Path(root)) if root else {}
                title = f"Gemini CLI's memory of {root or name}"
                why = "Gemini CLI loads it into the sessions of that project."
            if self._is_anothers(folder):
                yield _named("gemini", folder, title, why, _ANOTHERS)
                continue
            listed = self._listed(folder)
            files = [one for one in gemini.memory_files(folder, listed.names) if is_file(one)]
            if files or listed.problems or gemini.has_inbox(folder):
                count = _count_entries(files, gemini.entries_of)
                yield _found(
                    "gemini", folder, name, title, why,
                    problems=listed.problems, records=count, **config,
                )  # fmt: skip

    def _openclaw(self) -> Iterator[DiscoveredMemory]:
        """Yield the workspaces of OpenClaw's agents: by default, by its settings and by name."""
        home = self._expanded(self._env.get("OPENCLAW_HOME") or str(self._home))
        profile = self._env.get("OPENCLAW_PROFILE", "").strip().lower()
        own = f".openclaw-{profile}" if profile not in {"", "default"} else ".openclaw"
        state = self._expanded(self._env.get("OPENCLAW_STATE_DIR") or str(home / own))
        file = self._expanded(self._env.get("OPENCLAW_CONFIG_PATH") or str(state / "openclaw.json"))
        title, why = "OpenClaw's agents", "OpenClaw lists its agents there."
        config, broken = _settings("openclaw", file, title, why)
        yield from broken
        agents = config.get("agents")
        given: Json = agents if isinstance(agents, dict) else {}
        entries, defaults = given.get("entries"), given.get("defaults")
        named = self._env.get("OPENCLAW_WORKSPACE_DIR") or _workspace(defaults)
        base = self._expanded(named) if named else state / "workspace"
        places = {base: ""}
        for name in self._listed(state).names:
            if name.startswith("workspace-"):
                places[state / name] = name.removeprefix("workspace-")
        known = entries.items() if isinstance(entries, dict) else ()
        for agent, entry in islice(known, _SERVER_LIMIT):
            place = _workspace(entry)
            places.setdefault(self._expanded(place) if place else base / agent, agent)
        for path, agent in places.items():
            title = f"Memories of OpenClaw's {agent}" if agent else "OpenClaw's memories"
            why = "OpenClaw keeps its agents' memories there."
            if self._is_anothers(path):
                yield _named("openclaw", path, title, why, _ANOTHERS)
                continue
            is_there = is_folder(path)
            found = openclaw.memory_files(path, FileReader()) if is_there else []
            files = [one.path for one in found]
            if any(map(is_file, files)):
                yield _found(
                    "openclaw", path, agent or "openclaw", title, why, problems=(),
                    records=_count_entries(files, openclaw.blocks_of), state=str(state),
                    **({"agent_id": agent} if agent else {}),
                )  # fmt: skip

    def _in_known_projects(self, known: list[str]) -> Iterator[DiscoveredMemory]:
        """Search the other projects that agents' programs name."""
        why = "An agent's program has worked there."
        for folder in map(Path, known[:_PROJECT_LIMIT]):
            if folder.is_absolute() and not self._is_anothers(folder):
                yield from self._memsearch(folder, why)
                yield from self._agent_memories(folder / ".claude", why, **self._project(folder))

    def _project(self, folder: Path) -> dict[str, str]:
        """Return the project of a folder, by the name that hooks use; none for the home folder."""
        is_one = folder.name and folder != self._home
        return {"project_id": folder.name} if is_one else {}

    def _listed(self, path: Path) -> _Listing:
        if not is_folder(path):
            return _Listing()
        return _Listing(problems=(_ANOTHERS,)) if self._is_anothers(path) else _list_folder(path)

    def _notes(
        self, folder: Path, key: str, title: str, why: str, provider: str = "vault"
    ) -> Iterator[DiscoveredMemory]:
        """Yield a folder of markdown, for a vault; another user's only as a problem."""
        if self._is_anothers(folder):
            yield _named(provider, folder, title, why, _ANOTHERS)
        elif is_folder(folder):
            yield _found(provider, folder, key, title, why)

    def _agent_memories(self, folder: Path, why: str, **config: str) -> Iterator[DiscoveredMemory]:
        """Yield the memories of Claude Code's subagents, one folder each."""
        for root in (folder / name for name in _AGENT_MEMORIES):
            for agent in _list_folder(root).names if is_folder(root) else ():
                path = root / agent
                title = f"Claude Code memory of the subagent {agent}"
                yield from self._claude_memory(path, agent, title, why, agent_id=agent, **config)

    def _claude_memory(
        self, path: Path, key: str, title: str, why: str, **config: str
    ) -> Iterator[DiscoveredMemory]:
        listed = self._listed(path)
        if (memories := listed.documents()) or listed.problems:
            count = len([name for name in memories if name != INDEX]) or 1
            yield _found(
                "claude-memory", path, key, title, why,
                problems=listed.problems, records=count, **config,
            )  # fmt: skip

    def _moved_memories(self) -> Iterator[DiscoveredMemory]:
        """Yield the auto memories that the settings of Claude Code put elsewhere."""
        everybodys = (self._managed / "managed-settings.json", self._claude / "settings.json")
        settings: dict[Path, dict[str, str]] = {file: {} for file in everybodys}
        for folder in self._projects:
            for name in ("settings.json", "settings.local.json"):
                settings.setdefault(folder / ".claude" / name, self._project(folder))
        for file, whose in settings.items():
            title, why = f"Claude Code settings {file}", "They may move the memory folder."
            config, broken = _settings("claude-memory", file, title, why)
            yield from broken
            written = config.get("autoMemoryDirectory")
            if not isinstance(written, str) or not written.strip() or "\0" in written:
                continue
            inside = file.parent.parent if file.parent.name == ".claude" else file.parent
            path = inside / self._expanded(written.strip())
            title, why = f"Claude Code memory in {path}", f"{file} moves the memory there."
            if self._is_anothers(path):
                yield _named("claude-memory", path, title, why, _ANOTHERS)
            else:
                yield from self._claude_memory(path, path.name, title, why, **whose)

    def _obsidian(self) -> Iterator[DiscoveredMemory]:
        """Yield the vaults that Obsidian lists, and others in their usual places."""
        lists = [folder / "obsidian" / "obsidian.json" for folder in
                 program_folders(self._home, self._env)]  # fmt: skip
        for file in (*lists, *(self._home / name for name in _OBSIDIAN_LISTS)):
            why = "Obsidian lists its vaults there."
            config, broken = _settings("vault", file, "Obsidian vaults", why)
            yield from broken
            vaults = config.get("vaults")
            for vault in islice(vaults.values(), _SERVER_LIMIT) if isinstance(vaults, dict) else ():
                path = vault.get("path") if isinstance(vault, dict) else None
                if isinstance(path, str) and Path(path).is_absolute():
                    title, why = f"Obsidian vault {path}", "Obsidian lists it."
                    yield from self._notes(Path(path), Path(path).name, title, why)
        for folder in (self._home / name for name in _OBSIDIAN_HOMES):
            for path in (folder, *(folder / name for name in _list_folder(folder).names)):
                if is_folder(path / ".obsidian"):
                    title, why = f"Obsidian vault {path}", "It holds a folder .obsidian."
                    yield from self._notes(path, path.name, title, why)

    def _basic_memory(self) -> Iterator[DiscoveredMemory]:
        """Yield the projects of basic-memory: folders of markdown."""
        own = self._env.get("BASIC_MEMORY_CONFIG_DIR")
        file = (Path(own) if own else self._home / ".basic-memory") / "config.json"
        why = "basic-memory lists its projects there."
        config, broken = _settings("vault", file, "basic-memory projects", why)
        yield from broken
        named = config.get("projects")
        for name, place in islice(named.items(), _SERVER_LIMIT) if isinstance(named, dict) else ():
            path = place.get("path") if isinstance(place, dict) else place
            if isinstance(path, str) and path.strip() and "\0" not in path:
                folder, title = self._expanded(path), f"basic-memory project {name}"
                yield from self._notes(folder, f"basic-{name}", title, "basic-memory lists it.")
                if is_folder(folder) and not self._is_anothers(folder):
                    files = FileReader().files(folder, ".md", depth=_NOTES_DEPTH)
                    count = _count_entries(files, basic_memory.observations_of)
                    title, why = f"Observations of the {title}", "basic-memory lists its project."
                    if count != 0:
                        yield _found("basic-memory", folder, name, title, why, records=count)

    def _letta(self) -> Iterator[DiscoveredMemory]:
        """Yield the memory folders of Letta's agents, of its server and on this machine alone."""
        own = self._env.get("LETTA_LOCAL_BACKEND_DIR") or "~/.letta/lc-local-backend"
        for root in (self._home / ".letta" / "agents", self._expanded(own) / "memfs"):
            for agent in self._listed(root).names:
                path, title = root / agent / "memory", f"Letta memory of {agent}"
                if self._is_anothers(path):
                    yield _named("letta", path, title, "Letta writes it.", _ANOTHERS)
                elif is_folder(path):
                    records = len(memory_files(FileReader(), path))
                    yield _found("letta", path, agent, title, "Letta writes it.", records=records)

    def _mem0(self) -> Iterator[DiscoveredMemory]:
        """Yield an account of mem0's platform, and the files of its library."""
        if self._env.get(_MEM0_KEY):
            why = f"The environment variable {_MEM0_KEY} is set."
            config = {"url": _MEM0, "api_key_secret": _MEM0_KEY}
            yield DiscoveredMemory(
                provider="mem0", key="platform", title="mem0 platform", path=_MEM0, why=why,
                config=config,
            )  # fmt: skip
        own = self._env.get("MEM0_DIR")
        folder = Path(own) if own else self._home / ".mem0"
        if is_file(folder / "history.db"):
            why = "The mem0 library keeps its history there."
            yield _named("mem0", folder, "mem0 library", why, _HOW_MEM0["library"])

    def _expanded(self, written: str) -> Path:
        """Return a written path, with a leading `~` replaced by the home folder."""
        return self._home / written[2:] if written.startswith("~/") else Path(written)

    @staticmethod
    def _vault(folder: Path, why: str) -> Iterator[DiscoveredMemory]:
        """Yield a vault, recognised by a known folder with `facts.md` or `memory/`."""
        tops = (part.partition("/") for part in _VAULT_PARTS)
        parts = (
            (top, name)
            for top, _, rest in tops
            for name in (_list_folder(folder / top).names if rest else ("",))
        )
        entries = (
            "/".join(filter(None, (top, name, mark)))
            for top, name in parts
            for mark, is_there in (("facts.md", is_file), ("memory", is_folder))
            if is_there(folder / top / name / mark)
        )
        if marks := list(islice(entries, 3)):
            why = f"{why} It holds {', '.join(marks)}."
            yield _found("vault", folder, folder.name or "root", f"Vault {folder}", why)

    def _memsearch(self, folder: Path, why: str) -> Iterator[DiscoveredMemory]:
        path = folder / ".memsearch" / "memory"
        listed = self._listed(path)
        logs = [path / name for name in listed.documents()]
        if logs or listed.problems:
            count = None if listed.capped else _count(logs, _TURN)
            title, key = f"memsearch logs of {folder}", folder.name or "root"
            yield _found(
                "memsearch", path, key, title, why,
                problems=listed.problems, records=count, **self._project(folder),
            )  # fmt: skip

    def _milvus(self, folder: Path, why: str) -> Iterator[DiscoveredMemory]:
        """Yield the files of Milvus Lite, which are folders, with their collections."""
        for place in _MILVUS:
            files = (name for name in self._listed(folder / place).names if name.endswith(".db"))
            for path in (folder / place / name for name in files):
                names = self._listed(path / "collections").names
                title, key = f"Milvus collections {path}", path.stem
                if own := [name for name in names if name.startswith("aq_")]:
                    detail = f"{why} It holds {', '.join(own[:4])}."
                    yield _found("milvus", path, key, title, detail)
                elif names or (is_file(path) and "milvus" in path.name):
                    yield _named("milvus", path, title, why, _NOT_OURS if names else _OLD_MILVUS)

    @staticmethod
    def _instruction_files(folder: Path, names: Sequence[str], rules: str) -> list[Path]:
        files = [folder / name for name in (*names, OTHERS) if is_file(folder / name)]
        files += [folder / rules / name for name in _list_folder(folder / rules).documents()]
        # A file and a link to it count once, as the first of them.
        return [*{resolved(path) or path: path for path in reversed(files)}.values()][::-1]

    def _instructions(
        self, folder: Path, files: list[Path], layout: str, why: str, **config: str
    ) -> Iterator[DiscoveredMemory]:
        if files:
            is_own = layout == "user" and folder != self._managed
            title = "Your own agent instructions" if is_own else f"Agent instructions of {folder}"
            key = "user" if is_own else folder.name.strip(".") or "root"
            why = f"{why} It holds {', '.join(path.name for path in files[:4])}."
            count = _count(files, _HEADING, least=1)
            yield _found(
                "instructions", folder, key, title, why,
                problems=(), records=count, layout=layout, **config,
            )  # fmt: skip

    def _claude_memories(self, known: list[str]) -> Iterator[DiscoveredMemory]:
        """Yield Claude Code's auto memories, whose folders are named by the project's slug."""
        yield from self._moved_memories()
        known = [*map(str, self._projects), *known]
        named = {re.sub(r"[^A-Za-z0-9]", "-", path): path for path in reversed(known)}
        provider, why, root = "claude-memory", "Claude Code writes it.", self._claude / "projects"
        listing = _list_folder(root)
        notes = listing.problems
        if listing.capped:
            notes = (f"{root} holds more than {ENTRY_LIMIT} projects; the rest was not searched.",)
        if notes:
            yield _found(provider, root, "projects", "Claude Code projects", why, problems=notes)
        for slug in listing.names:
            project = named.get(slug)
            # The same name that imported sessions get (`importing.projects`).
            name = (Path(project).name if project else "") or slug
            title = f"Claude Code memory of {project or slug}"
            path = root / slug / "memory"
            yield from self._claude_memory(path, name, title, why, project_id=name)

    def _in_configuration(
        self, path: Path, config: Json | str | None
    ) -> Iterator[DiscoveredMemory]:
        """Yield the memories of the MCP servers in one client's configuration."""
        if isinstance(config, str):
            title, why = f"MCP servers in {path}", "An MCP client keeps its servers there."
            yield _found("mcp-memory", path, path.stem, title, why, problems=(config,))
            return
        for name, server in islice(servers(config or {}), _SERVER_LIMIT):
            why = f"The MCP server {name} in {path} writes it."
            variables = server.get("env")
            written = variables.get(_VARIABLE) if isinstance(variables, dict) else None
            if isinstance(written, str) and written.strip():
                yield self._graph(written.strip(), why)
            text = json.dumps(server).casefold()
            if mark := next((one for one in _HOSTED if one in text), None):
                title = f"{_HOSTED[mark]} of the MCP server {name}"
                yield _named("mem0", path, title, why, _HOW_MEM0[_HOSTED[mark]])

    def _default_graphs(self) -> Iterator[DiscoveredMemory]:
        """Yield the default files of memory servers that npx started without a path."""
        cache = self._home / ".npm" / "_npx"
        for name in _list_folder(cache).names:
            for file in ("memory.jsonl", "memory.json"):
                path = cache / name / "node_modules" / _PACKAGE / "dist" / file
                if is_file(path):
                    why = "The MCP memory server keeps its file there unless it is given a path."
                    yield self._graph(str(path), why, {})

    def _graph(
        self, written: str, why: str, env: Mapping[str, str] | None = None
    ) -> DiscoveredMemory:
        """Return the finding of a knowledge graph's file, by its written path."""
        variables = {**(self._env if env is None else env), "HOME": str(self._home)}
        expanded = _PLACEHOLDER.sub(
            lambda match: variables.get(match[1], match[2] if match[2] is not None else match[0]),
            written,
        )
        path, found, problem = self._expanded(expanded), None, ""
        expanded = str(path)
        if "${" in expanded or "\0" in expanded:
            problem = f"The path {expanded!r} cannot be resolved here."
        elif not path.is_absolute():
            problem = (
                f"The path {expanded} is relative to the server's own folder, which is not known."
            )
        elif self._is_anothers(path):
            problem = _ANOTHERS
        elif (found := sign(path)) is None:
            problem = f"{expanded} does not exist yet, or you may not read it."
        elif not found.is_file:
            problem = f"{expanded} is not a file."
        key = path.stem if path.stem not in {"memory", ""} else path.parent.name or "memory"
        return _found(
            "mcp-memory", path, key, f"MCP memory {expanded}", why,
            problems=(problem,) if problem else (),
            records=None if problem else _count([path], _FULL_LINE),
        )  # fmt: skip
