"""What a plugin can do: what its health lists, and what it was seen to do."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.contract import Capabilities


@dataclass(frozen=True, slots=True)
class Abilities:
    """`listed` None: the plugin does not say. The others None: not seen yet.

    A plugin that lists capabilities is taken to keep the contract until it is seen not to; of one
    that lists none nothing is taken for granted.
    """

    listed: frozenset[str] | None = None
    ids_seen: bool | None = None
    """Whether a memory was stored under the id that was sent."""
    details_seen: bool | None = None
    """Whether `propagation` came back as it was sent."""

    def has(self, name: str) -> bool:
        """Whether the plugin lists a capability: embedding, fts, ttl, pin, propagation."""
        return self.listed is not None and name in self.listed

    @property
    def keeps_ids(self) -> bool:
        """Whether a write with an id is an upsert on it."""
        return self.listed is not None if self.ids_seen is None else self.ids_seen

    @property
    def keeps_details(self) -> bool:
        """Whether what memtui carries in `propagation` comes back."""
        return self.has("propagation") if self.details_seen is None else self.details_seen

    @property
    def keeps_expiry(self) -> bool:
        """Whether an expiry is kept, by the plugin or in `propagation`."""
        return self.has("ttl") or self.keeps_details

    @property
    def keeps_pin(self) -> bool:
        """Whether a pin is kept, by the plugin or in `propagation`."""
        return self.has("pin") or self.keeps_details

    def capabilities(self, *, read_only: bool) -> Capabilities:
        """Return them in the contract's words."""
        exact = self.keeps_ids and self.keeps_details and not read_only
        return Capabilities(
            browse=True,
            correction=not read_only,
            writable=not read_only,
            explain=True,
            namespaces=True,
            namespace_changes=not read_only,
            restore=exact,
            keeps_ids=exact,
            expiry=self.has("ttl"),
            pin=self.has("pin"),
            full_text=self.has("fts"),
            semantic=self.has("embedding"),
        )
