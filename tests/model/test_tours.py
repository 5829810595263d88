"""Programs that the model is always put through: the second of each thing, and what is left.

A program that the state machine has shrunk is added here as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.model.later import LaterAdapter
from tests.model.world import PLACES, PROVIDERS, At, Make, World

ONE, TWO = ("acme", "one"), ("acme", "two")
OPEN, OTHER = ("bolt", "one"), ("bolt", "two")

Tour = Callable[[World], None]


def second_of_each(world: World) -> None:
    """Several owners, equal ids in two bindings, and several records at once."""
    for at in (ONE, TWO, OPEN):
        for place in ("web", "api", "user ana", "web, cy"):
            world.write(at, place, "port: 5432", issue="I-1", tags=("a", "b"))
    world.wait(1)
    for place in ("web", "web", "user ana"):
        world.write(ONE, place, f"We deploy from {place}", who="ana", topic="Ops")
    world.wait(1)
    world.correct(ONE, 0, tags=("b",), issue="I-2")
    world.correct(ONE, 0, topic="Style")
    world.forget(ONE, [0, 1, 3, 4, 5], place="company")
    world.wait(1)
    world.undo("acme", part=[0])
    world.check()
    world.undo("acme", 1)
    world.undo("acme", 1)
    world.undo("acme", 1)
    world.wait(1)
    world.correct(ONE, 1, text="port: 6000", who="bo")
    world.undo("acme", 1)
    world.wait(1)
    world.undo("acme")
    world.check()


def every_field(world: World) -> None:
    """Pins, summaries, topics, tags and ends, each changed by itself and taken back."""
    fields = world.providers["one"].corrects
    kind = "note" if "note" in world.providers["one"].kinds else "fact"
    world.write(ONE, "web", "We deploy from main", kind=kind)
    world.write(ONE, "web", "Never on Fridays", kind=kind)
    changes: dict[str, Any] = {
        "summary": "In short", "topic": "Ops", "tags": ("ops/oncall", "a"), "pinned": True,
        "expires": 3, "text": "We deploy from release",
    }  # fmt: skip
    for name, value in changes.items():
        if name in fields:
            world.wait(1)
            world.correct(ONE, 0, **{name: value})
            world.check_changes(ONE, "web", "ana", 1)
    for _ in fields:
        world.undo("acme")
    world.wait(5)
    world.check()


def waits_for_a_person(world: World) -> None:
    """Two requests, of two records, of two owners; alike but for their tags."""
    for at in (OPEN, ONE):
        world.write(at, "web", "Never on Fridays", who="ana")
        world.write(at, "api", "Tabs, not spaces", who="ana")
        world.review(at[0], "one")
    world.wait(1)
    for tags in (("a",), ("b",), ("b",)):
        world.write(OPEN, "web", "We deploy from main", who="coding", tags=tags)
    world.forget(OPEN, [0, 1], who="scout", place="company")
    world.forget(ONE, [0, 1], who="scout", place="company")
    world.correct(ONE, 0, who="scout", text="Always on Fridays", tags=("a",))
    world.check()
    world.decide("acme", 0, "accept", who="bo")
    world.correct(OPEN, 1, tags=("changed",))
    world.decide("bolt", 2, "accept")
    world.decide("bolt", 0, "accept")
    world.decide("acme", 1, "Sometimes on Fridays", who="bo")
    world.decide("acme", 0, "refuse")
    world.check()


def held_from_agents(world: World) -> None:
    """Several records, held once and again, by whom who may; changed, decided on, taken back."""
    for at in (OPEN, ONE):
        world.write(at, "web", "Never on Fridays")
        world.write(at, "web", "port: 5432", who="scout")
        world.write(at, "user cy", "port: 6000", who="cy")
        world.wait(1)
        world.hold(at, [0, 1], who="bo")
        world.hold(at, [1, 2], who="cy")
        world.hold(at, [0], who="coding")
        world.hold(at, [0, 1, 2])
        world.check()
        for who in ("coding", "scout"):
            world.correct(at, 0, who=who, text="Always on Fridays")
            world.forget(at, [1, 2], who=who)
            world.write(at, "web", "port: 7000", who=who)
        world.wait(1)
        world.correct(at, 0, text="Sometimes on Fridays")
        for nth, how in enumerate(("accept", "refuse", "accept")):
            world.decide(at[0], nth, how)
            world.check()
        for nth in range(4):
            world.undo_setting(at[0], nth)
            world.undo(at[0], nth)
            world.check()
        world.review(at[0], "one")
        world.correct(at, 1, who="scout", text="We deploy from main")
        world.forget(at, [0, 1], who="coding")
        world.check()


def owners_of_what_waits(world: World) -> None:
    """Who sees all owners of what waits, and may change the first alone, does not decide."""
    world.write(ONE, "web", "Never on Fridays")
    world.write(ONE, "agent scout", "Tabs, not spaces")
    world.review("acme", "one")
    world.forget(ONE, [0, 1], who="scout", place="company")
    world.decide("acme", 0, "accept", who="bo")
    world.decide("acme", 0, "refuse", who="bo")
    world.decide("acme", 0, "accept")
    world.check()


def rules_read_tags(world: World) -> None:
    world.review("bolt", "one", text="secretly")
    world.write(OPEN, "web", "We deploy from main", who="coding", tags=("secretly",))
    world.write(OPEN, "web", "Never on Fridays", who="coding", topic="secretly")
    world.write(OPEN, "web", "We secretly deploy", who="coding")
    world.write(OPEN, "web", "Tabs, not spaces", who="coding", tags=("a",))
    world.check_queue("bolt")


def limited(world: World) -> None:
    """Whom a passed limit stops, by which scope whoever asks, and until when."""
    for at in (ONE, OPEN):
        world.write(at, "web", "We deploy from main")
        world.write(at, "api", "Tabs, not spaces")
    world.review("bolt", "one", text="Fridays")
    world.write(OPEN, "web", "Never on Fridays", who="coding")
    world.write(OPEN, "api", "Always on Fridays", who="coding")
    world.limit("acme", "project", "web", 100, action="read-only")
    world.limit("bolt", "agent", "coding", 100, action="refuse", period="month")
    world.limit("acme", "company", "", 5_000, action="no-search", who="cy")
    world.limit("acme", "company", "", 5_000, action="no-search")
    world.limit("acme", "company", "", 900, action="warn", who="scout")
    world.spend(ONE, "web", 60, who="cy")
    world.spend(OPEN, "api", 60, who="coding")
    world.check()
    world.spend(ONE, "web", 60, who="ana")
    world.spend(OPEN, "agent coding", 60, who="cy")
    for place in (None, "company", "api"):
        world.correct(ONE, 0, text="Always from main", place=place)
        world.correct(ONE, 0, text="Always from main", place=place, who="scout", stale=True)
    world.write(ONE, "web", "port: 5432", who="bo")
    world.decide("bolt", 0, "accept")
    world.decide("bolt", 1, "refuse")
    world.spend(OPEN, "company", 60, who="coding")
    world.check()
    world.forget(ONE, [0], place="company")
    world.undo("acme")
    world.spend(ONE, "company", 6_000)
    world.spend(ONE, "company", 60)
    world.check()
    world.limit("acme", "project", "web", None)
    world.correct(ONE, 0, text="Always from main", place="company")
    world.undo_setting("acme")
    world.correct(ONE, 0, text="Never from main", place="company")
    world.wait(24)
    world.correct(ONE, 0, text="Never from main", place="company")
    world.spend(OPEN, "web", 60, who="coding")
    world.wait(24 * 7)
    world.decide("bolt", 0, "accept")
    world.check()
    world.undo("bolt")
    world.check_queue("bolt")
    world.undo("bolt")
    world.check()


def agreed_by_two(world: World) -> None:
    """A change of a binding is proposed, accepted, refused, withdrawn, and taken back by two."""
    world.capture(ONE)
    world.agree_by_two("bolt")
    world.agree_by_two("acme")
    for who in ("ana", "scout", "zed", "cy"):
        world.capture(ONE, who=who)
    world.review("acme", "two")
    world.capture(TWO, who="zed")
    world.check()
    for who in ("ana", "bo", "scout", "zed"):
        world.decide("acme", 0, "accept", who=who)
    world.capture(TWO, who="scout")
    world.check()
    world.decide("acme", 0, "accept", who="ana")
    world.decide("acme", 0, "accept", who="zed")
    world.decide("acme", 0, "refuse", who="ana")
    world.undo_setting("acme", who="zed")
    world.decide("acme", 0, "refuse", who="zed")
    world.check()
    world.undo_setting("acme", 1, who="zed")
    world.undo_setting("acme", 2, who="ana")
    world.undo_setting("acme", 2, who="zed")
    world.check()
    world.decide("acme", 0, "accept", who="zed")
    world.decide("acme", 0, "accept", who="ana")
    world.check()


def undone_in_parts(world: World) -> None:
    """Some records of an operation, the rest of it, and each of both again."""
    for at in (ONE, OPEN):
        for place in ("web", "api", "user ana", "web", "api"):
            world.write(at, place, "Never on Fridays", tags=("a",))
        world.wait(1)
        world.forget(at, [0, 1, 2, 3, 4], place="company")
        world.undo(at[0], part=[1, 3])
        world.check()
        world.undo(at[0], 1, part=[0])
        world.undo(at[0], 1, part=[1])
        world.undo(at[0], 3)
        world.undo(at[0], 4)
        world.check()
    world.review("bolt", "one")
    world.forget(OPEN, [0, 1], who="scout", place="company")
    world.decide("bolt", 0, "accept")
    world.undo("bolt", part=[0])
    world.check_queue("bolt")
    world.undo("bolt", 1, part=[0])
    world.check()
    world.undo("bolt", part=[0])
    world.check()


def purged(world: World, *, is_sealed: bool = False) -> None:
    """Nothing is left of a user, a record and a project: not of the second one of each either."""
    for number in range(5):
        world.write(OPEN, "user cy", f"quagga number {number}", tags=("a",))
    world.write(OPEN, "user ana", "okapi by herself", topic="Ops")
    world.write(OTHER, "user ana", "okapi by herself", topic="Ops")
    world.write(OPEN, "web", "a wombat in the web")
    world.write(OTHER, "api", "port: 5432")
    world.correct(OPEN, 1, text="quagga corrected")
    world.forget(OPEN, [2, 3])
    world.review("bolt", "one")
    for text in ("quagga for the first", "quagga for the second"):
        world.write(OPEN, "user cy", text, who="coding", tags=("b",))
        world.correct(OPEN, 0, text=f"{text} time", who="coding")
    world.wait(1)
    world.check_queue("bolt")
    if is_sealed:
        world.seal("bolt")
    world.purge("bolt", subject="cy", gone=["quagga"])
    world.check()
    world.purge("bolt", at=OPEN, nth=0, gone=[])
    world.purge("bolt", project="web", gone=["wombat"])
    world.purge("bolt", subject="ana", gone=["okapi"])
    world.check()


def purged_of_an_issue(world: World) -> None:
    """What was written or corrected from an issue goes from both bindings, and no other record."""
    for at in (OPEN, OTHER):
        for number, issue in enumerate(("I-1", "I-2", None)):
            world.write(at, "web", f"quokka number {number}", issue=issue)
    world.correct(OPEN, 1, text="quokka corrected", issue="I-1")
    world.forget(OTHER, [0])
    world.wait(1)
    world.purge_source("bolt", "I-1")
    world.check()
    assert not any("number 0" in one.text for one in world.companies["bolt"].records.values())
    assert len(world.companies["bolt"].records) == 3
    world.purge_source("bolt", "I-1")
    world.purge_source("bolt", "I-2")
    world.check()


def purged_when_sealed(world: World) -> None:
    """Each purge writes the segments of the log anew; what reads them is slow."""
    purged(world, is_sealed=True)


def kept_in_sync(world: World) -> None:
    """A change of any field goes over, both ways."""
    world.write(OPEN, "web", "We deploy from main", tags=("a",), topic="Ops", expires=24)
    world.write(OPEN, "user ana", "Never on Fridays", pinned=True)
    for place in ("web", "user ana", "api"):
        world.write(OTHER, place, "Tabs, not spaces", tags=("b",))
    world.sync("bolt")
    changes: list[tuple[At, int, dict[str, Any]]] = [
        (OPEN, 0, {"expires": 48}), (OTHER, 1, {"tags": ("changed",)}),
        (OTHER, 0, {"pinned": True}), (OPEN, 2, {"topic": "Style"}),
    ]  # fmt: skip
    for at, nth, change in changes:
        world.wait(1)
        world.correct(at, nth, **change)
        world.sync("bolt")
    world.check()


TOURS: list[Tour] = [
    second_of_each, every_field, waits_for_a_person, held_from_agents, owners_of_what_waits,
    rules_read_tags,
    kept_in_sync, purged, purged_of_an_issue, limited, agreed_by_two, undone_in_parts,
]  # fmt: skip
OF_MILVUS = (second_of_each, every_field)
"""Its tours take the longest."""
OF_THE_SERVICE = (limited, agreed_by_two)
"""Tours of what is decided before a provider is asked: over a folder, a table and a server."""
AT_ONCE = [one for one in PROVIDERS if one != LaterAdapter.key]
RUNS = [
    pytest.param(tour, provider, id=f"{tour.__name__}-{provider}")
    for tour in TOURS
    for provider in AT_ONCE
    if provider != "milvus" or tour in OF_MILVUS
    if provider in {"vault", "facts", "plugin-v1"} or tour not in OF_THE_SERVICE
]  # fmt: skip


@pytest.mark.parametrize(("tour", "provider"), RUNS)
def test_a_tour_ends_as_the_model_says(tour: Tour, provider: str, make: Make) -> None:
    world = make(provider)
    try:
        tour(world)
    finally:
        world.close()


def stored_later(world: World) -> None:
    """A write is open, or lost, or ends; one that was open during a purge may still be stored."""
    at = ("bolt", "one")
    for how in ("stored", "stored, lost", "nothing", "failed", "open", "lost"):
        world.write(at, "user cy", "port: 5432", who="cy")
        world.undo_later("bolt", 0, who="cy")
        world.wait(1)
        world.end("bolt", -1, how, who="cy")
        world.check_list(at, "user cy", "cy")
    world.undo("bolt", 0)
    world.undo("bolt", 0)
    world.purge("bolt", subject="cy")
    world.wait(1)
    world.end("bolt", 0, "stored", who="cy")
    world.check()
    world.purge("bolt", subject="cy")
    world.check()


def test_what_is_stored_later_ends_as_the_model_says(make: Make) -> None:
    test_a_tour_ends_as_the_model_says(stored_later, LaterAdapter.key, make)


def test_nothing_is_left_in_a_sealed_log(make: Make) -> None:
    test_a_tour_ends_as_the_model_says(purged_when_sealed, "vault", make)


def counted_by_those_who_read_it(world: World) -> None:
    """The second page of a project's list does not count a user's own memory."""
    world.write(ONE, "user cy", "Tabs, not spaces", who="cy")
    world.wait(1)
    for _ in range(4):
        world.write(ONE, "web", "Never on Fridays")
        world.write(ONE, "web", "port: 5432")
    world.check_list(ONE, "web", "ana")


def tagged_since_it_was_asked_for(world: World) -> None:
    """A tag is a change as well, which what waits is held against."""
    world.write(OPEN, "web", "Never on Fridays")
    world.review("bolt", "one")
    world.forget(OPEN, [0], who="scout")
    world.correct(OPEN, 0, tags=("a",))
    world.decide("bolt", 0, "accept")


@pytest.mark.parametrize("tour", [counted_by_those_who_read_it, tagged_since_it_was_asked_for])
def test_what_the_model_found_is_right_now(tour: Tour, make: Make) -> None:
    test_a_tour_ends_as_the_model_says(tour, "claude-memory", make)


def gone_from_each_place(world: World) -> None:
    """What was forgotten or taken back is seen in the past by the rule of now."""
    known = world.providers["one"]
    kinds = dict.fromkeys((known.kinds[0], known.kinds[-1]))
    for number, (place, kind) in enumerate(product(known.places, kinds)):
        world.write(ONE, place, f"key{number}: port of {place}", kind=kind)
    world.wait(24)
    world.undo("acme")
    world.undo("acme", 3)
    world.forget(ONE, range(100))
    for place, who in product(PLACES, ("ana", "cy", "coding")):
        world.check_query(ONE, place, who, "port", hours=2)
        world.check_list(ONE, place, who, hours=2)
        world.check_got(ONE, place, who, hours=2)
        world.check_changes(ONE, place, who, 2)
    world.check()


@pytest.mark.parametrize("provider", AT_ONCE)
def test_the_past_is_seen_by_the_rule_of_now(provider: str, make: Make) -> None:
    test_a_tour_ends_as_the_model_says(gone_from_each_place, provider, make)
