"""Where a plugin is, how its namespaces are named, and how much may be asked of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from memtui.contract import BindingContext, Model
from memtui.provider_kit import read_config

from .wire import MOST_ROWS

NAMESPACE = re.compile(r"[a-z]+:[A-Za-z0-9_:.\-]+", re.ASCII)
LONGEST_NAMESPACE = 256
_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")


def is_namespace(name: str) -> bool:
    """Whether the contract allows a namespace of this name."""
    return len(name) <= LONGEST_NAMESPACE and NAMESPACE.fullmatch(name) is not None


def _checked_name(name: str) -> str:
    if not is_namespace(name):
        raise ValueError(
            f"{name!r} is no namespace; it needs a prefix in small letters, a colon, and then "
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
        raise ValueError("a plugin's URL ends before any ? or #")
    return url.rstrip("/")


class Templates(Model):
    """The namespace that each part of a scope is kept in; None: that part has none of its own.

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
                raise ValueError(f"the template {template!r} must hold {{{own}}} once")
            if set(names) - {own, "company_id"} or not is_namespace(
                _PLACEHOLDER.sub("x", template)
            ):
                raise ValueError(
                    f"the template {template!r} makes no namespace such as workspace:{{{own}}}"
                )
        return self


class PluginConfig(Model):
    """A memory plugin that speaks the contract v1 over HTTP. It asks for no login."""

    url: Annotated[str, AfterValidator(_checked_url)] | None = None
    """The plugin's address, such as http://localhost:9100."""
    uds: Path | None = None
    """The plugin's unix socket, instead of a host and port."""
    templates: Templates = Templates()
    namespaces: tuple[Annotated[str, AfterValidator(_checked_name)], ...] = ()
    """Namespaces that the whole company reads besides those that memtui has met; the plugin
    itself cannot list them."""
    read_wider: bool = True
    """A project, an agent and a subject also see the company's namespace."""
    timeout_seconds: float = Field(default=5.0, gt=0, le=600)
    """How long one request may take in all, its body included."""
    max_reply_mb: float = Field(default=32.0, gt=0, le=1024)
    """A longer reply is refused."""
    refresh_seconds: float = Field(default=300.0, ge=0)
    """How old the plugin's list of capabilities may be."""
    local_fallback: bool = True
    """Where the plugin finds nothing for a query, look through its newest records here."""
    page_size: int = Field(default=MOST_ROWS, ge=1, le=10_000)
    """How many records one search asks for. The contract's most is 100; set more for a plugin that
    gives more, less for one that refuses so many."""
    max_searches: int = Field(default=1000, ge=1, le=100_000)
    """How many searches one call of a list may make; the next call goes on from there."""
    search_seconds: float = Field(default=4.0, gt=0, le=600)
    """How long one call of a list may go on searching; the next call goes on from there."""
    cost: Literal["unknown", "free"] = "unknown"
    """A plugin does not say what a call costs, so calls are unpriced unless it is free."""

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.url is None) == (self.uds is None):
            raise ValueError("set either url or uds")
        return self

    @property
    def place(self) -> str:
        """The plugin's address as a person knows it."""
        return self.url or str(self.uds)

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` where it does not fit."""
        return read_config(cls, context)
