"""Resolves the wikilinks of notes, as Obsidian does.

A link names a file by its name or the end of its path. Of several files with one name, it means one
in its own folder, else the one with the shortest path. If no file has the name, titles and aliases
are tried.
"""

from __future__ import annotations

import json
import posixpath
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from memtui.contract import OWNER_FIELDS, Link, Links, Scope, folded
from memtui.provider_kit.pages import MOST_BACKLINKS

from .files import VaultFolder
from .index import FILE
from .layout import Area, handle_of, sees
from .markdown import link_name


def links_of(
    connection: sqlite3.Connection,
    folder: VaultFolder,
    ids: Collection[str],
    scope: Scope,
    now: int | None,
) -> dict[str, Links]:
    """Return the links and backlinks of records, as far as they are visible to `scope`.

    `now` is in microseconds since 1970. A link to an invisible record has no handle.
    """
    going = _chosen(connection, "SELECT * FROM links WHERE id IN ({}) ORDER BY rowid", ids)
    own_names = _chosen(connection, "SELECT DISTINCT name FROM names WHERE id IN ({})", ids)
    linking = "SELECT * FROM links WHERE name = ? LIMIT ?"
    coming: list[sqlite3.Row] = []
    hubs = set()
    for row in own_names:
        found = connection.execute(linking, (row["name"], MOST_BACKLINKS + 1)).fetchall()
        coming += found[:MOST_BACKLINKS]
        hubs |= {row["name"]} if len(found) > MOST_BACKLINKS else set()
    candidates: dict[str, list[sqlite3.Row]] = defaultdict(list)
    wanted = {row["name"] for row in (*going, *coming)}
    for row in _chosen(connection, "SELECT * FROM names WHERE name IN ({})", wanted):
        candidates[row["name"]].append(row)
    leads = {
        (row["path"], row["target"]): _led_to(row["path"], row["target"], candidates[row["name"]])
        for row in (*going, *coming)
    }
    ends = _ends(connection, folder, {*leads.values(), *(row["id"] for row in coming)}, scope, now)
    links: dict[str, list[Link]] = defaultdict(list)
    backlinks: dict[str, list[Link]] = defaultdict(list)
    for row in going:
        to = leads[row["path"], row["target"]]
        if to != row["id"]:
            links[row["id"]].append(_link_of(row, ends.get(to or ""), folder))
    for row in sorted(coming, key=lambda row: (row["path"], row["line"])):
        to = leads[row["path"], row["target"]]
        if to is not None and to in ids and to != row["id"] and (end := ends.get(row["id"])):
            backlinks[to].append(_link_of(row, end, folder))
    crowded = {
        row["id"] for row in _chosen(connection, "SELECT * FROM names WHERE name IN ({})", hubs)
    }
    return {
        one: Links(
            links=tuple(links[one]),
            backlinks=tuple(backlinks[one]),
            backlinks_capped=one in crowded,
        )
        for one in ids
        if one in links or one in backlinks
    }


class _End(NamedTuple):
    """The record at one end of a link."""

    id: str
    title: str
    scope: Scope


def _chosen(
    connection: sqlite3.Connection, query: str, values: Collection[str]
) -> list[sqlite3.Row]:
    """Return the rows of a query in which `{}` selects the values."""
    chosen = query.format("SELECT value FROM json_each(?)")
    return connection.execute(chosen, [json.dumps(list(values))]).fetchall()


def _ends(
    connection: sqlite3.Connection,
    folder: VaultFolder,
    ids: Collection[str | None],
    scope: Scope,
    now: int | None,
) -> dict[str, _End]:
    """Return the records that are visible to a scope."""
    rows = _chosen(
        connection,
        "SELECT id, area, project_id, agent_id, subject_id,"
        " COALESCE(title, substr(text, 1, 200)) AS title, expires"
        " FROM records WHERE id IN ({}) AND is_current",
        [one for one in ids if one],
    )
    found: dict[str, _End] = {}
    for row in rows:
        owner = Scope(
            company_id=folder.company_id,
            **{name: row[name] for name in OWNER_FIELDS},
        )
        is_there = row["expires"] is None or now is None or row["expires"] > now
        if is_there and sees(scope, Area(row["area"]), owner):
            found[row["id"]] = _End(row["id"], row["title"].partition("\n")[0], owner)
    return found


def _link_of(row: sqlite3.Row, end: _End | None, folder: VaultFolder) -> Link:
    return Link(
        target=f"{row['target']}#{row['heading']}" if row["heading"] else row["target"],
        words=row["words"],
        relation=row["relation"],
        handle=handle_of(end.id) if end else None,
        title=end.title if end else None,
        scope=end.scope if end else None,
        location=folder.location(row["path"], row["line"]),
    )


def _led_to(path: str, target: str, candidates: Sequence[sqlite3.Row]) -> str | None:
    """Return the id of the note that a link in the file at `path` leads to; None: none."""
    here, name = posixpath.dirname(path), link_name(target)
    if name.startswith(("./", "../")):
        exact = posixpath.normpath(posixpath.join(folded(here), name))
    else:
        exact = name.lstrip("/")
    is_exact = exact != name
    fitting = [
        row
        for row in candidates
        if row["whole"] == exact
        or (row["rank"] == FILE and not is_exact and row["whole"].endswith(f"/{name}"))
    ]
    best = min(
        fitting,
        key=lambda row: (
            row["rank"],
            row["whole"] != exact,
            not row["id"].startswith(f"{here}/"),
            len(row["id"]),
            row["id"],
        ),
        default=None,
    )
    return best["id"] if best else None
