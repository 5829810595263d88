"""Settings and paths: a flag wins over the environment, that over the file, that over defaults."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from memtui.contract import Invalid, Model

ENV_PREFIX = "MEMTUI_"
_HOME_VARIABLE = "MEMTUI_HOME"
_LOCALTIME = Path("/etc/localtime")
_ZONE_FILE = Path("/etc/timezone")


def make_private(folder: Path) -> None:
    """Create a folder and the parents that it lacks, all with mode 0700; raises `OSError`."""
    for missing in [path for path in (*reversed(folder.parents), folder) if not path.is_dir()]:
        missing.mkdir(mode=0o700, exist_ok=True)


class Paths(Model):
    """Where memtui keeps what. With `MEMTUI_HOME` set, everything is under that one folder."""

    data: Path
    config: Path

    @property
    def config_file(self) -> Path:
        """The settings file, TOML."""
        return self.config / "config.toml"

    @property
    def database(self) -> Path:
        """The control plane's SQLite file, unless `database_url` names another database."""
        return self.data / "memtui.db"

    @property
    def session_file(self) -> Path:
        """What the terminal app restores at its next start."""
        return self.data / "session.json"

    @property
    def views_file(self) -> Path:
        """The looks at the operation log that a person gave a name."""
        return self.data / "views.json"

    @property
    def queries_file(self) -> Path:
        """The SQL statements that a person gave a name."""
        return self.data / "queries.json"

    @property
    def log_file(self) -> Path:
        """The log of unexpected errors and of degraded providers."""
        return self.data / "memtui.log"

    @property
    def archive(self) -> Path:
        """The folder of the operations that were sealed, one folder a company in it."""
        return self.data / "archive"

    def binding_dir(self, binding_id: str) -> Path:
        """The private folder of one binding."""
        return self.data / "bindings" / binding_id

    def create(self) -> None:
        """Create the folders with mode 0700.

        Raises:
            Invalid: a folder cannot be made or written.
        """
        for folder in (self.data, self.config):
            try:
                make_private(folder)
                folder.chmod(0o700)
            except OSError as error:
                raise Invalid(
                    f"Cannot use the folder {folder} ({error.strerror}); "
                    f"point {_HOME_VARIABLE} at one that you can write, or read it with "
                    "--read-only."
                ) from error


def find_paths(home: Path | None = None) -> Paths:
    """Return the folders: `home` (a flag), else `MEMTUI_HOME`, else the platform's own.

    Raises:
        Invalid: it starts with `~name` and nobody has that name.
    """
    chosen = home or (Path(value) if (value := os.environ.get(_HOME_VARIABLE)) else None)
    if chosen is not None:
        try:
            chosen = chosen.expanduser().absolute()
        except RuntimeError as error:
            raise Invalid(f"Nobody has the home folder that {chosen} starts with.") from error
        return Paths(data=chosen, config=chosen)
    import platformdirs

    return Paths(
        data=platformdirs.user_data_path("memtui", appauthor=False),
        config=platformdirs.user_config_path("memtui", appauthor=False),
    )


def system_zone() -> str | None:
    """Return the IANA name of the system's time zone; None where the system does not say it."""
    if (wish := os.environ.get("TZ")) is not None:
        return _zone_name(wish.removeprefix(":") or "UTC")
    try:
        if found := _zone_name(str(_LOCALTIME.resolve())):
            return found
        return _zone_name(_ZONE_FILE.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None


def _zone_name(text: str) -> str | None:
    """Return the zone that a name, or a path in the system's folder of zones, stands for."""
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
    """The person, as a principal, on whose behalf an agent acts, and whose rights it then has."""
    read_only: bool = False
    """Refuse every change, whatever the door."""
    database_url: str = ""
    """The control plane's database as a SQLAlchemy URL; empty means the SQLite file in the home."""
    provider_timeout_ms: Annotated[int, Field(ge=10, le=600_000)] = 10_000
    """How long one call to a provider may take, in milliseconds."""
    timezone: str = ""
    """IANA name of the zone that days and clock times are shown in; empty means the system's."""
    theme: str = "memtui"
    """The terminal app's theme; `ansi` uses the terminal's own colours."""
    mouse: bool = True
    """Whether the terminal app takes the mouse."""
    editor: str = ""
    """The command that `E` opens; empty means $VISUAL, else $EDITOR, else vi."""
    fact_max_chars: Annotated[int, Field(ge=0)] = 200
    """How many characters a fact may have; 0 sets no limit."""
    fact_max_count: Annotated[int, Field(ge=0)] = 50
    """How many facts a user or a project may have; 0 sets no limit."""
    context_budget: Annotated[int, Field(ge=0)] = 500
    """Tokens that the memory context of a request should stay under."""
    context_model: str = "claude-sonnet-4-5"
    """The model whose tokens and prices the context is counted in."""
    score_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """From this score on a returned record counts as a hit where no better sign exists."""
    score_thresholds: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    """The same for single bindings, by key: `research-kb = 0.7` under `[score_thresholds]`."""
    archive_url: str = ""
    """An object store that gets a copy of what is sealed, as a URL that fsspec knows."""
    hot_days: Annotated[int, Field(ge=0)] = 90
    """How many days of operations stay in the database when the log is sealed."""
    purge_after_days: Annotated[int, Field(ge=0)] = 0
    """How many days the texts of operations are kept; 0 keeps them. Needs `memtui purge` first."""
    keymap: dict[str, str] = {}
    """Action id to keys, comma separated: `records.forget = "d,delete"` under `[keymap]`."""

    @property
    def zone_name(self) -> str | None:
        """The IANA name of the zone in use; None where it is not set and the system has none."""
        return self.timezone or system_zone()

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value:
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                ZoneInfo(value)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ValueError(f"{value!r} is no IANA time zone") from error
        return value


def load_settings(paths: Paths, **flags: Any) -> Settings:
    """Read the settings; a flag of None counts as not given.

    Raises:
        Invalid: a key is unknown (the message offers the nearest), or a value does not fit.
    """
    values = _read_file(paths.config_file)
    _refuse_unknown(values, str(paths.config_file))
    for name, value in _read_environment().items():
        values[name] = _flat(values.get(name)) | value if isinstance(value, dict) else value
    values |= {name: value for name, value in flags.items() if value is not None}
    for name in _TABLES & values.keys():
        values[name] = _flat(values[name]) or values[name]
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"The setting {field} does not fit: {first['msg']}.") from error


_TABLES = frozenset({"keymap", "score_thresholds"})
"""The settings that hold several values by name."""


def _read_environment() -> dict[str, Any]:
    """A table is one variable of JSON, or one a name, which wins: `MEMTUI_KEYMAP__UNDO`."""
    own = {
        name.lower().removeprefix(ENV_PREFIX.lower()): value
        for name, value in os.environ.items()
        if name.upper().startswith(ENV_PREFIX) and name.upper() != _HOME_VARIABLE
    }
    _refuse_unknown((name.split("__")[0] for name in own), "the environment", ENV_PREFIX)
    found: dict[str, Any] = {}
    for name in sorted(own):
        setting, *keys = name.split("__")
        if setting not in _TABLES:
            found[setting] = own[name]
        elif keys:
            found[setting] = _flat(found.get(setting)) | {".".join(keys): own[name]}
        else:
            found[setting] = _read_table(setting, own[name])
    return found


def _read_table(setting: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        variable = f"{ENV_PREFIX}{setting.upper()}"
        raise Invalid(
            f"{variable} in the environment is no JSON object; set {variable}__NAME=VALUE instead."
        ) from error
    return _flat(found) or found


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    """TOML reads `records.forget` as a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items() if isinstance(table, dict) else ():
        flat |= (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return flat


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}.") from error
    except OSError as error:
        raise Invalid(f"Cannot read {path}: {error.strerror}.") from error


def _refuse_unknown(keys: Iterable[str], where: str, prefix: str = "") -> None:
    known = list(Settings.model_fields)
    for key in keys:
        if key in known:
            continue
        import difflib

        near = difflib.get_close_matches(key, known, n=1)
        shown = (prefix + key).upper() if prefix else key
        offer = (prefix + near[0]).upper() if prefix and near else near[0] if near else ""
        hint = f"did you mean {offer}?" if offer else f"the settings are {', '.join(known)}."
        raise Invalid(f"Unknown setting {shown} in {where}; {hint}")
