"""Namespaces of the memory plugin contract to scopes of memtui, and back.

`workspace:web` is the project `web`, `team:ops` the agent `ops`, `user:ana` the subject `ana`, and
every `org:` the company, unless the binding's config has `templates` of its own. Any other
namespace is a subject of that whole name, so that none is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from pydantic import ValidationError

from memtui.backends.plugin_v1.config import Templates
from memtui.backends.plugin_v1.scoping import NamespaceMap
from memtui.contract import Invalid, Scope, owner_of
from memtui.service import BindingView

_ORG = "org:"
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

    def __init__(self, company_id: str, binding: BindingView) -> None:
        """Take up a binding's mapping. Raises `Invalid` where its `templates` do not fit."""
        templates = _templates(binding)
        self._company_id = company_id
        self._names = NamespaceMap(templates, company_id)
        self._company = (
            self._names.target(Scope(company_id=company_id)) if templates.company else None
        )

    def _is_company(self, name: str) -> bool:
        """Whether a namespace is the company's: an `org:` of any name, if its own is one."""
        if self._company is None:
            return False
        return name == self._company or (name.startswith(_ORG) and self._company.startswith(_ORG))

    def scope_of(self, name: str) -> Scope:
        """Return the scope that a namespace's memories are written to."""
        if self._is_company(name):
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


def _templates(binding: BindingView) -> Templates:
    given = binding.config.get("templates") or {}
    try:
        return Templates(**{**given, **_NO_TEMPLATE.get(binding.provider_key, {})})
    except (ValidationError, TypeError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise Invalid(
            f"The templates of the binding {binding.key} do not fit: "
            f"{what.removeprefix('Value error, ')}."
        ) from error


def _shortened(value: str) -> str:
    if len(quote(value, safe="")) <= _LONGEST:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:_KEPT]}~{digest[:16]}"
