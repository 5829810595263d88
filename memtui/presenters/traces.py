"""What came of a memory in words; pure functions for every channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from memtui.contract import OperationType
from memtui.presenters import format as fmt
from memtui.service.history.traces import Certainty, Unknown

if TYPE_CHECKING:
    from memtui.service.history.traces import MemoryTrace, TracedRecord
    from memtui.service.usecases.tracing import TracePlan
    from memtui.store.operation import Operation

CERTAIN = {
    Certainty.RETURNED: "its text came back",
    Certainty.SAME_RUN: "written in a run that was given it",
    Certainty.SAME_AGENT: "only by the same agent",
}
_UNKNOWN = {
    Unknown.HIDDEN: "{} that you may not see; what came of them is not followed",
    Unknown.WITHOUT_RUN: "{} outside any run; only the agent is known",
    Unknown.WITHOUT_TEXT: "{} without a stored text; whether it came back is not known",
    Unknown.HELD: "{} held for review or refused",
    Unknown.UNSETTLED: "{} of unknown outcome",
    Unknown.PURGED: "{} that a purge erased; what came of them is not followed",
    Unknown.GAPS: "{} in which calls of a wrapped server were not logged",
    Unknown.PURGES: "{} that erased values of the log",
    Unknown.IMPORTED: "{} imported, as complete as the other log was",
    Unknown.LOOKS: "{} that listed or summed up records which the log does not name",
    Unknown.UNLISTED: "At least {} of the same agents not listed; memtui trace --limit lists more",
    Unknown.CUT: "{} left out, as there are too many",
}


def certainty(one: TracedRecord) -> str:
    """Return how certain it is that a record came of what was traced, as `1 its text came back`."""
    return f"{one.certainty} {CERTAIN[one.certainty]}" if one.certainty else "traced"


def state(one: TracedRecord) -> str:
    """Return whether the record still has the text, as far as the log knows."""
    if one.is_there:
        return "still stored"
    return "gone" if one.is_gone else f"says something else since #{one.until}"


def spread(one: TracedRecord) -> str:
    """Return how often a record was delivered: `12 runs, 40 times`; empty: never."""
    runs, times = fmt.counted(len(one.runs), "run"), fmt.counted(one.deliveries, "time")
    return f"{runs}, {times}" if one.deliveries else ""


def summary(trace: MemoryTrace) -> str:
    """Return how much came of it, by certainty."""
    counts = Counter(one.certainty for one in trace.records if one.certainty)
    parts = [f"{fmt.count(counts[one])} {words}" for one, words in CERTAIN.items() if counts[one]]
    came = ": ".join(filter(None, [fmt.counted(counts.total(), "write"), ", ".join(parts)]))
    return f"{came}. {fmt.counted(trace.runs, 'run')} got it or what came of it."


def unknown(counts: Mapping[Unknown, int], gaps: Sequence[Operation] = ()) -> Iterator[str]:
    """Yield what the log cannot know of a trace, or what is left out, and what it lacks."""
    for why, count in counts.items():
        yield f"{_UNKNOWN[why].format(fmt.counted(count, 'operation'))}."
    for one in gaps:
        is_gap = one.operation_type is OperationType.GAP
        erased = f"a purge erased what was written at {one.started_at:%Y-%m-%d %H:%M} UTC"
        yield f"#{one.seq}: {one.error_message or 'calls were not logged' if is_gap else erased}"


def planned(plan: TracePlan) -> Iterator[str]:
    """Yield how many records a plan would change, and how many others there are, by reason."""
    where = " and ".join(plan.records) or "any binding"
    yield f"{fmt.counted(sum(map(len, plan.records.values())), 'record')} of {where}"
    for why, left in plan.left.items():
        yield f"Left out: {fmt.counted(left, 'record')}, {why}"
