"""`doctor --secrets`: what was stored before a rule of redaction knew it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memtui.service import recorder
from tests.channels.cli.conftest import Run
from tests.service.fake import FakeAdapter

OLD = "hv" + "s.CAESIJ4kq7Zt4mK9xW2vB8nRq7Zt4mK9xW2vB8nR"


def test_a_home_without_secrets_has_none(here: Run, fake: type[FakeAdapter]) -> None:
    assert here("note", "Releases are cut on Thursdays", "--json").code == 0
    found = here("doctor", "--secrets", "--json")
    assert (found.code, found.document) == (0, {"ok": True, "secrets": []})


def test_a_stored_secret_is_named_by_its_place_and_never_told(
    here: Run, fake: type[FakeAdapter], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("memtui.service.operations.memories.redact_json", lambda value: (value, ()))
        earlier.setattr(recorder, "redact_json", lambda value: (value, ()))
        record = here("note", f"the vault opens with {OLD}", "--project", "p", "--json").document
        [handle] = record["handles"]
        assert here("forget", handle["provider_record_id"], "--project", "p", "--yes").code == 0
        assert here("note", f"it opens with {OLD}", "--project", "p", "--json").code == 0
    (home / "session.json").write_text(json.dumps({"query": OLD}))

    ran = here("doctor", "--secrets", "--json")

    assert ran.code == 1
    assert OLD not in ran.out + ran.err
    places = {one["place"] for one in ran.document["secrets"]}
    assert places == {"operation log", "undo journal", "binding default", "file"}
    assert all(one["labels"] == ["VAULT_TOKEN"] for one in ran.document["secrets"])
    lines = here("doctor", "--secrets")
    assert "✗ file, " in lines.out
    assert OLD not in lines.out
