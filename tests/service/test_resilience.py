from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from memtui.contract import Conflict, Denied, Invalid, NotFound, Unavailable, Unsupported
from memtui.service.connections import FAILURES_TO_OPEN, OPEN_SECONDS, Breaker


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Provider:
    """Answers with what it was given, one after the other; an exception is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls = 0

    async def __call__(self) -> object:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


async def ask(
    call: Callable[[], Awaitable[object]],
    breaker: Breaker,
    *,
    idempotent: bool = True,
    timeout_ms: int = 60_000,
) -> object:
    return await breaker.guarded(
        call, provider="mem0", timeout_ms=timeout_ms, idempotent=idempotent
    )


DOWN = Unavailable("down")
BROKEN_OFF = Unavailable("broken off", sent=True)


async def test_an_idempotent_call_that_was_not_sent_is_tried_again(breaker: Breaker) -> None:
    provider = Provider(DOWN, DOWN, "here")
    assert await ask(provider, breaker) == "here"
    assert provider.calls == 3


async def test_it_is_tried_three_times_at_most(breaker: Breaker) -> None:
    provider = Provider(DOWN)
    with pytest.raises(Unavailable):
        await ask(provider, breaker)
    assert provider.calls == 3
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("error", "idempotent"),
    [
        (DOWN, False),
        (BROKEN_OFF, False),
        (BROKEN_OFF, True),
        (KeyError("bug"), True),
        (NotFound("gone"), True),
    ],
)
async def test_any_other_call_is_made_once(
    breaker: Breaker, error: Exception, idempotent: bool
) -> None:
    provider = Provider(error)
    with pytest.raises((Unavailable, NotFound)):
        await ask(provider, breaker, idempotent=idempotent)
    assert provider.calls == 1


async def test_a_call_that_was_sent_at_the_second_try_is_not_made_a_third_time(
    breaker: Breaker,
) -> None:
    provider = Provider(DOWN, BROKEN_OFF, "never reached")
    with pytest.raises(Unavailable, match="broken off"):
        await ask(provider, breaker)
    assert provider.calls == 2


async def test_a_call_that_hangs_ends_at_its_timeout_and_may_have_been_sent(
    breaker: Breaker,
) -> None:
    forever = asyncio.Event()
    with pytest.raises(Unavailable, match=r"mem0 did not answer within 0.02 s") as caught:
        await ask(forever.wait, breaker, timeout_ms=20)
    assert caught.value.sent


async def test_all_tries_of_a_call_have_one_timeout(breaker: Breaker) -> None:
    ended = 0

    async def slowly_down() -> None:
        nonlocal ended
        await asyncio.sleep(0.03)
        ended += 1
        raise DOWN

    with pytest.raises(Unavailable):
        await ask(slowly_down, breaker, timeout_ms=40)
    assert ended <= 1


async def test_what_a_try_met_is_told_where_the_time_ends_in_the_next(breaker: Breaker) -> None:
    tries = 0

    async def down_then_silent() -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            await asyncio.Event().wait()
        raise DOWN

    with pytest.raises(Unavailable, match="down"):
        await ask(down_then_silent, breaker, timeout_ms=400)


async def test_a_bug_of_the_provider_is_logged_and_is_one_sentence(
    breaker: Breaker, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(Unavailable, match=r"mem0 failed unexpectedly \(KeyError\)") as caught,
    ):
        await ask(Provider(KeyError("oops")), breaker)
    assert caught.value.sent
    assert "oops" in caplog.text


async def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(Unavailable, match="down"):
            await ask(Provider(DOWN), breaker, idempotent=False)


async def test_the_third_failure_in_a_row_opens_the_breaker(breaker: Breaker) -> None:
    opened = []
    for _ in range(FAILURES_TO_OPEN):
        await fail(breaker, 1)
        opened.append(breaker.is_open)
    assert opened == [False, False, True]
    provider = Provider("here")
    with pytest.raises(Unavailable, match="mem0 failed 3 times in a row; it is tried again in 60"):
        await ask(provider, breaker)
    assert provider.calls == 0


async def test_a_success_between_starts_the_count_again(breaker: Breaker) -> None:
    await fail(breaker, 2)
    await ask(Provider("here"), breaker)
    await fail(breaker, 2)
    assert not breaker.is_open


@pytest.mark.parametrize(
    "answer", [Conflict("c"), Denied("d"), Invalid("i"), NotFound("n"), Unsupported("u")]
)
async def test_an_answer_that_says_no_is_no_failure(breaker: Breaker, answer: Exception) -> None:
    for _ in range(FAILURES_TO_OPEN + 1):
        with pytest.raises(type(answer)):
            await ask(Provider(answer), breaker)
    assert not breaker.is_open


async def test_after_a_minute_one_call_tries_and_closes_it(breaker: Breaker, clock: Clock) -> None:
    await fail(breaker, FAILURES_TO_OPEN)
    clock.now += OPEN_SECONDS - 1
    with pytest.raises(Unavailable, match="in 1 s"):
        await ask(Provider("here"), breaker)
    clock.now += 1
    release = asyncio.Event()
    trial = asyncio.ensure_future(ask(release.wait, breaker))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="tried again in 60 s"):
        await ask(Provider("here"), breaker)
    release.set()
    await trial
    assert not breaker.is_open
    assert await ask(Provider("here"), breaker) == "here"


async def test_a_trial_that_fails_opens_it_for_another_minute(
    breaker: Breaker, clock: Clock
) -> None:
    await fail(breaker, FAILURES_TO_OPEN)
    clock.now += OPEN_SECONDS
    await fail(breaker, 1)
    assert breaker.is_open


async def test_a_trial_that_is_cancelled_does_not_leave_it_shut_for_ever(
    breaker: Breaker, clock: Clock
) -> None:
    await fail(breaker, FAILURES_TO_OPEN)
    clock.now += OPEN_SECONDS
    trial = asyncio.ensure_future(ask(asyncio.Event().wait, breaker))
    await asyncio.sleep(0)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    clock.now += OPEN_SECONDS
    assert await ask(Provider("here"), breaker) == "here"
