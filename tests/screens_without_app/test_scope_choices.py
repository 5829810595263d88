from __future__ import annotations

from memtui.contract import Scope
from memtui.screens.dialogs import Choice, matching
from memtui.screens.palette import best
from memtui.screens.scope_choices import ScopeStep, offered, scope_choices
from memtui.service import CompanyView

HERE = Scope(company_id="acme", project_id="p", run_id="4412")


def test_what_is_set_can_be_taken_away_first() -> None:
    first, second, whole, *_ = scope_choices(HERE, [], [], {})
    assert first.value.applied_to(HERE) == Scope(company_id="acme", run_id="4412")
    assert second.value.applied_to(HERE) == Scope(company_id="acme", project_id="p")
    assert whole.value.applied_to(HERE) == Scope(company_id="acme")


def test_known_values_appear_once_and_narrow() -> None:
    seen = [Scope(company_id="acme", agent_id=agent) for agent in ("coding", "review", "coding")]
    choices = scope_choices(Scope(company_id="acme"), [], seen, {})
    assert [one.label for one in choices] == ["coding", "review"]
    assert matching(choices, "agent rev")[0].value.applied_to(HERE).agent_id == "review"


def test_figures_of_long_and_short_names_lie_below_each_other() -> None:
    figures = {Scope(company_id="acme", project_id=name): (1, 20) for name in ("web", "billing")}
    choices = scope_choices(Scope(company_id="acme"), [], [], figures)
    assert [one.label for one in choices] == [
        "web      1 of 20 could go",
        "billing  1 of 20 could go",
    ]


def test_another_company_drops_what_is_narrower() -> None:
    other = CompanyView(company_id="other", name="Other")
    here = CompanyView(company_id="acme", name="Acme")
    choices = scope_choices(HERE, [here, other], [], {})
    assert [one.value for one in choices if one.detail == "company"] == [ScopeStep(None, "other")]
    assert ScopeStep(None, "other").applied_to(HERE) == Scope(company_id="other")


def test_a_written_value_is_offered_for_each_sort_or_for_the_one_named() -> None:
    assert len(offered("x")) == 5
    assert [one.value for one in offered("run:4412")] == [ScopeStep("run_id", "4412")]
    assert len(offered("a:b")) == 5


def test_a_command_is_found_by_its_letters_and_by_words_of_what_it_does() -> None:
    commands = [
        Choice(1, "Bindings: settings", sentence="Change the settings of this company."),
        Choice(2, "Company: Acme", sentence="Go to this company."),
        Choice(3, "Everywhere: help", sentence="Show every key."),
    ]
    assert [one.value for one in best(commands, "company")] == [2, 1]
    assert [one.value for one in best(commands, "hlp")] == [3]
    assert best(commands, "nothing") == []


def test_a_name_typed_wrong_offers_the_one_that_is_near() -> None:
    seen = [Scope(company_id="acme", project_id=name) for name in ("mech-fighters", "infra")]
    choices = scope_choices(Scope(company_id="acme"), [], seen, {})
    first, *written = offered("mech-figters", choices)
    assert (first.label, len(written)) == ("mech-fighters", 5)
    for text in ("mech", "Infra"):
        assert len(offered(text, choices)) == 5  # the list shows it already
