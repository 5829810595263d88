"""What the demo's stand-in for a hosted provider is told: made-up prices and outages."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

from memtui.contract import Model, UtcDatetime


class Trouble(StrEnum):
    """`DOWN`: refused at the door. `SLOW`: done, and the answer is lost. `LAG`: forgets wait."""

    DOWN = "down"
    SLOW = "slow"
    LAG = "lag"


class Outage(Model):
    """A span in which the provider misbehaves; `end` is exclusive."""

    kind: Trouble
    start: UtcDatetime
    end: UtcDatetime


class HostedConfig(Model):
    """What the stand-in is told."""

    outages: tuple[Outage, ...] = ()
    """When it pretends to be down, slow or late."""
    write_usd: Decimal = Decimal("0.002")
    """Made-up fee of a write or a correction, in US dollars."""
    search_usd: Decimal = Decimal("0.0004")
    """Made-up fee of a search, in US dollars."""
    embedding_usd_per_million: Decimal = Decimal("0.02")
    """Made-up price of a million embedding tokens, in US dollars."""
    input_usd_per_million: Decimal = Decimal("0.15")
    """Made-up price of a million input tokens of a summary, in US dollars."""
    output_usd_per_million: Decimal = Decimal("0.60")
    """Made-up price of a million output tokens of a summary, in US dollars."""
