from __future__ import annotations

import importlib.metadata
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from memtui.contract import Adapter, Invalid
from memtui.service.providers import GROUP, Providers
from tests.service.fake import FakeAdapter


def installed(monkeypatch: pytest.MonkeyPatch, **values: str) -> Providers:
    entries = [EntryPoint(name, value, GROUP) for name, value in values.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    return Providers()


def test_the_vault_is_installed() -> None:
    assert "vault" in Providers().names()
    loaded = Providers().load("vault")
    assert issubclass(loaded, Adapter)
    assert loaded.key == "vault"


def test_the_stand_in_of_the_demo_is_offered_in_the_demo_alone() -> None:
    assert set(Providers(is_demo=True).names()) - set(Providers().names()) == {"demo-hosted"}


def test_every_installed_provider_loads_under_its_own_name() -> None:
    registry = Providers(is_demo=True)
    for name in registry.names():
        assert registry.load(name).key == name


def test_names_load_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = installed(monkeypatch, beta="no.such.module:X", alpha="neither.this:Y")
    assert registry.names() == ["alpha", "beta"]
    assert "no" not in sys.modules


def test_a_class_may_be_added_and_wins() -> None:
    registry = Providers({"vault": FakeAdapter, "fake": FakeAdapter})
    assert registry.load("vault") is FakeAdapter
    assert "fake" in registry.names()


def test_a_misspelled_key_is_named_before_the_one_that_is_missing_for_it() -> None:
    with pytest.raises(Invalid, match="at pth: it is not known; its keys are: path"):
        Providers().check_config("instructions", {"pth": "/tmp"})


def test_an_entry_point_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = installed(monkeypatch, fake="tests.service.fake:FakeAdapter")
    assert registry.load("fake") is registry.load("fake") is FakeAdapter


def test_an_unknown_provider_is_answered_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = installed(monkeypatch, fake="tests.service.fake:FakeAdapter")
    with pytest.raises(Invalid, match="There is no provider nobodys; the providers are: fake"):
        registry.load("nobodys")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import surely_not_installed\n", "does not import .*surely_not_installed"),
        ("raise RuntimeError('half installed')\n", "does not import .*half installed"),
        ("this is not python\n", "does not import"),
        ("", "does not import .*MyAdapter"),
        ("MyAdapter = 3\n", "is not a memtui Adapter"),
        ("class MyAdapter: ...\n", "is not a memtui Adapter"),
    ],
)
def test_a_strangers_broken_package_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "strange_package.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "strange_package", raising=False)
    registry = installed(monkeypatch, strange="strange_package:MyAdapter")
    with pytest.raises(Invalid, match=f"provider strange {message}") as caught:
        registry.load("strange")
    assert "\n" not in str(caught.value)
