"""The digest is that of the operation's JSON document, and never changes for one."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.contract import OperationStatus, OperationType, Scope, SourceKind, SourceRef, Usage
from memtui.store.digest import GENESIS, canonical, digest_of
from memtui.store.operation import OperationDraft, OperationHandle

text = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=8)
key = st.text(max_size=8)
maybe = st.none() | text
number = st.floats(allow_nan=False, allow_infinity=False).map(
    lambda value: value + 0.0
) | st.integers(-(2**53), 2**53)
json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats().map(lambda value: value + 0.0) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(key, inner, max_size=3),
    max_leaves=5,
)
documents = st.dictionaries(key, json_value, max_size=3)
money = st.none() | st.decimals(0, 9_000_000, places=12, allow_nan=False)
usages = st.builds(
    Usage,
    provider=text,
    model=maybe,
    input_tokens=st.integers(0, 2**63 - 1),
    output_tokens=st.integers(0, 9),
    embedding_tokens=st.integers(0, 9),
    cost_usd=money,
    latency_ms=st.none() | number,
    details=documents,
)
handles = st.builds(
    OperationHandle,
    rank=st.integers(1, 9),
    provider_key=text,
    provider_record_id=text,
    score=st.none() | st.floats().map(lambda value: value + 0.0),
    binding_key=maybe,
    ghost=st.booleans(),
)
scopes = st.builds(
    Scope,
    company_id=key.filter(bool),
    **{name: maybe for name in Scope.model_fields if name != "company_id"},
)
sources = st.builds(
    SourceRef,
    kind=st.sampled_from(SourceKind),
    company_id=text,
    **{name: maybe for name in SourceRef.model_fields if name not in {"kind", "company_id"}},
)
TEXTS = (
    "binding_key provider_key binding_reason error_kind error_message undoes".split()  # noqa: SIM905
)
drafts = st.builds(
    OperationDraft,
    operation_id=text,
    operation_type=st.sampled_from(OperationType),
    status=st.sampled_from(OperationStatus),
    scope=scopes,
    source=st.none() | sources,
    principal=text,
    door=text,
    request=documents,
    result_count=st.integers(0, 9),
    capped=st.booleans(),
    handles=st.lists(handles, max_size=2).map(tuple),
    usage=st.lists(usages, max_size=2).map(tuple),
    started_at=st.datetimes(timezones=st.just(UTC)),
    latency_ms=number,
    **dict.fromkeys(TEXTS, maybe),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draft=drafts, seq=st.integers(1, 2**40), previous=text)
def test_it_is_of_the_operation_as_every_door_prints_it(
    draft: OperationDraft, seq: int, previous: str
) -> None:
    document = draft.model_dump(mode="json") | {"seq": seq, "previous_digest": previous}
    wanted = hashlib.sha256(canonical(document).encode()).hexdigest()
    assert digest_of(draft, seq=seq, previous_digest=previous) == wanted


def test_every_field_counts_and_existing_logs_keep_theirs() -> None:
    draft = OperationDraft(
        operation_id="op-1",
        operation_type=OperationType.QUERY,
        status=OperationStatus.OK,
        scope=Scope(company_id="acme", agent_id="a", project_id="p", run_id="é"),
        binding_key="default",
        source=SourceRef(kind=SourceKind.RUN, company_id="acme", run_id="run-1"),
        principal="user:ana",
        door="cli",
        request={"query": "which branch", "top_k": 5},
        result_count=1,
        handles=(
            OperationHandle(rank=1, provider_key="vault", provider_record_id="m.md", score=1 / 3),
        ),
        usage=(Usage(provider="voyage", embedding_tokens=9, cost_usd=Decimal("0.00000018")),),
        started_at=datetime(2026, 1, 1, 12, 30, tzinfo=UTC),
        latency_ms=1.5,
    )
    assert digest_of(draft, seq=1, previous_digest=GENESIS) == (
        "acf79e7d9cad6e781b2005aee86eb36de0975a74bd9c3ce20474dad1667e64b8"
    )
