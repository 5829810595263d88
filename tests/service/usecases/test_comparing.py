"""Comparing two memories by the log's own questions: what is asked, and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from memtui.backends.facts import FactsAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    NotFound,
    OperationType,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    Usage,
    WriteRequest,
    place_of_url,
)
from memtui.presenters.comparison import figures, sentences
from memtui.presenters.format import money
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.impact import AnsweredRecord
from memtui.service.operations.feedback import Verdict
from memtui.service.usecases.comparing import (
    ComparedAnswer,
    ComparedQuestion,
    MemoryComparison,
    compare_memories,
    plan_comparison,
)
from tests.databases import ON_BOTH
from tests.service.fake import FakeAdapter, down

ANA = Caller(company_id="local", principal="user:ana", channel="cli")
APOLLO = Scope(company_id="local", project_id="apollo")
HERS = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind="manual_note", company_id="local")
DEPLOY = "We deploy the blue pipeline every Monday morning after the tests are green."


def agent(run: str) -> Caller:
    return Caller(company_id="local", principal="agent:coding", channel="mcp", run_id=run)


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, fake: type[FakeAdapter]
) -> AsyncIterator[MemoryService]:
    """The company over two vaults, with an outside provider beside them."""
    opened = await open_service(paths, settings, providers={"fake": fake})
    await opened.bindings.add(ANA, "other", "vault", {})
    await opened.bindings.add(ANA, "outside", "fake", {})
    yield opened
    await opened.close()


async def write(
    service: MemoryService, text: str, key: str = "default", by: Caller = ANA, **more: Any
) -> str:
    given = {"scope": APOLLO, "source": SOURCE, "content": text, "binding_key": key, **more}
    answer = await service.write(by, WriteRequest.model_validate(given))
    return answer.handles[0].provider_record_id


async def ask(service: MemoryService, text: str, by: Caller = ANA, **more: Any) -> str:
    given = {"scope": APOLLO, "query": text, **more}
    return (await service.query(by, QueryRequest.model_validate(given))).operation_id


async def compared(
    service: MemoryService, a: str = "default", b: str = "other", by: Caller = ANA
) -> MemoryComparison:
    plan = await plan_comparison(service, by, (a, b), 500)
    return await compare_memories(service, by, plan, agreed=True)


@ON_BOTH
async def test_texts_are_matched_and_each_question_is_asked_once(service: MemoryService) -> None:
    await write(service, DEPLOY)
    await write(service, DEPLOY.upper().replace(".", "!"), "other")
    await write(service, "The database is PostgreSQL.", "other")
    for _ in range(3):
        last = await ask(service, "when deploy pipeline")
    await ask(service, "which database")
    await ask(service, "zebra")
    found = await compared(service)
    assert [(one.question, one.times, one.agreement) for one in found.questions] == [
        ("which database", 1, 0.0), ("when deploy pipeline", 3, 1.0), ("zebra", 1, None),
    ]  # fmt: skip
    assert found.questions[1].same == {1: 1}
    assert found.agreement == 0.5
    plan = await plan_comparison(service, ANA, ("default", "other"), 500, last)
    assert (plan.leave, [one.query for one, _ in plan.asked]) == ([], ["when deploy pipeline"])


async def test_a_prompt_of_a_delivered_context_is_a_question(service: MemoryService) -> None:
    await write(service, DEPLOY)
    request = ContextRequest(scope=APOLLO, prompt="when deploy pipeline", delivered=True)
    await service.context(agent("run-1"), request)
    assert [one.question for one in (await compared(service)).questions] == ["when deploy pipeline"]


async def test_hits_are_what_helped_and_what_was_used_later(service: MemoryService) -> None:
    name = await write(service, DEPLOY)
    await write(service, DEPLOY, "other")
    asked = await ask(service, "when deploy pipeline")
    await service.feedback.say(ANA, name, Verdict.HELPED, operation_id=asked)
    text = "The staging database of apollo is restored from the backup of last Sunday night."
    await write(service, text, "other")
    await ask(service, "staging database", agent("run-1"), binding_key="other")
    await write(service, f"Done. {text}", "outside", agent("run-1"))
    found = {one.question: one for one in (await compared(service)).questions}
    assert [one.helped for one in found["when deploy pipeline"].answers] == [(1,), (1,)]
    here, there = found["staging database"].answers
    assert (here.hits, there.used, there.helped) == (0, (1,), ())
    await service.feedback.say(ANA, name, Verdict.NOT_HELPED, operation_id=asked)
    again = {one.question: one for one in (await compared(service)).questions}
    assert [one.hits for one in again["when deploy pipeline"].answers] == [0, 0]


async def test_a_text_that_helped_is_a_hit_where_its_record_has_another_id(
    service: MemoryService,
) -> None:
    name = await write(service, DEPLOY)
    asked = await ask(service, "when deploy pipeline")
    await service.feedback.say(ANA, name, Verdict.HELPED, operation_id=asked)
    await write(service, DEPLOY, "outside")
    found = await compared(service, "other", "outside")
    assert [one.hits for one in found.questions[0].answers] == [0, 1]
    handles = (await service.get(ANA, name, APOLLO)).record.handle
    await service.forget(ANA, ForgetRequest(scope=APOLLO, handles=(handles,)))
    found = await compared(service, "other", "outside")
    assert [one.hits for one in found.questions[0].answers] == [0, 0]


async def test_its_own_questions_are_no_use_of_a_memory(service: MemoryService) -> None:
    name = await write(service, DEPLOY)
    await ask(service, "when deploy pipeline")
    log = service.runtime.log_of(ANA)
    reads = log.retrieval_counts("default", [name])
    before = await service.log.page(ANA, Filter(), limit=100)
    first = await compared(service)
    after = await service.log.page(ANA, Filter(), limit=100)
    assert [one.operation_id for one in after.operations] == [
        one.operation_id for one in before.operations
    ]
    every = await service.log.page(ANA, Filter(internal=True), limit=100)
    own = [one for one in every.operations if one.request.get("purpose") == "compare"]
    assert [one.binding_key for one in own] == ["other", "default"]
    assert not any(one.handles for one in own)
    assert own[0].part_of == own[1].operation_id
    second = await compared(service)
    assert [one.times for one in first.questions + second.questions] == [1, 1]
    assert log.retrieval_counts("default", [name]) == reads


async def test_a_side_that_is_down_has_failed_and_not_found_nothing(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await write(service, DEPLOY)
    await ask(service, "when deploy pipeline")
    fake.fault = down()
    found = await compared(service, "default", "outside")
    [one] = found.questions
    assert (one.answered, one.agreement, found.both) == (False, None, [])
    assert [bool(answer.error) for answer in one.answers] == [False, True]
    assert found.interval == (0.0, 1.0)


async def test_nothing_leaves_before_a_yes(service: MemoryService) -> None:
    await write(service, DEPLOY)
    await ask(service, "when deploy pipeline")
    plan = await plan_comparison(service, ANA, ("default", "outside"), 500)
    assert plan.leave == ["outside (fake)"]
    with pytest.raises(Denied, match="outside"):
        await compare_memories(service, ANA, plan)
    with pytest.raises(Denied, match="let a person say yes"):
        await compare_memories(service, agent("run-1"), plan, agreed=True)
    every = await service.log.page(ANA, Filter(binding_key="outside", internal=True), limit=10)
    assert {one.operation_type for one in every.operations} == {OperationType.CONFIGURE}


async def test_a_server_is_named_whatever_its_provider_can(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(service, "zebra")
    await service.bindings.add(ANA, "tables", "facts", {})
    assert (await plan_comparison(service, ANA, ("default", "tables"), 500)).leave == []
    places = [place_of_url("postgresql://db.test:5432/facts")]
    monkeypatch.setattr(FactsAdapter, "places", classmethod(lambda _cls, _context: places))
    plan = await plan_comparison(service, ANA, ("default", "tables"), 500)
    assert plan.leave == ["tables (facts, db.test:5432/facts)"]


async def test_questions_and_records_of_others_stay_hidden(service: MemoryService) -> None:
    await write(service, "Ana takes the secret pill", scope=HERS)
    asked = await ask(service, "secret pill", scope=HERS)
    await ask(service, "when deploy pipeline")
    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    await service.members.set(ANA, Membership(principal="user:bob", role=Role.MEMBER))
    bob = ANA.model_copy(update={"principal": "user:bob"})
    found = await compared(service, by=bob)
    assert "secret" not in found.model_dump_json()
    assert "pill" not in found.model_dump_json()
    with pytest.raises(NotFound):
        await plan_comparison(service, bob, ("default", "other"), 500, asked)
    stranger = ANA.model_copy(update={"principal": "user:eve"})
    with pytest.raises(Denied):
        await plan_comparison(service, stranger, ("default", "other"), 500)


async def test_a_hidden_write_of_the_run_is_no_use_that_others_can_see(
    service: MemoryService,
) -> None:
    await write(service, DEPLOY)
    by = agent("r1")
    await ask(service, "when deploy pipeline", by)
    await write(service, DEPLOY, scope=HERS, by=by)
    await service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))
    await service.members.set(ANA, Membership(principal="user:bob", role=Role.MEMBER))
    bob = ANA.model_copy(update={"principal": "user:bob"})
    used = [(await compared(service, by=who)).questions[0].answers[0].used for who in (ANA, bob)]
    assert used == [(1,), ()]


async def test_what_came_of_a_question_was_not_used_in_its_answer(service: MemoryService) -> None:
    by = agent("run-1")
    await ask(service, "when deploy pipeline", by)
    await write(service, DEPLOY, by=by)
    assert [one.used for one in (await compared(service)).questions[0].answers] == [(), ()]
    older = Scope(company_id="local", subject_id="old")
    await write(service, DEPLOY, scope=older)
    await ask(service, "when deploy", agent("run-2"), scope=older)
    await write(service, f"As ever: {DEPLOY}", scope=older, by=agent("run-2"))
    [first, *_] = (await compared(service)).questions[0].answers
    assert [text.text for text in first.records if text.rank in first.used] == [DEPLOY]


async def test_what_a_run_writes_for_the_whole_company_is_a_use_too(service: MemoryService) -> None:
    await write(service, DEPLOY)
    by = agent("run-1")
    await ask(service, "when deploy pipeline", by)
    await write(service, f"Known: {DEPLOY}", "other", by, scope=Scope(company_id="local"))
    assert (await compared(service)).questions[0].answers[0].used == (1,)


async def test_all_bindings_at_once_are_asked_once(service: MemoryService) -> None:
    for _ in range(2):
        await service.everywhere.query(ANA, QueryRequest(scope=APOLLO, query="when deploy"))
    assert [one.times for one in (await compared(service)).questions] == [2]


@pytest.mark.parametrize("stored", [True, False])
async def test_an_address_that_changes_meanwhile_is_not_asked(
    service: MemoryService,
    fake: type[FakeAdapter],
    monkeypatch: pytest.MonkeyPatch,
    *,
    stored: bool,
) -> None:
    for number in range(6):
        await ask(service, f"deploy {number}")
    if stored:
        await compared(service, "default", "outside")
    plan = await plan_comparison(service, ANA, ("default", "outside"), 500)
    assert plan.agreed == stored
    fake.calls.clear()
    moved = [place_of_url("http://elsewhere.test/")]

    def progress(done: int) -> None:
        if done:
            monkeypatch.setattr(fake, "places", classmethod(lambda _cls, _context: moved))

    with pytest.raises(Denied, match=r"Nobody agreed .* elsewhere\.test"):
        await compare_memories(service, ANA, plan, agreed=not stored, progress=progress)
    assert fake.calls.count("query") == 4


def _side(number: int, price: str | None = "", **more: Any) -> ComparedAnswer:
    handle = RecordHandle(provider_key="vault", provider_record_id="x")
    records = [
        AnsweredRecord(rank=rank, handle=handle, binding_key="a", text="x")
        for rank in range(1, number + 1)
    ]
    cost = None if price is None else Decimal(price or 0)
    usage = Usage(provider="x", input_tokens=5, cost_usd=cost)
    return ComparedAnswer.model_validate({"records": records, "usage": [usage], **more})


def _question(*answers: ComparedAnswer, **more: Any) -> ComparedQuestion:
    return ComparedQuestion.model_validate(
        {"seq": 1, "question": "q", "times": 1, "answers": answers, **more}
    )


def test_each_figure_by_hand() -> None:
    questions = (
        _question(
            _side(4, "0.01", helped=(1,), used=(1, 2), tokens=30, latency_ms=10),
            _side(2, "0.02", used=(2,), tokens=10, latency_ms=20),
            same={1: 1},
        ),
        _question(_side(3, None, helped=(1, 2, 3), tokens=7, latency_ms=30),
                  ComparedAnswer(error="down", latency_ms=900)),
        _question(_side(0, "0.03", latency_ms=50), _side(0, "0.05", latency_ms=40)),
    )  # fmt: skip
    found = MemoryComparison(bindings=("a", "b"), questions=questions, left_out=7)
    assert {name: (here, there) for name, here, there in figures(found)} == {
        "answered": ("3", "2"), "failed": ("0", "1"), "found something": ("2", "1"),
        "records only here": ("3", "1"), "hits: helped": ("4", "0"), "hits: used later": ("2", "1"),
        "tokens of answers": ("37", "10"), "tokens of provider": ("15 in", "10 in"),
        "cost": (money(Decimal("0.04"), unpriced=True), money(Decimal("0.07"))),
        "latency, median": ("30 ms", "30 ms"), "latency, p95": ("50 ms", "40 ms"),
    }  # fmt: skip
    assert [one.hits for one in questions[0].answers] == [2, 1]
    assert [one.agreement for one in questions] == [0.25, None, None]
    assert (found.agreement, found.more_hits, len(found.both)) == (0.25, (1, 0), 2)
    said = list(sentences(found))
    assert said[0] == "2 questions answered by both; 25.0% of the records alike."
    assert said[-2:] == ["b failed: down", "Erased, cut, of the past or hidden, so left out: 7."]


async def test_a_text_that_is_there_twice_is_matched_once(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await write(service, DEPLOY)
    for scope in (APOLLO, HERS):
        await write(service, DEPLOY, "outside", scope=scope)
    await ask(service, "when deploy pipeline", scope=Scope(company_id="local"))
    [one] = (await compared(service, "outside", "default")).questions
    assert (one.same, one.agreement, [len(side.records) for side in one.answers]) == (
        {1: 1}, 0.5, [2, 1],
    )  # fmt: skip


async def test_a_verdict_counts_for_its_question_and_only_where_most_agree(
    service: MemoryService,
) -> None:
    name = await write(service, DEPLOY)
    first = await ask(service, "when deploy pipeline")
    await ask(service, "which pipeline")
    bob = ANA.model_copy(update={"principal": "user:bob"})

    async def hits() -> dict[str, int]:
        return {one.question: one.answers[0].hits for one in (await compared(service)).questions}

    await service.feedback.say(ANA, name, Verdict.HELPED, operation_id=first)
    assert await hits() == {"when deploy pipeline": 1, "which pipeline": 0}
    await service.feedback.say(bob, name, Verdict.NOT_HELPED, operation_id=first)
    assert await hits() == {"when deploy pipeline": 0, "which pipeline": 0}


async def test_only_what_the_run_writes_afterwards_is_a_use(service: MemoryService) -> None:
    await write(service, DEPLOY)
    await write(service, f"Known: {DEPLOY}", scope=HERS, by=agent("run-1"))
    await ask(service, "when deploy pipeline", agent("run-1"))
    assert (await compared(service)).questions[0].answers[0].used == ()
    await write(service, f"Done: {DEPLOY}", scope=HERS, by=agent("run-1"))
    await ask(service, "when deploy pipeline", agent("run-2"))
    assert (await compared(service)).questions[0].answers[0].used == (1,)


async def test_what_a_run_wrote_is_no_use_for_another_that_asks_the_same(
    service: MemoryService,
) -> None:
    await ask(service, "when deploy pipeline", agent("run-1"))
    await write(service, DEPLOY, by=agent("run-1"))
    await ask(service, "when deploy pipeline", agent("run-2"))
    [one] = (await compared(service)).questions
    assert (one.times, len(one.answers[0].records), one.answers[0].used) == (2, 1, ())


async def test_questions_of_the_past_and_cut_ones_are_counted(service: MemoryService) -> None:
    await ask(service, "zebra " * 700)
    await ask(service, "zebra", as_of=service.runtime.clock())
    await ask(service, "zebra")
    found = await compared(service)
    assert ([one.question for one in found.questions], found.left_out) == (["zebra"], 2)


def test_the_median_and_the_95th_percentile_of_latencies() -> None:
    def took(*latencies: float) -> tuple[str, ...]:
        questions = tuple(
            ComparedQuestion(
                seq=1, question="q", times=1, answers=(side, ComparedAnswer(error="x"))
            )
            for one in latencies
            for side in [ComparedAnswer(latency_ms=one)]
        )
        found = MemoryComparison(bindings=("a", "b"), questions=questions)
        return tuple(here for name, here, _ in figures(found) if name.startswith("latency"))

    assert took(100, 20) == ("60 ms", "100 ms")
    assert took(*range(20, 0, -1)) == ("10 ms", "19 ms")
    assert took(1, 2, 300) == ("2.0 ms", "300 ms")


async def test_what_cannot_be_compared_is_refused(service: MemoryService) -> None:
    with pytest.raises(NotFound, match="no question in the log"):
        await plan_comparison(service, ANA, ("default", "other"), 500)
    await ask(service, "zebra")
    with pytest.raises(Invalid, match="name two"):
        await plan_comparison(service, ANA, ("default", "default"), 500)
    with pytest.raises(NotFound, match="nothere"):
        await plan_comparison(service, ANA, ("default", "nothere"), 500)


@pytest.mark.parametrize(
    ("wins", "losses", "low", "high"),
    [(12, 9, 0.3402, 0.7818), (0, 0, 0.0, 1.0), (6, 0, 0.5407, 1.0), (5, 0, 0.4782, 1.0)],
)
def test_a_difference_is_shown_as_by_the_sign_test(
    wins: int, losses: int, low: float, high: float
) -> None:
    hit, miss = ComparedAnswer(helped=(1,)), ComparedAnswer()

    def one(*answers: ComparedAnswer) -> ComparedQuestion:
        return ComparedQuestion.model_validate(
            {"seq": 1, "question": "q", "times": 1, "answers": answers}
        )

    questions = (*[one(hit, miss)] * wins, *[one(miss, hit)] * losses, one(hit, hit))
    found = MemoryComparison(bindings=("a", "b"), questions=questions)
    assert found.more_hits == (wins, losses)
    assert found.interval == pytest.approx((low, high), abs=1e-4)
