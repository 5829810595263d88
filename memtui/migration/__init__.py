"""Move a binding's records to another binding, and prove that nothing was lost (seed 001)."""

from memtui.migration.applying import Applied, Failure, apply
from memtui.migration.cutover import Switched, switch
from memtui.migration.ends import Ends, Part, open_ends
from memtui.migration.passport import KEY, Passport, unpack
from memtui.migration.planning import Loss, Plan, Refusal, ScopeCount, plan
from memtui.migration.progress import Progress
from memtui.migration.progress_file import MigrationState
from memtui.migration.verifying import Mismatch, Verified, verdict, verify

__all__ = [
    "KEY",
    "Applied",
    "Ends",
    "Failure",
    "Loss",
    "MigrationState",
    "Mismatch",
    "Part",
    "Passport",
    "Plan",
    "Progress",
    "Refusal",
    "ScopeCount",
    "Switched",
    "Verified",
    "apply",
    "open_ends",
    "plan",
    "switch",
    "unpack",
    "verdict",
    "verify",
]
