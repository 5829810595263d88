"""Statements that exclude each other are found, and others are not: the labelled pairs."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from memtui.pruning.claims import Claim
from memtui.pruning.signs import disagreeing, otherwise


def pairs_of(name: str) -> list[tuple[str, ...]]:
    """Return the labelled pairs of a file: a memory, another one, and x if it says otherwise."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    return [tuple(line.split(" | ")) for line in lines if not line.startswith("#")]


PAIRS, FRESH = pairs_of("otherwise_pairs.txt"), pairs_of("otherwise_pairs_fresh.txt")
HALVES = [[one for one in PAIRS if zlib.crc32(one[0].encode()) % 2 == half] for half in (0, 1)]
PRECISION, RECALL = 0.9, 0.6


def is_found(known: str, said: str) -> bool:
    return otherwise(Claim(known), Claim(said)) is not None


@pytest.mark.parametrize("pairs", [*HALVES, FRESH], ids=["development", "held-out", "fresh"])
def test_contradictions_of_the_labelled_pairs_are_found(pairs: list[tuple[str, ...]]) -> None:
    wrong = [one for one in pairs if one[2] == "x"]
    found = [one for one in pairs if is_found(*one[:2])]
    right = [one for one in found if one in wrong]
    assert 100 <= len(pairs) <= 2 * (len(pairs) - len(wrong)) + 4
    assert len(right) >= PRECISION * len(found), [one for one in found if one not in right]
    assert len(right) >= RECALL * len(wrong), [one for one in wrong if one not in found]


def test_a_contradiction_is_found_whichever_of_the_two_is_later() -> None:
    """The tests of the words of prose are not symmetric, so only facts are turned around."""
    facts = [one for one in PAIRS if Claim(one[0]).fact]
    assert [is_found(*one[:2]) for one in facts] == [is_found(*one[1::-1]) for one in facts]


@pytest.mark.parametrize("verdict", ["x", "="])
def test_the_review_finds_in_a_longer_text_what_the_prune_finds(verdict: str) -> None:
    for known, said, _ in [one for one in PAIRS if one[2] == verdict]:
        text = f"{'Nothing of it is here. ' * 3}{said}\nBye."
        other, disagrees = disagreeing([text], ["Lunch is at noon", known])
        assert not other
        assert disagrees >= is_found(known, said), "the review compares more places of a sentence"
        assert verdict == "x" or disagrees == is_found(known, said)


def test_what_is_told_names_both_values() -> None:
    note, fact = Claim("Deploys happen from main."), Claim("deploy_branch: release")
    assert otherwise(fact, note) == "says “main” where this one says “release”"
    assert otherwise(note, fact) == "says “release” where this one says “main”"
    assert otherwise(fact, Claim("deploy_branch: main")) is None


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ("deploy_branch: release", "Deploys come from release. CI refuses a deploy from main."),
        ("line_length: 100", "Picked up ISS-4. Removed 23 lines and added fewer."),
        ("lock_timeout: 2s", "Migration locked the invoices table for 6 minutes."),
        ("payment_provider: Kassandra Pay", "The payment provider retries after 10 s."),
    ],
)
def test_reports_of_work_and_texts_that_agree_exclude_nothing(fact: str, said: str) -> None:
    assert not is_found(fact, said)


def test_a_sentence_about_a_part_excludes_nothing_of_the_whole() -> None:
    assert is_found("coverage_threshold: 85%", "CI fails below 70% coverage.")
    assert not is_found("coverage_threshold: 85%", "The payments module has 92% coverage.")
    assert is_found("Prefer composition over inheritance.", "Prefer inheritance over composition.")


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("python: 3.11", "Tests also run on Python 3.12 and 3.13."),
        ("Never amend a pushed commit.", "Amend the commit before you push it."),
        ("Ana likes tea.", "Ana likes coffee too."),
        ("code_owner: Ana", "The code owner approves in GitHub."),
    ],
)
def test_what_is_added_or_limited_excludes_nothing(known: str, said: str) -> None:
    assert not is_found(known, said)
