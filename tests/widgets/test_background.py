from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

from memtui.contract import MemtuiError, NotFound
from memtui.widgets.background import Background, Stoppable, Unexpected


class Pane(Static):
    def __init__(self) -> None:
        super().__init__()
        self.work = Background(self, "pane")
        self.got: list[str] = []
        self.errors: list[MemtuiError] = []

    def read(self, gate: asyncio.Event, value: str) -> None:
        async def wait() -> str:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                # A provider that will not be cancelled still delivers, too late.
                await gate.wait()
            return value

        self.work.latest(wait, self.got.append, self.errors.append)


class OnePane(App[None]):
    def compose(self) -> ComposeResult:
        yield Pane()


async def settled(app: App[None]) -> None:
    await app.workers.wait_for_complete([one for one in app.workers if not one.is_cancelled])


async def test_a_stale_result_is_dropped() -> None:
    app = OnePane()
    async with app.run_test() as pilot:
        pane = app.query_one(Pane)
        slow, quick = asyncio.Event(), asyncio.Event()
        pane.read(slow, "old")
        await pilot.pause()
        pane.read(quick, "new")
        await pilot.pause()
        slow.set()
        await pilot.pause()
        assert pane.got == []
        quick.set()
        await settled(app)
        assert pane.got == ["new"]
        assert not pane.work.busy


async def test_changes_all_run_to_their_end_in_their_order() -> None:
    app = OnePane()
    async with app.run_test():
        pane = app.query_one(Pane)

        async def change(value: str) -> str:
            await asyncio.sleep(0)
            return value

        for value in "abc":
            pane.work.every(partial(change, value), pane.got.append, pane.errors.append)
        await settled(app)
        assert sorted(pane.got) == ["a", "b", "c"]


async def test_an_error_is_given_on_and_a_fault_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = OnePane()
    async with app.run_test():
        pane = app.query_one(Pane)

        async def missing() -> str:
            raise NotFound("There is no such record.")

        async def broken() -> str:
            raise KeyError("secret detail")

        with caplog.at_level(logging.ERROR, "memtui"):
            pane.work.every(missing, pane.got.append, pane.errors.append)
            pane.work.every(broken, pane.got.append, pane.errors.append)
            await settled(app)
    kinds = {type(error): str(error) for error in pane.errors}
    assert kinds[NotFound] == "There is no such record."
    assert "KeyError" in kinds[Unexpected]
    assert "secret" not in kinds[Unexpected]
    assert "secret detail" in caplog.text


async def test_nothing_is_delivered_to_a_pane_that_is_gone() -> None:
    app = OnePane()
    async with app.run_test() as pilot:
        pane = app.query_one(Pane)
        gate = asyncio.Event()
        pane.read(gate, "late")
        await pilot.pause()
        await pane.remove()
        gate.set()
        await pilot.pause()
        assert pane.got == []


async def test_nothing_is_delivered_to_a_pane_that_is_being_taken_away() -> None:
    going, gone, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(Static):
        async def on_unmount(self) -> None:
            going.set()
            await gone.wait()

    app = OnePane()
    async with app.run_test() as pilot:
        pane = app.query_one(Pane)
        await pane.mount(Slow())
        pane.read(gate, "x")
        await pilot.pause()
        leaving = pane.remove()
        await going.wait()
        assert pane.is_attached
        gate.set()
        await settled(app)
        gone.set()
        await leaving
        assert pane.got == []


async def test_what_was_forgotten_delivers_nothing() -> None:
    app = OnePane()
    async with app.run_test() as pilot:
        pane = app.query_one(Pane)
        gate = asyncio.Event()
        pane.read(gate, "x")
        await pilot.pause()
        pane.work.forget()
        gate.set()
        await pilot.pause()
        assert pane.got == []


async def test_stopping_again_does_not_break_off_the_cleaning_up() -> None:
    app = OnePane()
    begun, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean.wait()
            ends.append("cleaned up")

    async with app.run_test():
        run = Stoppable[None](app.query_one(Pane), "run")
        run.start(
            work,
            done=lambda _: ends.append("done"),
            stopped=lambda: ends.append("stopped"),
            failed=lambda error: ends.append(str(error)),
        )
        await begun.wait()
        run.stop()
        await cleaning.wait()
        run.stop()
        ending = asyncio.create_task(run.end())
        clean.set()
        await ending
        assert ends[0] == "cleaned up"
    assert not run.busy
