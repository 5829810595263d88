"""The service: what every channel asks, and the only way to a provider."""

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
