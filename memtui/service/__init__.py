"""The service: what every door asks, and the only way to a provider."""

from memtui.service.answers import (
    Answer,
    BindingHealth,
    BindingView,
    BrowseAnswer,
    Caller,
    Change,
    CompanyView,
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
)
from memtui.service.hydration import ContextAnswer, ContextRequest
from memtui.service.membership import NewToken, TokenView
from memtui.service.memory import MemoryService, open_service
from memtui.service.metrics import FactDay, FactMetrics
from memtui.service.owning import own_filter, owned, owner_of
from memtui.service.permissions import Membership, Role
from memtui.service.pruning import PruneAnswer, PruneRequest
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
    "ExplainAnswer",
    "FactDay",
    "FactMetrics",
    "GetAnswer",
    "HistoryAnswer",
    "Membership",
    "MemoryService",
    "MutationAnswer",
    "NewToken",
    "Operation",
    "OperationHandle",
    "OperationPage",
    "Provenance",
    "PruneAnswer",
    "PruneRequest",
    "QueryAnswer",
    "Resolution",
    "Retrieval",
    "RetrievalCount",
    "Role",
    "TargetView",
    "TokenView",
    "UndoCandidate",
    "open_service",
    "own_filter",
    "owned",
    "owner_of",
]
