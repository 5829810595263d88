"""The plan of what happens."""

from collections import Counter
from datetime import timedelta

from memtui.contract import SourceKind
from memtui.demo.plan import Ask, Edit, HistoryStep, PlannedStep, Write, is_quiet
from memtui.demo.timeline import OUTAGES, timeline
from memtui.demo.work import RUNS


def _written() -> list[Write]:
    return [step.action for step in timeline() if isinstance(step.action, Write)]


def test_the_plan_is_the_same_when_it_is_made_anew() -> None:
    first = timeline()
    timeline.cache_clear()
    assert timeline() == first
    assert timeline() is not first


def test_it_is_in_order_and_ends_at_the_end() -> None:
    spans = [step.ago for step in timeline()]
    assert spans == sorted(spans, reverse=True)
    assert spans[0] == timedelta(days=60)
    assert spans[-1] == timedelta(0)


def test_it_has_every_run_and_every_kind_of_source() -> None:
    assert len({step.scope.run_id for step in timeline()} - {None}) == RUNS
    assert {write.source.kind for write in _written()} == set(SourceKind)


def test_quiet_days_are_quieter() -> None:
    searches = Counter(
        int((step.ago + timedelta(hours=8)) / timedelta(days=1))
        for step in timeline()
        if isinstance(step.action, Ask)
    )
    quiet = [count for day, count in searches.items() if is_quiet(day)]
    busy = [count for day, count in searches.items() if not is_quiet(day)]
    assert sum(quiet) / len(quiet) < 0.6 * sum(busy) / len(busy)


def test_agents_come_in_by_their_doors_and_people_by_theirs() -> None:
    channels = {(step.principal.split(":")[0], step.channel) for step in timeline()}
    assert {("agent", "mcp"), ("agent", "hook"), ("user", "tui"), ("user", "cli")} <= channels
    assert ("agent", "tui") not in channels


def test_nobody_edits_or_traces_what_was_not_written_before() -> None:
    known: set[str] = set()
    for step in timeline():
        if isinstance(step.action, Write):
            known.add(step.action.name)
        if isinstance(step.action, Edit | HistoryStep):
            assert step.action.name in known


def test_errors_are_part_of_the_story_only_where_the_plan_says_so() -> None:
    allowed = [step for step in timeline() if step.may_fail]
    assert 20 < len(allowed) < 80
    assert all(_is_mishap_or_outage(step) for step in allowed)


def _is_mishap_or_outage(step: PlannedStep) -> bool:
    in_outage = any(one.start >= step.ago > one.end - timedelta(minutes=2) for one in OUTAGES)
    return in_outage or step.scope.run_id is None
