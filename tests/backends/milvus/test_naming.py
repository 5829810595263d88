from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.milvus.naming import collection_of, owner_of_collection
from memtui.contract import OWNER_FIELDS, Invalid, Scope

_LIKE_A_CODE = st.text(alphabet="_x2D5F-aé.", min_size=1, max_size=12)


@given(st.sampled_from(OWNER_FIELDS), st.one_of(st.text(min_size=1, max_size=20), _LIKE_A_CODE))
def test_every_scope_has_a_collection_that_names_it(field: str, value: str) -> None:
    scope = Scope(**{"company_id": "acme", field: value})
    try:
        name = collection_of("aq_", scope)
    except Invalid:
        assert re.search("[\ud800-\udfff]", value)
        return
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    assert owner_of_collection("aq_", name, "acme") == scope


def test_plain_ids_are_named_as_the_seed_says() -> None:
    names = {
        "aq_system": {},
        "aq_orchestrator": {"agent_id": "orchestrator"},
        "aq_agenttype_coding": {"agent_id": "coding"},
        "aq_project_mech_fighters": {"project_id": "mech_fighters", "agent_id": "coding"},
        "aq_project_mech_x2D_fighters": {"project_id": "mech-fighters"},
    }
    for name, ids in names.items():
        assert collection_of("aq_", Scope(company_id="acme", **ids)) == name
    assert owner_of_collection("aq_", "other_system", "acme") is None
    with pytest.raises(Invalid, match="longer than"):
        collection_of("aq_", Scope(company_id="acme", project_id="x" * 300))
