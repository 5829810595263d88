"""The service: what every door asks, and the only way to a provider."""

from memtui.service.answers import (
    Answer,
    BindingHealth,
    BindingView,
    BrowseAnswer,
    Caller,
    Change,
    CompanyView,
    Erasure,
    ExplainAnswer,
    GetAnswer,
    HistoryAnswer,
    MutationAnswer,
    Provenance,
    QueryAnswer,
    Resolution,
    Retrieval,
    RetrievalCount,
    TargetView,
    UndoCandidate,
    caller_of,
)
from memtui.service.companies import ForeignOperation, ImportCount
from memtui.service.context import ContextAnswer, ContextRequest, PruneAnswer, PruneRequest
from memtui.service.limits import (
    LimitMeasure,
    LimitPeriod,
    LimitState,
    LimitTarget,
    SpendingLimit,
    SpendingStatus,
)
from memtui.service.members import NewToken, TokenView
from memtui.service.memory import MemoryService, open_service
from memtui.service.metrics import FactDay, FactMetrics
from memtui.service.namespaces import KeptNamespace, MemoryName, NamespaceDeleted, PluginLedger
from memtui.service.stored_secrets import StoredSecret
from memtui.service.survey import PurgeAnswer, PurgeRequest
from memtui.service.visibility import Membership, Role
from memtui.store.operation import Operation, OperationHandle, OperationPage

__all__ = [
    "Answer",
    "BindingHealth",
    "BindingView",
    "BrowseAnswer",
    "Caller",
    "Change",
    "CompanyView",
    "ContextAnswer",
    "ContextRequest",
    "Erasure",
    "ExplainAnswer",
    "FactDay",
    "FactMetrics",
    "ForeignOperation",
    "GetAnswer",
    "HistoryAnswer",
    "ImportCount",
    "KeptNamespace",
    "LimitMeasure",
    "LimitPeriod",
    "LimitState",
    "LimitTarget",
    "Membership",
    "MemoryName",
    "MemoryService",
    "MutationAnswer",
    "NamespaceDeleted",
    "NewToken",
    "Operation",
    "OperationHandle",
    "OperationPage",
    "PluginLedger",
    "Provenance",
    "PruneAnswer",
    "PruneRequest",
    "PurgeAnswer",
    "PurgeRequest",
    "QueryAnswer",
    "Resolution",
    "Retrieval",
    "RetrievalCount",
    "Role",
    "SpendingLimit",
    "SpendingStatus",
    "StoredSecret",
    "TargetView",
    "TokenView",
    "UndoCandidate",
    "caller_of",
    "open_service",
]
