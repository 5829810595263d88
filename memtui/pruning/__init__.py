"""What a memory could do without: duplicates, leftovers, contradictions, each with a reason."""

from __future__ import annotations

from memtui.pruning.candidates import (
    PruneCandidate,
    PruneRules,
    Reason,
    Retrieval,
    find_candidates,
    scope_key,
)
from memtui.pruning.clusters import Cluster, Duplicate, Entry, Vectors, find_clusters
from memtui.pruning.plan import DiffLine, PlanItem, PrunePlan, make_plan
from memtui.pruning.sameness import Likeness, Match

__all__ = [
    "Cluster",
    "DiffLine",
    "Duplicate",
    "Entry",
    "Likeness",
    "Match",
    "PlanItem",
    "PruneCandidate",
    "PrunePlan",
    "PruneRules",
    "Reason",
    "Retrieval",
    "Vectors",
    "find_candidates",
    "find_clusters",
    "make_plan",
    "scope_key",
]
