"""Calls to a provider that may be slow, down or broken: timeout, retry, breaker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memtui.contract import MemtuiError, Unavailable

_log = logging.getLogger(__name__)

T = TypeVar("T")

FAILURES_TO_OPEN = 3
OPEN_SECONDS = 60.0
_ATTEMPTS = 3


class Breaker:
    """Refuses calls for a minute after three failures in a row, then lets one a minute try.

    Only an unavailable provider counts: a conflict or a denial is an answer.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._failures = 0
        self._opened_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused now."""
        return self._opened_at is not None and self._timer() - self._opened_at < OPEN_SECONDS

    def check(self, provider: str) -> None:
        """Refuse the call while open; after that the call is the one that tries.

        Raises:
            Unavailable: with the seconds until the next try.
        """
        if self._opened_at is None:
            return
        left = OPEN_SECONDS - (self._timer() - self._opened_at)
        if left > 0:
            raise Unavailable(
                f"{provider} failed {self._failures} times in a row; "
                f"it is tried again in {max(1, round(left))} s."
            )
        self._opened_at = self._timer()

    def succeeded(self) -> None:
        """Close again."""
        self._failures, self._opened_at = 0, None

    def failed(self) -> None:
        """Count a failure, and open at the third."""
        self._failures += 1
        if self._failures >= FAILURES_TO_OPEN:
            self._opened_at = self._timer()


async def guarded(
    call: Callable[[], Awaitable[T]],
    *,
    provider: str,
    breaker: Breaker,
    timeout_ms: int,
    idempotent: bool,
) -> T:
    """Make one call to a provider; an idempotent one is tried again, with jitter.

    Raises:
        Unavailable: it timed out, failed in a way of its own, or the breaker is open.
        MemtuiError: whatever the adapter said.
    """
    breaker.check(provider)
    try:
        if idempotent:
            answer = await _retried(call, provider, timeout_ms)
        else:
            answer = await _once(call, provider, timeout_ms)
    except Unavailable:
        breaker.failed()
        raise
    except MemtuiError:
        breaker.succeeded()
        raise
    breaker.succeeded()
    return answer


async def _retried(call: Callable[[], Awaitable[T]], provider: str, timeout_ms: int) -> T:
    try:
        return await _once(call, provider, timeout_ms)
    except Unavailable as error:
        if error.sent:
            raise
    from tenacity import (
        AsyncRetrying,
        retry_if_exception,
        stop_after_attempt,
        wait_random_exponential,
    )

    retrying = AsyncRetrying(
        stop=stop_after_attempt(_ATTEMPTS - 1),
        wait=wait_random_exponential(multiplier=0.1, max=1.0),
        retry=retry_if_exception(lambda error: isinstance(error, Unavailable) and not error.sent),
        reraise=True,
    )
    await asyncio.sleep(0.05)
    return await retrying(_once, call, provider, timeout_ms)


async def _once(call: Callable[[], Awaitable[T]], provider: str, timeout_ms: int) -> T:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await call()
    except TimeoutError as error:
        raise Unavailable(
            f"{provider} did not answer within {timeout_ms / 1000:g} s; "
            "raise provider_timeout_ms if it needs longer.",
            sent=True,
        ) from error
    except MemtuiError:
        raise
    except Exception as error:
        raise unexpected(provider, error) from error


def unexpected(provider: str, error: Exception) -> Unavailable:
    """Log a provider's own bug and return what it means for the caller."""
    _log.error("The provider %s failed unexpectedly", provider, exc_info=error)
    return Unavailable(
        f"{provider} failed unexpectedly ({type(error).__name__}); the log file says more.",
        sent=True,
    )
