"""The service: what every channel asks, and the only way to a provider."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memtui.service.answers import (
    Answer,
    BindingHealth,
    BindingView,
    BrowseAnswer,
    Capture,
    Change,
    CompanyView,
    Erasure,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    MutationAnswer,
    PendingChange,
    ProfileAnswer,
    Provenance,
    QueryAnswer,
    Resolution,
    Retrieval,
    RetrievalCount,
    ReviewRule,
    RuleAction,
    RuleTest,
    SyncAnswer,
    TargetView,
    Together,
    UndoCandidate,
    WriteSource,
)
from memtui.service.memory import MemoryService, open_service
from memtui.service.visibility import Caller, Membership, Role, caller_of
from memtui.store.operation import Operation, OperationHandle, OperationPage

if TYPE_CHECKING:
    from memtui.service.context import ContextAnswer, ContextRequest
    from memtui.service.facts import FactAnswer, FactKeys, FactRequest, FactValue, KeyedFact
    from memtui.service.feedback import FeedbackAnswer, Verdict
    from memtui.service.impact import Effect, Impact, ImpactRequest
    from memtui.service.imports import ForeignOperation
    from memtui.service.limits import (
        LimitMeasure,
        LimitPeriod,
        LimitState,
        LimitTarget,
        SpendingLimit,
        SpendingStatus,
    )
    from memtui.service.metrics import FactDay, FactMetrics
    from memtui.service.namespaces import KeptNamespace, MemoryName, NamespaceDeleted
    from memtui.service.past import (
        ChangeKind,
        CompareAnswer,
        DayOfChanges,
        Difference,
        MomentsAnswer,
        TimelineAnswer,
        TimelineEntry,
    )
    from memtui.service.patterns import PatternRequest, PatternsAnswer
    from memtui.service.pruning import PruneAnswer, PruneEverywhere, PruneRequest
    from memtui.service.review import PendingDetails, PendingWrite
    from memtui.service.runs import (
        AssembledNow,
        RecordState,
        Replay,
        Run,
        RunPage,
        RunRecord,
        RunStep,
    )
    from memtui.service.stored_secrets import StoredSecret
    from memtui.service.survey import PurgeAnswer, PurgeRequest

_MODULES = {
    "context": ("ContextAnswer", "ContextRequest"),
    "facts": ("FactAnswer", "FactKeys", "FactRequest", "FactValue", "KeyedFact"),
    "feedback": ("FeedbackAnswer", "Verdict"),
    "impact": ("Effect", "Impact", "ImpactRequest"),
    "imports": ("ForeignOperation",),
    "limits": (
        "LimitMeasure",
        "LimitPeriod",
        "LimitState",
        "LimitTarget",
        "SpendingLimit",
        "SpendingStatus",
    ),
    "metrics": ("FactDay", "FactMetrics"),
    "namespaces": ("KeptNamespace", "MemoryName", "NamespaceDeleted"),
    "past": (
        "ChangeKind",
        "CompareAnswer",
        "DayOfChanges",
        "Difference",
        "MomentsAnswer",
        "TimelineAnswer",
        "TimelineEntry",
    ),
    "patterns": ("PatternRequest", "PatternsAnswer"),
    "pruning": ("PruneAnswer", "PruneEverywhere", "PruneRequest"),
    "review": ("PendingDetails", "PendingWrite"),
    "runs": ("RecordState", "Replay", "Run", "RunPage", "RunRecord", "RunStep", "AssembledNow"),
    "survey": ("PurgeAnswer", "PurgeRequest"),
    "stored_secrets": ("StoredSecret",),
}
"""What few commands need: imported when it is asked for."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"memtui.service.{module}"), name)
    raise AttributeError(name)
