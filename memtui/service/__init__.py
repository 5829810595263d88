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
    from memtui.service.context.contexts import ContextAnswer, ContextRequest
    from memtui.service.context.impact import Effect, Impact, ImpactRequest
    from memtui.service.context.pruning import PruneAnswer, PruneRequest
    from memtui.service.history.metrics import FactDay, FactMetrics
    from memtui.service.history.past import (
        ChangeKind,
        CompareAnswer,
        DayOfChanges,
        Difference,
        MomentsAnswer,
        TimelineAnswer,
        TimelineEntry,
    )
    from memtui.service.history.patterns import PatternRequest, PatternsAnswer
    from memtui.service.history.runs import (
        AssembledNow,
        RecordState,
        Replay,
        Run,
        RunPage,
        RunRecord,
        RunStep,
    )
    from memtui.service.home.imports import ForeignOperation
    from memtui.service.home.stored_secrets import StoredSecret
    from memtui.service.home.survey import PurgeAnswer, PurgeRequest
    from memtui.service.operations.facts import (
        FactAnswer,
        FactKeys,
        FactRequest,
        FactValue,
        KeyedFact,
    )
    from memtui.service.operations.feedback import FeedbackAnswer, Verdict
    from memtui.service.operations.namespaces import KeptNamespace, MemoryName, NamespaceDeleted
    from memtui.service.review.queue import PendingDetails, PendingWrite
    from memtui.service.spending import (
        LimitAction,
        LimitMeasure,
        LimitPeriod,
        LimitState,
        LimitTarget,
        SpendingLimit,
        SpendingStatus,
    )

_MODULES = {
    "context.contexts": ("ContextAnswer", "ContextRequest"),
    "operations.facts": ("FactAnswer", "FactKeys", "FactRequest", "FactValue", "KeyedFact"),
    "operations.feedback": ("FeedbackAnswer", "Verdict"),
    "context.impact": ("Effect", "Impact", "ImpactRequest"),
    "home.imports": ("ForeignOperation",),
    "spending": (
        "LimitAction",
        "LimitMeasure",
        "LimitPeriod",
        "LimitState",
        "LimitTarget",
        "SpendingLimit",
        "SpendingStatus",
    ),
    "history.metrics": ("FactDay", "FactMetrics"),
    "operations.namespaces": ("KeptNamespace", "MemoryName", "NamespaceDeleted"),
    "history.past": (
        "ChangeKind",
        "CompareAnswer",
        "DayOfChanges",
        "Difference",
        "MomentsAnswer",
        "TimelineAnswer",
        "TimelineEntry",
    ),
    "history.patterns": ("PatternRequest", "PatternsAnswer"),
    "context.pruning": ("PruneAnswer", "PruneRequest"),
    "review.queue": ("PendingDetails", "PendingWrite"),
    "history.runs": (
        "RecordState",
        "Replay",
        "Run",
        "RunPage",
        "RunRecord",
        "RunStep",
        "AssembledNow",
    ),
    "home.survey": ("PurgeAnswer", "PurgeRequest"),
    "home.stored_secrets": ("StoredSecret",),
}
"""What few commands need: imported when it is asked for."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"memtui.service.{module}"), name)
    raise AttributeError(name)
