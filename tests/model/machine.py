"""What people and agents do, drawn at random; what fails is shrunk to the fewest steps.

hypothesis prints them as calls of the same names as `World` has, to be replayed as they stand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.model.later import LaterAdapter
from tests.model.world import BINDINGS, PEOPLE, PLACES, PROVIDERS, World

TEXTS = ("port: 5432", "port: 6000", "We deploy from main", "Never on Fridays", "Tabs, not spaces")
placed = st.sampled_from([(company, key) for company, keys in BINDINGS.items() for key in keys])
hours = st.sampled_from((1, 1, 2, 5, 24))
nths = st.integers(0, 5)
whos = st.sampled_from(("ana", "ana", "ana", *PEOPLE))
issues = st.sampled_from((None, "I-1", "I-2"))
everywhere = st.sampled_from(tuple(PLACES))
companies = st.sampled_from(tuple(BINDINGS))
TARGETS = (("company", ""), ("agent", "coding"), ("agent", "scout"), ("project", "web"),
           ("binding", "one"))  # fmt: skip
ENDS = ("stored", "stored", "stored", "stored, lost", "nothing", "failed", "open", "lost")
ACTIONS = ("warn", "no-search", "read-only", "read-only", "refuse", "refuse")


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    """Return one of the values, or None for nothing, half of the time."""
    return st.none() | st.sampled_from(values)


NEW: dict[str, Any] = {
    "title": maybe("A title", "Ports"),
    "metadata": maybe({"origin": "a chat"}, {"weight": 2}),
    "summary": maybe("In short", "Shorter"),
    "topic": maybe("Ops", "Style"),
    "tags": maybe(("a",), ("a", "b"), ("ops/oncall",), ()),
    "pinned": maybe(True),
    "expires": maybe(1, 2, 24),
}
CHANGED: dict[str, Any] = {
    "topic": NEW["topic"],
    "tags": NEW["tags"],
    "text": maybe(*TEXTS),
    "summary": maybe("In short", "Longer", ""),
    "pinned": maybe(True, False),
    "expires": maybe(0, 1, 2, 24),
}


def machine_for(provider: str, make: Callable[[str], World]) -> type[RuleBasedStateMachine]:  # noqa: C901 - a rule is no branch
    """Return the state machine of a provider: it draws no field that this one refuses."""
    known = PROVIDERS[provider]
    new = {name: one for name, one in NEW.items() if name in known.takes}
    changed = {name: one for name, one in CHANGED.items() if name in known.corrects}

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.world = make(provider)

        @rule(hours=hours)
        def wait(self, hours: int) -> None:
            self.world.wait(hours)

        @rule(
            at=placed, place=st.sampled_from(known.places), text=st.sampled_from(TEXTS), who=whos,
            kind=st.sampled_from(known.kinds), issue=issues, **new,
        )  # fmt: skip
        def write(self, **asked: Any) -> None:
            self.world.write(**asked)

        @rule(at=placed, nth=nths, who=whos, issue=issues, stale=st.booleans(),
              place=maybe(*PLACES), **changed)  # fmt: skip
        def correct(self, **asked: Any) -> None:
            self.world.correct(**asked)

        @rule(at=placed, nths=st.lists(nths, min_size=1, max_size=4), who=whos,
              place=maybe(*PLACES))  # fmt: skip
        def forget(self, **asked: Any) -> None:
            self.world.forget(**asked)

        @rule(at=placed, nths=st.lists(nths, min_size=1, max_size=3), who=whos)
        def hold(self, **asked: Any) -> None:
            if known.key != LaterAdapter.key:
                self.world.hold(**asked)

        @rule(company=companies, nth=st.integers(0, 3), part=st.lists(nths, max_size=2))
        def undo(self, **asked: Any) -> None:
            self.world.undo(**asked)

        @rule(
            at=placed, place=everywhere, who=whos, hours=maybe(1, 2, 25), newest=st.booleans(),
            tag=maybe("a", "ops"), topic=maybe("Ops"), issue=maybe("I-1"), kind=maybe("fact"),
            since=maybe(1, 2), until=maybe(1, 2), owners=maybe(["web"], ["user cy", "company"]),
            just=st.booleans(),
        )  # fmt: skip
        def check_list(self, **asked: Any) -> None:
            self.world.check_list(**asked)

        @rule(at=placed, place=everywhere, who=whos, word=st.sampled_from(("port", "Tabs")),
              hours=maybe(1, 2, 25), owners=maybe(["web"], ["user cy", "company"]))  # fmt: skip
        def check_query(self, **asked: Any) -> None:
            self.world.check_query(**asked)

        @rule(company=companies, binding=st.sampled_from(("one", "two")))
        def review(self, **asked: Any) -> None:
            if known.key != LaterAdapter.key:  # what is accepted there waits for its end
                self.world.review(**asked)

        @rule(company=companies, of=st.sampled_from(TARGETS), most=maybe(1, 100, 1_000),
              period=st.sampled_from(("day", "month")), action=st.sampled_from(ACTIONS),
              who=st.sampled_from(("ana", "ana", "cy", "scout")))  # fmt: skip
        def limit(self, company: str, of: tuple[str, str], **asked: Any) -> None:
            self.world.limit(company, *of, **asked)

        @rule(at=placed, place=everywhere, tokens=st.sampled_from((60, 600)), who=whos)
        def spend(self, **asked: Any) -> None:
            self.world.spend(**asked)

        @rule(company=companies)
        def agree_by_two(self, company: str) -> None:
            self.world.agree_by_two(company)

        @rule(at=placed, who=st.sampled_from(("ana", "zed", "scout")))
        def capture(self, **asked: Any) -> None:
            self.world.capture(**asked)

        @rule(company=companies, nth=st.integers(0, 3), who=st.sampled_from(("ana", "zed", "bo")))
        def undo_setting(self, **asked: Any) -> None:
            self.world.undo_setting(**asked)

        @rule(company=companies, nth=nths, who=whos,
              how=st.sampled_from(("accept", "accept", "refuse", *TEXTS[2:4])))  # fmt: skip
        def decide(self, **asked: Any) -> None:
            self.world.decide(**asked)

        @rule(at=placed, place=everywhere, who=whos, hours=hours)
        def check_changes(self, **asked: Any) -> None:
            self.world.check_changes(**asked)

        @rule(company=companies, place=st.sampled_from(tuple(PLACES)[1:]), who=whos,
              prompt=st.sampled_from(("port", "Tabs")))  # fmt: skip
        def check_context(self, **asked: Any) -> None:
            self.world.check_context(**asked)

        @rule(company=companies, at=placed, nth=nths, subject=maybe("cy", "ana"),
              project=maybe("web", "api"))  # fmt: skip
        def purge(self, company: str, at: Any, nth: int, **owner: Any) -> None:
            if owner["subject"]:
                self.world.purge(company, subject=owner["subject"])
            elif owner["project"]:
                self.world.purge(company, project=owner["project"])
            else:
                self.world.purge(at[0], at=at, nth=nth)

        @rule(company=companies, issue=st.sampled_from(("I-1", "I-2")))
        def purge_source(self, **asked: Any) -> None:
            if known.key != LaterAdapter.key:
                self.world.purge_source(**asked)

        @rule(company=companies)
        def sync(self, company: str) -> None:
            self.world.sync(company)

        @rule(company=companies)
        def migrate(self, company: str) -> None:
            self.world.migrate(company)

        if known.key == LaterAdapter.key:

            @rule(at=placed, place=everywhere, nth=nths, by=whos, who=whos,
                  ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=4))  # fmt: skip
            def end(self, at: Any, place: str, by: str, ends: list[str], **asked: Any) -> None:
                for how in ends:
                    self.world.write(at, place, TEXTS[0], who=by)
                    self.world.end(at[0], how=how, **asked)

            @rule(company=companies, nth=nths, who=whos)
            def undo_later(self, **asked: Any) -> None:
                self.world.undo_later(**asked)

        def teardown(self) -> None:
            try:
                if sys.exc_info()[0] is None:  # else a step has failed
                    self.world.check()
            finally:
                self.world.close()

    return Machine
