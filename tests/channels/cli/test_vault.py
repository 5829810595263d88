"""`vault sync`, `conflicts` and `resolve`."""

from __future__ import annotations

import pytest

from tests.channels.cli.conftest import HOSTILE, Run, assert_harmless

_FACT = ("--project", "web", "--kind", "fact", "--mode", "upsert")


@pytest.fixture
def vaults(here: Run) -> Run:
    """Two vaults, of which the first has two facts and a note that tries to harm a terminal."""
    assert here("bindings", "add", "copy", "vault").code == 0
    for text in ("region: eu", "branch: main"):
        assert here("note", text, *_FACT).code == 0
    assert here("note", f"hostile {HOSTILE}".replace("\x00", "")).code == 0
    return here


def test_conflicts_are_told_and_decided(vaults: Run) -> None:
    planned = vaults("vault", "sync", "copy", "--vault", "default", "--dry-run")
    assert planned.out.endswith("copy: 3 records would be written\n")
    done = vaults("vault", "sync", "copy", "--vault", "default", "--json")
    assert (done.code, done.document["written"]) == (0, {"copy": 3})
    assert vaults("vault", "conflicts", "copy").out == "nothing changed on both sides\n"
    vaults("note", f"region: a {HOSTILE}".replace("\x00", ""), *_FACT)
    vaults("note", "region: b", *_FACT, "--binding", "copy")
    told = vaults("vault", "conflicts", "copy", "--vault", "default")
    assert told.code == 1
    assert "region: b" in told.out
    assert_harmless(told.out)
    [found] = vaults("vault", "conflicts", "copy", "--json").document["conflicts"]
    assert found["what"] == "changed on both sides"
    name = found["records"][0]["handle"]["provider_record_id"]
    assert vaults("vault", "sync", "copy").code == 1
    decided = vaults("vault", "resolve", "copy", name, "--keep", "copy")
    assert (decided.code, decided.out) == (0, "default: 1 record changed\n")
    assert vaults("vault", "sync", "copy").code == 0
    assert "region: b" in vaults("facts", "list", "--project", "web").out


def test_the_intent_of_a_query_orders_its_answer(here: Run) -> None:
    texts = ["wombat wombat", "a wombat told in some more words", "a wombat in its burrow"]
    for text, more in zip(texts, ([], ["--pin"], ["--tag", "rule"]), strict=True):
        assert here("note", text, "--project", "web", *more).code == 0

    def found(intent: str, *more: str) -> list[str]:
        asked = ("query", "wombat", "--project", "web", "--intent", intent, *more, "--json")
        return [one["text"] for one in here(*asked).document["snippets"]]

    first, pinned, rule = texts
    assert found("answer")[0] == first
    assert found("browse") == [rule, pinned, first]
    assert found("agent_preamble") == [pinned, rule, first]
    assert found("agent_preamble", "--max-tokens", "8") == [pinned]


def test_wrong_words_are_one_sentence(vaults: Run) -> None:
    own_id = vaults("note", "a note", "--record-id", "mine")
    assert "default gives ids of its own, so it is not stored as mine." in own_id.err
    assert vaults("bindings", "add", "locked", "facts").code == 0
    assert vaults("bindings", "read-only", "locked", "on").code == 0
    own = ("--vault", "default")
    for words, code, told in (
        (["sync", "nope", *own], 1, "no binding nope"),
        (["sync", "copy", "--vault", "copy"], 2, "name two bindings"),
        (["sync", "locked"], 2, "2 vaults: copy, default; name one with --vault"),
        (["sync", "locked", *own], 4, "The binding locked is read-only"),
        (["sync", "locked", *own, "--dry-run"], 4, "The binding locked is read-only"),
        (["sync", "copy", "--watch", "--dry-run"], 2, "--watch goes without"),
        (["sync", "copy", "--rebuild", "--delete", "1"], 2, "leave out --delete"),
        (["sync", "copy", "--delete", "2"], 2, "held back is 0, not 2"),
        (["sync", "other/copy", *own], 4, "another company"),
        (["resolve", "copy", "x", "--keep", "copy"], 1, "`memtui vault conflicts copy` lists"),
        (["resolve", "copy", "x", "--keep", "nope"], 2, "nope is no version to keep"),
        (["resolve", "copy", "x"], 2, "--keep"),
    ):
        ran = vaults("vault", *words)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (code, "", 1), (words, ran)
        assert told in ran.err
