"""The hand-written content fits together."""

from collections import Counter

from memtui.contract import SourceKind
from memtui.demo.content import load
from memtui.pruning.candidates import misleading


def test_every_name_that_the_content_uses_is_one_it_introduces() -> None:
    content = load()
    company = content.company
    projects, issues = set(company.projects), {issue.id for issue in content.issues}
    staff = {agent.id for agent in company.agent} | {person.id for person in company.person}
    assert {issue.project for issue in content.issues} == projects
    assert {comment.by for issue in content.issues for comment in issue.comments} <= staff
    assert {note.project for note in content.notes} == projects
    assert {note.by for note in content.notes} <= staff
    assert {fact.issue for fact in content.facts} - {None} <= issues
    assert {fact.project for fact in content.facts} <= projects
    assert {poison.project for poison in content.poison} <= projects
    assert set(content.queries.project) == projects
    assert {guidance.agent for guidance in content.guidance} <= staff
    assert {name for agent in company.agent for name in agent.projects} == projects
    assert {name for person in company.person for name in person.projects} == projects


def test_names_are_unique() -> None:
    content = load()
    assert max(Counter(issue.id for issue in content.issues).values()) == 1
    assert max(Counter((fact.project, fact.key) for fact in content.facts).values()) == 1
    assert max(Counter(poison.name for poison in content.poison).values()) == 1


def test_a_fact_changes_forwards_in_time() -> None:
    for fact in load().facts:
        days = [day for day, _ in fact.values]
        assert days == sorted(set(days), reverse=True), fact.key


def test_only_one_project_has_a_deploy_branch_and_it_changed() -> None:
    [fact] = [fact for fact in load().facts if fact.key == "deploy_branch"]
    assert [value for _, value in fact.values] == ["main", "release"]


def test_link_templates_cover_every_kind_that_has_a_page() -> None:
    without_page = {SourceKind.MANUAL_NOTE}
    assert set(load().company.link_templates) == set(SourceKind) - without_page


def test_each_poison_is_found_unless_its_secret_is_taken_out() -> None:
    missed = [one.name for one in load().poison if not any(misleading([one.whole]))]
    assert missed == [one.name for one in load().poison if one.redacted]


def test_poison_holds_each_kind_of_hostile_text() -> None:
    text = "\n".join(poison.whole for poison in load().poison)
    for needle in (
        "\x1b[31m", "\x1b]52;", "\x1b]8;;", "\x1b]0;", "\x9b", "\u202e", "\u200b", "[$error]",
        "[/tmp/x]", "[/a", "Ignore previous instructions", "AKIA",
    ):  # fmt: skip
        assert needle in text, needle
    assert any(len(poison.whole) > 10_000 for poison in load().poison)
