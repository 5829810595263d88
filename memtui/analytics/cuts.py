"""By what figures can be cut: the dimensions of an operation and of what it used, and time."""

from __future__ import annotations

from typing import NamedTuple

from memtui.analytics.buckets import Bucket, bucket_of

OF_OPERATION = {
    "company": "company_id",
    "agent": "agent_id",
    "project": "project_id",
    "binding": "binding_key",
    "type": "operation_type",
    "source_kind": "source_kind",
    "status": "status",
    "door": "door",
    "principal": "principal",
}
OF_USAGE = {"provider": "provider", "model": "model"}
"""Dimensions of what was consumed. An operation counts in each group that it used, and in the one
of None where it used nothing; tokens and cost count where they were spent."""

DIMENSIONS = OF_OPERATION | OF_USAGE


class Cut(NamedTuple):
    """By which dimensions and how in time figures are cut; by neither, all are one group."""

    by: tuple[str, ...] = ()
    bucket: Bucket | None = None

    @property
    def of_usage(self) -> bool:
        """Whether it takes the usage of an operation apart."""
        return any(name in OF_USAGE for name in self.by)

    def columns(self, zone: str) -> dict[str, str]:
        """Return the SQL of each column that groups have in common, by name, in their order."""
        time = {} if self.bucket is None else {f"by_{self.bucket}": bucket_of(self.bucket, zone)}
        return time | {f"key_{name}": DIMENSIONS[name] for name in self.by}
