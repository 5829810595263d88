from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import copy_context

import pytest

from memtui.threads import LooseThreads, goes_on, silent_at_most, use_loose_threads

_HANGS = """
import asyncio, threading
from memtui.threads import use_loose_threads

async def main():
    use_loose_threads()
    try:
        async with asyncio.timeout(0.05):
            await asyncio.to_thread(threading.Event().wait)
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""


def test_a_call_that_never_ends_keeps_no_program_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "given up\n"
    assert done.stderr == ""


async def test_calls_that_were_given_up_take_no_others_place() -> None:
    pool, stuck = LooseThreads(most=2), threading.Event()
    loop = asyncio.get_running_loop()
    for _ in range(6):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.run_in_executor(pool, stuck.wait), 0.01)
    assert await loop.run_in_executor(pool, lambda: "served") == "served"
    stuck.set()
    pool.shutdown()


async def test_no_more_run_at_once_than_there_are_threads() -> None:
    pool, guard = LooseThreads(most=3), threading.Lock()
    running, most = 0, 0
    turn = threading.Semaphore(0)

    def work(number: int) -> int:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        turn.acquire()
        with guard:
            running -= 1
        return number

    loop = asyncio.get_running_loop()
    calls = [loop.run_in_executor(pool, work, number) for number in range(20)]
    for _ in calls:
        turn.release()
    assert await asyncio.gather(*calls) == list(range(20))
    assert most <= 3
    pool.shutdown()


def test_the_end_waits_for_a_call_that_is_still_wanted() -> None:
    pool, begun, may_end = LooseThreads(), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        may_end.wait()
        return "kept"

    call = pool.submit(work)
    begun.wait()
    ending = threading.Thread(target=pool.shutdown)
    ending.start()
    may_end.set()
    ending.join()
    assert call.result(timeout=0) == "kept"
    with pytest.raises(RuntimeError):
        pool.submit(work)


async def test_an_exit_in_a_thread_ends_no_program() -> None:
    use_loose_threads()
    with pytest.raises(RuntimeError, match="SystemExit"):
        await asyncio.to_thread(sys.exit, 3)
    use_loose_threads()
    assert await asyncio.to_thread(lambda: threading.current_thread().daemon)


def test_what_a_call_held_is_gone_when_the_threads_have_ended() -> None:
    class Held:
        """Such as a connection of DuckDB, which must not go while Python ends."""

    held = Held()
    gone = weakref.ref(held)
    threads = LooseThreads()
    threads.submit(id, held).result()
    del held
    threads.shutdown()
    assert gone() is None


def test_a_sign_after_the_limit_or_the_loop_is_over_does_nothing() -> None:
    signs: list[Callable[[], None]] = []

    async def call() -> None:
        async with silent_at_most(60):
            context = copy_context()
            signs.append(lambda: context.run(goes_on))
        signs[0]()
        await asyncio.sleep(0)

    asyncio.run(call())
    signs[0]()
    goes_on()
