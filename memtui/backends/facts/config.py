"""Where the fact tables are, and how much they may hold."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from memtui.contract import BindingContext, Invalid, Json, Model
from memtui.provider_kit import read_config


class FactsConfig(Model):
    """Short facts about users and drives (seed 004 §6.1).

    Without a URL the facts are in a SQLite file of the binding's own data folder. With one they
    are in the tables `user_memories` and `drive_memories` of that PostgreSQL database.
    """

    url: str | None = None
    """The database's URL, `postgresql://user@host/name`, where it holds no password."""
    url_secret: str | None = None
    """The name of the secret that holds the URL, password and all."""
    create: bool = False
    """Create what is missing of the two tables and of memtui's own `memtui_fact_details`, which
    keeps what they have no column for: sources, tags, topics, pins, expiry, times of change. On
    SQLite that is always done; in PostgreSQL nothing is created without it, and no table that
    exists is ever changed."""
    max_chars: int = Field(default=200, ge=1, le=10_000)
    """The longest fact, in Unicode code points (what Python and PostgreSQL count as characters;
    an emoji that JavaScript counts as two is one)."""
    max_facts: int = Field(default=50, ge=1, le=1_000_000)
    """How many facts one user or one drive may have."""
    templates: Json = {}
    """The namespaces of `memtui serve plugin` for project, agent, subject and company, such as
    `{"project": "workspace:acme-{project_id}"}`; what is left out is as usual."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` where it does not fit."""
        config = read_config(cls, context)
        if config.url and config.url_secret:
            raise Invalid("Set either url or url_secret, not both.")
        return config

    def find_url(self, context: BindingContext) -> str | None:
        """Return the database's URL, None for SQLite. Raises `Invalid` for an unset secret."""
        if not self.url_secret:
            return self.url
        url = context.secret(self.url_secret)
        if not url:
            raise Invalid(
                f"There is no secret {self.url_secret}; put the database's URL into the keyring "
                "or the environment under that name."
            )
        return url
