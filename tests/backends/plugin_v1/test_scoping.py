from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memtui.backends.plugin_v1.config import (
    NamespaceMap,
    PluginConfig,
    Templates,
    decode,
    encode,
    is_namespace,
    kind_of,
)
from memtui.contract import Invalid, Scope

MAP = NamespaceMap(Templates(), "acme")
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def scope(**fields: str) -> Scope:
    return Scope(company_id="acme", **fields)


@given(ids)
def test_an_id_is_written_reversibly(text: str) -> None:
    assert decode(encode(text)) == text
    name = MAP.target(scope(project_id=text))
    assert is_namespace(name)
    assert MAP.ids_of(name) == {"project_id": text}


@given(ids, ids)
def test_two_ids_are_two_namespaces(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) == (one == other)


def test_plain_ids_stay_as_they_are() -> None:
    assert MAP.target(scope(project_id="my_app-2.0")) == "workspace:my_app-2.0"
    assert MAP.target(scope(project_id="a:b")) == "workspace:a:3Ab"


def test_the_narrowest_part_takes_what_is_written() -> None:
    assert MAP.target(scope(project_id="web", agent_id="c", subject_id="s")) == "workspace:web"
    assert MAP.target(scope(agent_id="c", subject_id="s")) == "team:c"
    assert MAP.target(scope(subject_id="s", run_id="r")) == "user:s"
    assert MAP.target(scope(run_id="r")) == "org:acme"


def test_a_scope_reads_its_own_and_the_companys() -> None:
    asked = scope(project_id="web", agent_id="c")
    assert MAP.readable(asked, wider=True) == ("workspace:web", "team:c", "org:acme")
    assert MAP.readable(asked, wider=False) == ("workspace:web", "team:c")
    assert MAP.readable(scope(), wider=False) == ("org:acme",)


def test_templates_of_several_companies() -> None:
    templates = Templates(project="workspace:{company_id}.{project_id}", agent=None)
    shared = NamespaceMap(templates, "acme")
    assert shared.target(scope(project_id="web")) == "workspace:acme.web"
    assert shared.ids_of("workspace:acme.web") == {"project_id": "web"}
    assert shared.ids_of("workspace:other.web") == {}
    assert shared.target(scope(agent_id="c")) == "org:acme"


@pytest.mark.parametrize("name", ["workspace:a:b", "workspace:a:3a", "plugin:x", "workspace:a:FF"])
def test_a_strangers_namespace_is_of_no_scope(name: str) -> None:
    assert MAP.ids_of(name) == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("workspace:a", "workspace"), ("team:a", "team"), ("org:a", "org"), ("user:a", "custom")],
)
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize("project_id", ["x" * 300, "", "é" * 60, "\ud800"])
def test_an_id_that_makes_no_namespace_is_refused(project_id: str) -> None:
    with pytest.raises(Invalid):
        MAP.target(scope(project_id=project_id))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"url": "http://a", "uds": "/b"},
        {"url": "ftp://a"},
        {"url": "http://"},
        {"url": "http://user:secret@host"},
        {"url": "http://host/?x=1"},
        {"url": "http://a", "namespaces": ["Workspace:a"]},
        {"url": "http://a", "namespaces": ["a:" + "x" * 255]},
        {"url": "http://a", "templates": {"project": "workspace:fixed"}},
        {"url": "http://a", "templates": {"project": "workspace:{project_id}{project_id}"}},
        {"url": "http://a", "templates": {"project": "work space:{project_id}"}},
        {"url": "http://a", "templates": {"project": "{project_id}"}},
        {"url": "http://a", "templates": {"agent": "team:{agent_id}:{run_id}"}},
        {"url": "http://a", "timeout_seconds": 0},
        {"url": "http://a", "unknown": 1},
    ],
    ids=str,
)
def test_a_config_that_does_not_fit(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PluginConfig.model_validate(config)
