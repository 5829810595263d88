"""Namespaces of the memory plugin contract to scopes of memtui, and back.

`workspace:web` is the project `web`, `team:ops` the agent `ops`, `user:ana` the subject `ana`, and
every `org:` the company. Any other namespace is a subject of that whole name, so that none is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from memtui.backends.plugin_v1.config import Templates
from memtui.backends.plugin_v1.scoping import NamespaceMap
from memtui.contract import Invalid, Scope
from memtui.service import owner_of

_LONGEST = 180
"""Of an id, percent-encoded: longer ones are shortened, as a file name would have to be."""
_KEPT = 40
_NO_TEMPLATE: Mapping[str, Mapping[str, str | None]] = {
    "facts": {"agent": None, "company": None},
    "facts-http": {"agent": None, "company": None},
}
"""Providers that keep memories of projects and subjects only."""


class Places:
    """Where the namespaces of one company are in a binding."""

    def __init__(self, company_id: str, provider_key: str) -> None:
        templates = Templates(**_NO_TEMPLATE.get(provider_key, {}))
        self._company_id = company_id
        self._names = NamespaceMap(templates, company_id)
        self._has_company = templates.company is not None

    def scope_of(self, name: str) -> Scope:
        """Return the scope that a namespace's memories are written to."""
        if self._has_company and name.startswith("org:"):
            return Scope(company_id=self._company_id)
        ids = self._names.ids_of(name)
        if not ids or not all(value.isprintable() for value in ids.values()):
            ids = {"subject_id": name}
        short = {field: _shortened(value) for field, value in ids.items()}
        return Scope(company_id=self._company_id, **short)

    def name_of(self, scope: Scope, said: str | None) -> str | None:
        """Return the namespace of a record in `scope`, which says that it is `said`.

        It is believed where that namespace has the same owner. None: no namespace can hold it.
        """
        owner = owner_of(scope)
        if said is not None and owner_of(self.scope_of(said)) == owner:
            return said
        try:
            name = self._names.target(Scope(**{"company_id": self._company_id, **dict([owner])}))
        except Invalid:
            return None
        return name if owner_of(self.scope_of(name)) == owner else None


def _shortened(value: str) -> str:
    if len(quote(value, safe="")) <= _LONGEST:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:_KEPT]}~{digest[:16]}"
