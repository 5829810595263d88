"""Scopes to namespaces and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from memtui.contract import Invalid, Scope

from .config import Templates, is_namespace

_PARTS = ("project", "agent", "subject")
"""From the narrowest: the first that a scope names takes what is written."""
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]", re.ASCII)
_ENCODED = r"((?:[A-Za-z0-9_.\-]|:[0-9A-F]{2})+)"
_WIRE_KINDS = {"workspace", "team", "org"}


def encode(text: str) -> str:
    """Write any text in the characters of a namespace, reversibly. Raises `Invalid`."""
    try:
        return "".join(
            one if _PLAIN.fullmatch(one) else "".join(f":{byte:02X}" for byte in one.encode())
            for one in text
        )
    except UnicodeEncodeError as error:
        raise Invalid(f"The id {text!r} is not valid text; give another.") from error


def decode(text: str) -> str | None:
    """Return what `encode` was given, None for what it does not write."""
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
        company = encode(company_id)
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
        """Return the namespaces of all scopes, and others, letter by letter (`Adapter.places`).

        What a template leaves open is every namespace that begins as it does. A whole name ends in
        a word of its own, so that `org:a` is no beginning of `org:ab`.
        """
        whole = {*others, self._templates.get("company")} - {None}
        open_ended = (one.partition("{")[0] for one in self._templates.values() if one not in whole)
        return [*map(tuple, open_ended), *((*str(one), "end") for one in whole)]

    def target(self, scope: Scope) -> str:
        """Return where a record of `scope` is written: project, else agent, subject, company.

        Raises:
            Invalid: no template serves the scope, or the name grows too long.
        """
        own = self._own(scope)
        if not own and "company" in self._templates:
            own = [self._templates["company"]]
        if not own:
            raise Invalid("No namespace template of the binding serves this scope; set one.")
        return own[0]

    def readable(self, scope: Scope, *, wider: bool) -> tuple[str, ...]:
        """Return what `scope` sees by its templates, the nearest first."""
        names = self._own(scope)
        if (wider or not names) and "company" in self._templates:
            names.append(self._templates["company"])
        return tuple(dict.fromkeys(names))

    def ids_of(self, namespace: str) -> dict[str, str]:
        """Return the scope fields that a namespace stands for, none for a foreign name."""
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
