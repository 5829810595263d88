"""The config of a plugin's binding: its address, the names of its namespaces, and limits."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, model_validator

from memtui.backends.plugin_v1.wire import MOST_ROWS
from memtui.contract import Invalid, Model, Scope
from memtui.embedding import EmbeddingConfig

NAMESPACE = re.compile(r"[a-z]+:[A-Za-z0-9_:.\-]+", re.ASCII)
LONGEST_NAMESPACE = 256
_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
_PARTS = ("project", "agent", "subject")
"""Parts of a scope, the narrowest first; a write goes to the first that the scope names."""
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]", re.ASCII)
_ENCODED = r"((?:[A-Za-z0-9_.\-]|:[0-9A-F]{2})+)"
_WIRE_KINDS = {"workspace", "team", "org"}


def is_namespace(name: str) -> bool:
    """Whether the contract allows a namespace of this name."""
    return len(name) <= LONGEST_NAMESPACE and NAMESPACE.fullmatch(name) is not None


def _checked_name(name: str) -> str:
    if not is_namespace(name):
        raise ValueError(
            f"{name!r} is not a namespace; write a prefix in small letters, a colon, and then "
            f"letters, digits and _ : . - up to {LONGEST_NAMESPACE} characters in all"
        )
    return name


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give a URL such as http://localhost:9100")
    if parts.username or parts.password:
        raise ValueError("a plugin has no login; take the user and password out of the URL")
    if parts.query or parts.fragment:
        raise ValueError("a plugin's URL contains no ? or #; remove that part")
    return url.rstrip("/")


class Templates(Model):
    """The namespace of each part of a scope; None: that part has no namespace.

    A template names its own placeholder once, and may name `{company_id}` where several companies
    share a plugin. Characters that a namespace cannot hold become `:` and two hexadecimal digits.
    """

    project: str | None = "workspace:{project_id}"
    agent: str | None = "team:{agent_id}"
    subject: str | None = "user:{subject_id}"
    company: str | None = "org:{company_id}"

    @model_validator(mode="after")
    def _names_its_own(self) -> Self:
        for part in ("project", "agent", "subject", "company"):
            template = getattr(self, part)
            if template is None:
                continue
            names = _PLACEHOLDER.findall(template)
            own = f"{part}_id"
            if part != "company" and names.count(own) != 1:
                raise ValueError(f"the template {template!r} must contain {{{own}}} once")
            if set(names) - {own, "company_id"} or not is_namespace(
                _PLACEHOLDER.sub("x", template)
            ):
                raise ValueError(
                    f"the template {template!r} makes no namespace such as workspace:{{{own}}}"
                )
        return self


def encode(text: str) -> str:
    """Encode any text in the characters of a namespace, reversibly. Raises `Invalid`."""
    try:
        return "".join(
            one if _PLAIN.fullmatch(one) else "".join(f":{byte:02X}" for byte in one.encode())
            for one in text
        )
    except UnicodeEncodeError as error:
        raise Invalid(f"The id {text!r} is not valid text; give another.") from error


def decode(text: str) -> str | None:
    """Reverse `encode`; None for a text that `encode` cannot produce."""
    try:
        plain = unquote(text.replace(":", "%"), errors="strict")
    except UnicodeDecodeError:
        return None
    return plain if encode(plain) == text else None


def kind_of(namespace: str) -> str:
    """Return the contract's kind of a namespace, by its prefix."""
    prefix = namespace.partition(":")[0]
    return prefix if prefix in _WIRE_KINDS else "custom"


class NamespaceMap:
    """Names the namespaces of one company's scopes."""

    def __init__(self, templates: Templates, company_id: str) -> None:
        self.company_id, company = company_id, encode(company_id)
        self._templates = {
            part: template.replace("{company_id}", company)
            for part in (*_PARTS, "company")
            if (template := getattr(templates, part)) is not None
        }
        self._patterns = {
            part: re.compile(_ENCODED.join(map(re.escape, template.split(f"{{{part}_id}}"))))
            for part, template in self._templates.items()
        }

    def spelled(self, others: Iterable[str]) -> list[tuple[str, ...]]:
        """Return places for the namespaces of all scopes, and others: one word per letter.

        A template covers every namespace that begins with its part before the placeholder. A whole
        name gets an extra last word, so that `org:a` does not contain `org:ab` (`Adapter.places`).
        """
        whole = {*others, self._templates.get("company")} - {None}
        open_ended = (one.partition("{")[0] for one in self._templates.values() if one not in whole)
        return [*map(tuple, open_ended), *((*str(one), "end") for one in whole)]

    def target(self, scope: Scope) -> str:
        """Return the namespace for a write: of the project, else agent, subject or company.

        Raises:
            Invalid: no template serves the scope, or the name is too long.
        """
        own = self._own(scope)
        if not own and "company" in self._templates:
            own = [self._templates["company"]]
        if not own:
            raise Invalid("No namespace template of the binding serves this scope; set one.")
        return own[0]

    def readable(self, scope: Scope, *, wider: bool) -> tuple[str, ...]:
        """Return the namespaces that `scope` reads by the templates, the nearest first."""
        names = self._own(scope)
        if (wider or not names) and "company" in self._templates:
            names.append(self._templates["company"])
        return tuple(dict.fromkeys(names))

    def ids_of(self, namespace: str) -> dict[str, str]:
        """Return the scope fields of a namespace; empty for a foreign name."""
        for part in _PARTS:
            pattern = self._patterns.get(part)
            match = pattern.fullmatch(namespace) if pattern else None
            plain = decode(match[1]) if match else None
            if plain is not None:
                return {f"{part}_id": plain}
        return {}

    def _own(self, scope: Scope) -> list[str]:
        names = []
        for part in _PARTS:
            value = getattr(scope, f"{part}_id")
            if value is None or part not in self._templates:
                continue
            name = self._templates[part].replace(f"{{{part}_id}}", encode(value))
            if not is_namespace(name):
                raise Invalid(
                    f"The {part} id {value[:40]!r} makes no namespace of 1 to 256 characters; "
                    "use a shorter one."
                )
            names.append(name)
        return names


class PluginConfig(EmbeddingConfig):
    """A memory plugin that speaks the contract v1 over HTTP. It asks for no login.

    With an `embedding`, a plugin that lists that capability is given the model's vectors.
    """

    url: Annotated[str, AfterValidator(_checked_url)] | None = None
    """The plugin's address, such as http://localhost:9100."""
    uds: Path | None = None
    """The plugin's unix socket, instead of a host and port."""
    templates: Templates = Templates()
    namespaces: tuple[Annotated[str, AfterValidator(_checked_name)], ...] = ()
    """Namespaces that the whole company reads, added to those that memtui has used; a plugin cannot
    list its namespaces."""
    read_wider: bool = True
    """A project, an agent and a subject also see the company's namespace."""
    timeout_seconds: float = Field(default=5.0, gt=0, le=600)
    """How long one request may take, body included, in seconds."""
    max_reply_mb: float = Field(default=32.0, gt=0, le=1024)
    """The largest reply that is read, in megabytes."""
    refresh_seconds: float = Field(default=300.0, ge=0)
    """Seconds after which the plugin's list of capabilities is read again."""
    local_fallback: bool = True
    """Where the plugin finds nothing for a query, look through its newest records here."""
    page_size: int = Field(default=MOST_ROWS, ge=1, le=10_000)
    """How many records one search requests. The contract allows 100; set more if the plugin returns
    more, less if it refuses so many."""
    max_searches: int = Field(default=1000, ge=1, le=100_000)
    """How many searches one call of a list may make; the next call continues."""
    search_seconds: float = Field(default=4.0, gt=0, le=600)
    """How long one call of a list may search, in seconds; the next call continues."""
    cost: Literal["unknown", "free"] = "unknown"
    """The price of calls, which a plugin does not report: unpriced, unless it is free."""

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.url is None) == (self.uds is None):
            raise ValueError("set either url or uds")
        return self

    @property
    def place(self) -> str:
        """The plugin's address for display."""
        return self.url or str(self.uds)
