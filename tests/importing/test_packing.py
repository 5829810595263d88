"""What waits comes back as it was, and is what validating its values would have made."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memtui.importing.rows import Row
from memtui.importing.staging import pack, unpack
from memtui.importing.translating import Translator
from memtui.store.operation import OperationDraft
from tests.importing.conftest import row

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text("abc :é", min_size=1).filter(lambda text: text.strip() != "")
COUNTS = st.integers(0, 10**9)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "agent_id": NAMES, "run_id": NAMES, "principal": NAMES, "query": TEXTS,
        "error_message": TEXTS, "source_external_ref": TEXTS, "result_count": COUNTS,
        "latency_ms": st.decimals(0, 10**6, places=3).map(str), "undoes": TEXTS,
        "model": st.sampled_from(["gpt-4o", "claude-sonnet-4-5", "mystery"]),
        "input_tokens": COUNTS, "output_tokens": COUNTS, "unpriced_count": st.integers(0, 3),
        "cost_usd": st.decimals(0, 1000, places=14).map(str), "other": st.floats(allow_nan=True),
        "capped": st.booleans(),
        "handles": st.just([{"rank": 1, "provider_key": "v", "provider_record_id": "r"}]),
    },
)  # fmt: skip


@given(VALUES)
def test_there_and_back(values: dict[str, Any]) -> None:
    entry = Translator("theirs").entry("a.jsonl", Row(1, row(**values)), {})
    draft = entry.draft
    again = unpack(pack(draft), "an-id", draft.started_at)
    assert again == draft.model_copy(update={"operation_id": "an-id"})
    document = again.model_dump(mode="json")
    validated = OperationDraft.model_validate(json.loads(json.dumps(document)))
    assert validated.model_dump(mode="json") == document
    assert validated == again
