"""EnterOS's memories: its table `agent_memories`, beside the tree of its `workspaces` (seed 001).

A memory belongs where EnterOS's server writes it in a memory plugin: `LOCAL` to `workspace:<its
workspace>`, `TEAM` to `team:<the workspace above, or its own at the root>`, `GLOBAL` to `org:<the
root>`. A record's id is that namespace and the row's id, as it is in a plugin.
"""

from collections.abc import Iterable
from typing import ClassVar

from sqlalchemy import Connection

from memtui.contract import (
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Health,
    Invalid,
    Json,
    Scope,
)
from memtui.provider_kit import read_moment
from memtui.provider_kit.databases import DatabasePool
from memtui.provider_kit.rows import Row, RowTable
from memtui.provider_kit.tables import TablesAdapter, TablesConfig

KEY = "enteros"
_WORKSPACES = "workspaces"
_MOST_LEVELS = 50
_EMBEDDING = "embedding"
_SHOWN = frozenset(
    {"id", "workspace_id", "content", "scope", "namespace", "created_at", "updated_at"}
)


class EnterosConfig(TablesConfig):
    """The memories that EnterOS keeps in its own database, to read and to move to a plugin."""

    workspaces: tuple[str, ...] = ()
    """The ids of the workspaces whose memories are read; unset: those of all."""


class EnterosAdapter(TablesAdapter[EnterosConfig]):
    """A record is a row; its project is the workspace, its agent the team, or it is the company's.

    A memory whose place cannot be told from the tree is shown with the reason, and not moved.
    """

    key: ClassVar[str] = KEY
    config_model = EnterosConfig
    capabilities = Capabilities(
        browse=True, chosen_owners=True, full_text=True, without=True, writable=False
    )
    table = "agent_memories"
    keys = ("id",)
    needs = frozenset({"workspace_id", "content", "scope", "created_at", "updated_at"})
    leaves_out = frozenset({_EMBEDDING, "content_tsv"})

    def __init__(self, context: BindingContext, config: EnterosConfig, pool: DatabasePool) -> None:
        super().__init__(context, config, pool)
        self._parents: dict[str, str | None] = {}
        """The workspace above each workspace; None: it is a root."""
        self._tree: object = None
        """The stamp of the workspaces when `_parents` was read."""
        self._embedded = 0
        """How many memories have a vector."""

    def stamp_of(self, connection: Connection, table: RowTable) -> object:
        """Return the stamp of both tables; read the tree and the number of vectors anew."""
        name = f"{self._name.rpartition('.')[0]}.{_WORKSPACES}".lstrip(".")
        workspaces = RowTable.find(connection, name)
        if workspaces is None or not {"id", "parent_id"} <= workspaces.columns:
            raise Invalid(
                f"The database has no table {name} with the columns id and parent_id, which say "
                "whose memories these are; check what the binding opens."
            )
        tree, stamp = workspaces.stamp(connection), table.stamp(connection)
        if tree != self._tree:
            rows = workspaces.every(connection)
            self._parents = {str(one["id"]): one["parent_id"] for one in rows}
            self._tree, self._records = tree, {}
        if unknown := sorted({*self.config.workspaces} - self._parents.keys()):
            raise Invalid(
                f"There is no workspace {unknown[0]}; correct workspaces of the binding "
                f"{self.context.binding_key}."
            )
        if (tree, stamp) != self._stamp:
            self._embedded = table.count_set(connection, _EMBEDDING)
        return tree, stamp

    def rows_of(self, connection: Connection, table: RowTable) -> Iterable[Row]:
        """Return the memories of the workspaces that are read."""
        chosen = self.config.workspaces
        rows = super().rows_of(connection, table)
        return (one for one in rows if not chosen or one["workspace_id"] in chosen)

    def _namespace(self, row: Row) -> str:
        """Return the namespace of a row. Raises `ValueError` where the row does not say it."""
        own = str(row["workspace_id"] or "")
        if not own:
            raise ValueError("it names no workspace")
        if row["scope"] == "LOCAL":
            return f"workspace:{own}"
        chain = [own]
        while (parent := self._above(chain[-1])) is not None:
            if parent in chain:
                raise ValueError(f"the workspaces above it form a circle at {parent}")
            if len(chain) == _MOST_LEVELS:
                raise ValueError(f"more than {_MOST_LEVELS} workspaces are above it")
            chain.append(parent)
        if row["scope"] == "TEAM":
            return f"team:{chain[:2][-1]}"
        if row["scope"] == "GLOBAL":
            return f"org:{chain[-1]}"
        raise ValueError(f"EnterOS has no scope {row['scope']!r}")

    def _above(self, workspace: str) -> str | None:
        if workspace not in self._parents:
            raise ValueError(f"there is no workspace {workspace}")
        return self._parents[workspace]

    def id_of(self, row: Row) -> str:
        """Return the namespace and the row's id: `workspace:3f2a…/9c41…`."""
        try:
            return f"{self._namespace(row)}/{row['id']}"
        except ValueError:
            return str(row["id"])

    def key_of(self, record_id: str) -> Row | None:
        """Return the row's id."""
        return {"id": record_id.rpartition("/")[2]}

    def scope_of(self, row: Row) -> Scope:
        """Return the owner of a row; without a readable namespace, its workspace or nobody.

        Only those who see everything see a row of nobody.
        """
        try:
            kind, _, name = self._namespace(row).partition(":")
        except ValueError:
            name = row["workspace_id"]
            kind, name = ("workspace", name) if name else ("nobody", "nobody")
        field = {"workspace": "project_id", "team": "agent_id", "nobody": "subject_id"}.get(kind)
        own = {field: name} if field else {}
        return Scope(company_id=self.context.company_id, **own)

    def record_of(self, row: Row) -> Json:
        """Return the record in a row; columns that memtui does not know are its metadata."""
        created_at, problem = read_moment(row["created_at"]), None
        try:
            self._namespace(row)
        except ValueError as error:
            problem = f"The owner of this memory is unknown: {error}."
        return {
            "text": row["content"],
            "kind": "memory",
            "topic": row.get("namespace"),
            "created_at": created_at,
            "updated_at": read_moment(row["updated_at"]) or created_at,
            "created_by": f"agent:{row['workspace_id']}",
            "metadata": {
                name: value
                for name, value in row.items()
                if name not in _SHOWN and value is not None
            },
            "problem": problem,
        }

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page, and say that no vectors are read."""
        page = await super().browse(request)
        return page.model_copy(update={"unread": (told,) if (told := self._told()) else ()})

    async def health(self) -> Health:
        """Count the records, and say that no vectors are read."""
        found = await super().health()
        return found if found.message else found.model_copy(update={"message": self._told()})

    def _told(self) -> str:
        """Say for how many memories EnterOS has a vector; empty: for none."""
        if not self._embedded:
            return ""
        return (
            f"EnterOS has a vector of {self._embedded:,} memories. memtui reads no vectors: a "
            "binding that embeds makes its own."
        )
