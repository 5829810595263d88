"""Settings. A flag precedes the environment, then come the file and the defaults."""

# Strings, as `from __future__ import annotations` makes, would be compiled for each model.
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from memtui.contract import Invalid, Model
from memtui.paths import (
    ENV_PREFIX,
    TABLES,
    Paths,
    find_paths,
    flat,
    make_private,
    read_environment,
    read_file,
)
from memtui.wording import bare, misfit, unknown

__all__ = [
    "ENV_PREFIX", "Paths", "Settings", "find_paths", "load_settings", "make_private", "origins",
    "system_zone",
]  # fmt: skip

_LOCALTIME = Path("/etc/localtime")
_ZONE_FILE = Path("/etc/timezone")


def system_zone() -> str | None:
    """Return the IANA name of the system's time zone; None: it cannot be determined."""
    if (wish := os.environ.get("TZ")) is not None:
        return _zone_name(wish.removeprefix(":") or "UTC")
    try:
        if found := _zone_name(str(_LOCALTIME.resolve())):
            return found
        return _zone_name(_ZONE_FILE.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None


def _zone_name(text: str) -> str | None:
    """Return the zone of a name, or of a path in the system's `zoneinfo` folder."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if text.startswith("/"):
        parts = text.split("/")
        roots = [place for place, part in enumerate(parts) if part.startswith("zoneinfo")]
        text = "/".join(parts[roots[-1] + 1 :]) if roots else ""
        text = text.removeprefix("posix/")
    try:
        return ZoneInfo(text).key if text else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _default_principal() -> str:
    import getpass

    try:
        return f"user:{getpass.getuser()}"
    except (OSError, KeyError):
        return "user:unknown"


class Settings(Model):
    """What a person can set. Every field is also an environment variable `MEMTUI_<FIELD>`."""

    company: str = ""
    """The company to open; empty means the one opened first."""
    principal: str = Field(default_factory=_default_principal)
    """Who you are in the operation log."""
    acts_for: str = ""
    """The person, such as `user:ana`, for whom an agent acts and whose rights it has."""
    read_only: bool = False
    """Refuse every change, whatever the channel."""
    database_url: str = ""
    """The control plane's database as a SQLAlchemy URL; empty means the SQLite file in the home."""
    provider_timeout_ms: Annotated[int, Field(ge=10, le=600_000)] = 10_000
    """How long one call to a provider may take, in milliseconds."""
    all_bindings_timeout_ms: Annotated[int, Field(ge=10, le=600_000)] = 5_000
    """How long one binding may take when all are queried at once, in milliseconds."""
    scope_weights: dict[
        Literal["project", "user", "agent", "orchestrator", "company"],
        Annotated[float, Field(ge=0, le=1)],
    ] = {}
    """Weight of a record by its scope when all bindings are queried: `agent = 0.7` under
    `[scope_weights]`. Not set: project and user 1.0, agent 0.7, orchestrator 0.5, company 0.4."""
    hook_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How long a hook may take before it ends without an answer, in milliseconds."""
    mcp_answer_characters: Annotated[int, Field(ge=1_000)] | None = None
    """Longest answer of a tool over MCP, in characters. Not set: 8,000, and 24,000 for Claude Code,
    which shows its model that much."""
    timezone: str = ""
    """IANA name of the zone that days and clock times are shown in; empty means the system's."""
    theme: str = "memtui"
    """The terminal app's theme; `ansi` uses the terminal's own colours."""
    mouse: bool = True
    """Whether the terminal app uses the mouse."""
    notify_saves: bool = True
    """Whether the terminal app shows a notice when agents and other processes save memories."""
    log_level: Literal["error", "warning", "info", "debug"] = "warning"
    """The least level that `memtui.log` keeps: `info` has each operation, `debug` each call."""
    editor: str = ""
    """The command that `E` opens; empty means $VISUAL, else $EDITOR, else vi."""
    fact_max_chars: Annotated[int, Field(ge=0)] = 200
    """How many characters a fact may have; 0 sets no limit."""
    fact_max_count: Annotated[int, Field(ge=0)] = 50
    """How many facts a user or a project may have; 0 sets no limit."""
    saves_per_run: Annotated[int, Field(ge=0)] = 50
    """How many memories an agent may write in one run; 0 sets no limit."""
    saves_per_hour: Annotated[int, Field(ge=0)] = 200
    """How many memories an agent may write in an hour; 0 sets no limit."""
    pending_max_count: Annotated[int, Field(ge=1)] = 500
    """How many writes of agents may wait for review in one binding."""
    context_budget: Annotated[int, Field(ge=0)] = 500
    """Tokens that the memory context of a request should stay under."""
    workspaces: dict[str, Path] = {}
    """The folder of each project, such as `web = "~/src/web"` under `[workspaces]`: what its
    memories say of files and names is checked there."""
    facts_by_relevance: bool = False
    """Whether contexts for a prompt and hooks have, of the facts, only the pinned ones, the rules,
    and those that the prompt needs."""
    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens of a whole prompt, for the memory's share of it, where the log measured none; 0: 6,700
    to 19,000 without the memory."""
    context_model: str = "claude-sonnet-4-5"
    """The model whose tokenizer and prices are used for contexts."""
    score_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Lowest score at which a returned record counts as a hit where no better sign exists."""
    score_thresholds: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    """The `score_threshold` of single bindings: `research-kb = 0.7` under `[score_thresholds]`."""
    archive_url: str = ""
    """URL, in fsspec's form, of an object store that gets a copy of the sealed log."""
    hot_days: Annotated[int, Field(ge=0)] = 90
    """How many days of operations stay in the database when the log is sealed."""
    purge_after_days: Annotated[int, Field(ge=0)] = 0
    """After how many days the texts of operations are purged; 0: never. Once, allow it with
    `memtui purge --texts-older-than 90d --keep-doing`."""
    checks_file: str = ""
    """The file of checks; empty means `checks.toml` in the home."""
    helper_idle_s: Annotated[int, Field(ge=0, le=86_400)] = 900
    """Seconds without a hook after which the helper that speeds up hooks ends; 0: no helper."""
    keymap: dict[str, str] = {}
    """Action id to keys, comma separated: `records.forget = "d,delete"` under `[keymap]`."""

    @property
    def zone_name(self) -> str | None:
        """The IANA name of the zone in use; None where it is not set and the system has none."""
        return self.timezone or system_zone()

    @field_validator("principal", "acts_for")
    @classmethod
    def _whose_name(cls, value: str) -> str:
        if value and (why := bare(value)):
            raise ValueError(why)
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value:
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                ZoneInfo(value)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ValueError(f"{value!r} is not an IANA time zone") from error
        return value


def load_settings(paths: Paths, **flags: Any) -> Settings:
    """Read the settings; a flag of None counts as not given.

    Raises:
        Invalid: a key is unknown (the message offers the nearest), or a value does not fit.
    """
    values = read_file(paths.config_file)
    _refuse_unknown(values, str(paths.config_file))
    environment = read_environment()
    _refuse_unknown(environment, "the environment", ENV_PREFIX)
    for name, value in environment.items():
        values[name] = flat(values.get(name)) | value if isinstance(value, dict) else value
    values |= {name: value for name, value in flags.items() if value is not None}
    for name in TABLES & values.keys():
        values[name] = flat(values[name]) or values[name]
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"The setting {field} does not fit: {misfit(first)}.") from error


def origins(paths: Paths, **flags: Any) -> dict[str, str]:
    """Return the origin of each setting not at its default: file, variable or flag.

    A flag of None counts as not given. Raises `Invalid` where the file cannot be read.
    """
    found = dict.fromkeys(read_file(paths.config_file), str(paths.config_file))
    found |= {name: f"{ENV_PREFIX}{name.upper()}" for name in read_environment()}
    given = (name for name, value in flags.items() if value is not None)
    return found | {name: f"--{name.replace('_', '-')}" for name in given}


def _refuse_unknown(keys: Iterable[str], where: str, prefix: str = "") -> None:
    known = list(Settings.model_fields)
    for key in keys:
        if key in known:
            continue
        names = [(prefix + one).upper() if prefix else one for one in (key, *known)]
        raise Invalid(f"{unknown('setting', names[0], names[1:])} It is in {where}.")
