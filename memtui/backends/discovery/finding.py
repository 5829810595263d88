"""What discovery found at one place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from memtui.backends.files.entries import digest
from memtui.contract import Json, Model

_KEY_LIMIT = 48


class Finding(Model):
    """A memory on this machine that could become a read-only binding."""

    provider: str
    """The name of the provider that can open it."""
    key: str
    """A binding key to suggest: lower case, digits and hyphens, unique among the findings."""
    title: str
    path: str
    """Where it is."""
    config: Json = {}
    """The binding's config; empty where there is nothing to open, and `problems` say why."""
    records: int | None = None
    """How many records it holds; None: not counted."""
    estimated: bool = True
    """`records` was counted without parsing, so the true number may differ."""
    why: str
    """Why it was looked for there, as a sentence."""
    problems: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a binding can be made of it."""
        return bool(self.config)


def with_keys(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order, each place once, each with a key of its own."""
    kept: dict[tuple[str, str], Finding] = {}
    taken: set[str] = set()
    for finding in findings:
        place = (finding.provider, finding.path)
        if place in kept and (kept[place].usable or not finding.usable):
            continue
        if place in kept:
            key = kept[place].key
        else:
            wanted = key = f"{finding.provider}-{_slug(finding.key)}"[:_KEY_LIMIT].strip("-")
            number = 1
            while key in taken:
                number += 1
                key = f"{wanted}-{number}"
        taken.add(key)
        kept[place] = finding.model_copy(update={"key": key})
    return list(kept.values())


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or digest(name)
