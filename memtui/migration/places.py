"""Where a destination will keep a scope's records, and what it refuses: as far as can be said."""

from __future__ import annotations

from pydantic import ValidationError

from memtui.contract import Invalid, Record, Scope
from memtui.migration.ends import Ends
from memtui.service import BindingView, owner_of
from memtui.service.facts import FACT, FactLimits, check_text

_FACT_PROVIDERS = ("facts", "facts-http")


def place_for(binding: BindingView, scope: Scope) -> str | None:
    """Return the folder, namespace or owner that a scope's records go to; None: nobody knows.

    Raises:
        Invalid: the destination has no place for the scope.
    """
    if binding.provider_key == "vault":
        from memtui.backends.vault.layout import folder_for

        return folder_for(scope)
    if binding.provider_key == "plugin-v1":
        return _namespace(binding, scope)
    if binding.provider_key in _FACT_PROVIDERS:
        return _owner(binding, scope)
    return None


def refusal(ends: Ends, record: Record, limits: FactLimits) -> str | None:
    """Return why the destination will not take a record, None where nothing is known against it."""
    if not record.text.strip():
        return "It has no text, and no provider takes such a record."
    try:
        place_for(ends.destination, record.scope)
        if record.kind == FACT:
            check_text(record.text, limits)
        if ends.destination.provider_key == "facts":
            most = ends.destination.config.get("max_chars", limits.max_chars)
            check_text(record.text, FactLimits(max_chars=most))
        record.text.encode()
    except Invalid as error:
        return str(error)
    except UnicodeEncodeError:
        return "Its text holds a character that UTF-8 cannot carry."
    return None


def label_of(scope: Scope) -> str:
    """Return whose records a scope holds, in words."""
    field, value = owner_of(scope)
    return "company" if field == "company_id" else f"{field.removesuffix('_id')} {value}"


def _namespace(binding: BindingView, scope: Scope) -> str | None:
    from memtui.backends.plugin_v1.config import Templates
    from memtui.backends.plugin_v1.scoping import NamespaceMap

    try:
        templates = Templates.model_validate(binding.config.get("templates", {}))
    except ValidationError:
        return None
    return NamespaceMap(templates, scope.company_id).target(scope)


def _owner(binding: BindingView, scope: Scope) -> str:
    if scope.project_id is not None:
        return f"drive {scope.project_id}"
    if scope.subject_id is not None:
        return f"user {scope.subject_id}"
    raise Invalid(f"{binding.key} keeps facts of projects and subjects only; this is neither's.")
