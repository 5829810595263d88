from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.vault.layout import (
    Area,
    decode_name,
    encode_name,
    folder_for,
    place_of,
    sees,
    split_id,
)
from memtui.contract import Invalid, Scope


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_an_id_is_one_safe_name_and_comes_back(value: str) -> None:
    try:
        name = encode_name(value, "project")
    except Invalid:
        assert len(value.encode()) > 60
        return
    assert decode_name(name) == value
    assert "/" not in name
    assert "\0" not in name
    assert not name.startswith(".")
    path = f"projects/{name}/memory/x.md"
    assert place_of(path).project_id == value


@pytest.mark.parametrize("value", ["", "x" * 201, "é" * 101, "\ud800"])
def test_an_id_that_no_folder_can_have(value: str) -> None:
    with pytest.raises(Invalid):
        encode_name(value, "project")


@pytest.mark.parametrize(
    ("ids", "folder"),
    [
        ({}, "system"),
        ({"project_id": "p", "subject_id": "s", "agent_id": "a"}, "projects/p"),
        ({"subject_id": "s", "agent_id": "a"}, "users/s"),
        ({"agent_id": "a"}, "agent-types/a"),
        ({"agent_id": "orchestrator"}, "orchestrator"),
        ({"project_id": "../x"}, "projects/%2E.%2Fx"),
        ({"run_id": "r"}, "system"),
    ],
)
def test_folder_of_a_scope(ids: dict[str, str], folder: str) -> None:
    assert folder_for(Scope(company_id="c", **ids)) == folder


@pytest.mark.parametrize(
    ("path", "area", "kind"),
    [
        ("system/memory/a.md", Area.SYSTEM, "note"),
        ("orchestrator/facts.md", Area.ORCHESTRATOR, "fact"),
        ("agent-types/coding/memory/guidance/a.md", Area.AGENT, "guidance"),
        ("projects/p/notes/deep/a.md", Area.PROJECT, "note"),
        ("projects/p/references/a.md", Area.PROJECT, "reference"),
        ("projects/p/overrides/coding.md", Area.PROJECT, "override"),
        ("projects/p/notes.md", Area.PROJECT, "note"),
        ("projects/p/memory/facts.md", Area.PROJECT, "note"),
        ("users/ana/facts.md", Area.USER, "fact"),
        ("projects/readme.md", Area.COMPANY, "note"),
        ("facts.md", Area.COMPANY, "note"),
        ("system.md", Area.COMPANY, "note"),
        ("Journal/2026/a.md", Area.COMPANY, "note"),
    ],
)
def test_what_a_path_says(path: str, area: Area, kind: str) -> None:
    place = place_of(path)
    assert (place.area, place.kind) == (area, kind)


def test_a_fact_id_is_split_and_a_note_is_not() -> None:
    assert split_id("projects/p/facts.md#CI/CD/a#b") == ("projects/p/facts.md", "CI/CD/a#b")
    assert split_id("facts.md#x") == ("facts.md#x", None)
    assert split_id("projects/p/memory/a.md") == ("projects/p/memory/a.md", None)


def test_nobody_is_not_somebody_of_that_name() -> None:
    nobody, named = Scope(company_id="c"), Scope(company_id="c", subject_id="None")
    assert not sees(named, Area.SYSTEM, nobody)
    assert sees(named, Area.USER, named)
