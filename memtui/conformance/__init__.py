"""The memory plugin contract v1 as named checks of a running server (seed 001).

`run_conformance` is for the command line, screens and scripts; `memtui.conformance.suite` offers
the same checks as pytest tests.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from memtui.contract import Invalid, Json, Model, Unavailable

from .checks import CHECKS
from .probe import MARK, ContractCheck, Probe, Spaces
from .wire import (
    Exchange,
    Failed,
    ProbeClient,
    SeenReply,
    SentRequest,
    Silent,
    checked_url,
    readable,
)

__all__ = [
    "CHECKS", "CheckResult", "ConformanceReport", "Outcome", "choose_checks", "run_conformance",
]  # fmt: skip

Outcome = Literal["pass", "fail", "not_applicable"]


class CheckResult(Model):
    """The result of one check."""

    name: str
    rule: str
    """The rule in one sentence."""
    source: str
    """The rule's place in the contract."""
    outcome: Outcome
    detail: str = ""
    """The failure, the reason why it does not apply, or a remark on a pass."""
    request: SentRequest | None = None
    """The request that shows the failure."""
    reply: SeenReply | None = None
    """Its reply; None if there was none."""
    duration_ms: float = 0.0


class ServerSeen(Model):
    """The version and capabilities that the server reports."""

    version: str | None = None
    capabilities: tuple[str, ...] = ()


class ConformanceReport(Model):
    """One run of the checks against one server."""

    url: str
    """The address that was checked, or the unix socket's path."""
    server: ServerSeen
    passed: int
    failed: int
    not_applicable: int
    checks: tuple[CheckResult, ...]
    """In the order of the list of checks."""
    leftovers: tuple[str, ...] = ()
    """Namespaces and memories that the run created and could not remove, as a person would look
    them up."""
    duration_ms: float = 0.0


OnResult = Callable[[CheckResult], None]
OnLeftovers = Callable[[tuple[str, ...]], None]

TIMEOUT_S = 5.0
"""Default time limit of one request, in seconds."""
TTL_S = 1.5
"""Default distance of the expiries that the checks wait for, in seconds."""
_SIDE_BY_SIDE = 6
_TIMEOUTS_A_CHECK = 6
_LEAST_SECONDS_A_CHECK = 30.0
_TRIES = 5
_BETWEEN_TRIES_S = 0.2
_ANY_URL = "http://plugin"
_AFTERWARDS = "recovery"
"""The check whether the server recovered; it always runs."""


async def run_conformance(
    base_url: str | None,
    *,
    uds: Path | None = None,
    only: Sequence[str] | None = None,
    on_result: OnResult | None = None,
    on_leftovers: OnLeftovers | None = None,
    timeout_s: float = TIMEOUT_S,
    ttl_s: float = TTL_S,
) -> ConformanceReport:
    """Check a running server against the memory plugin contract v1.

    It uses its own namespaces and removes them, even when cancelled; those that it cannot remove go
    to `on_leftovers` and into the report. `only` has names of checks or prefixes of names
    (`search`); `on_result` gets each result when it is known, in any order. The clocks of both
    sides must agree to about `ttl_s` seconds. With `uds` the address may be None.

    Raises:
        Invalid: the address is malformed, or `only` names no check.
        Unavailable: the server cannot be reached, is no memory plugin, or reports that it cannot
            serve.
    """
    chosen = choose_checks(only)
    started = perf_counter()
    async with aclosing(
        ProbeClient(checked_url(_ANY_URL if base_url is None else base_url), uds, timeout_s)
    ) as wire:
        server = await _greet(wire, str(uds or base_url))
        spaces = Spaces(wire)
        tell = on_result or (lambda _result: None)
        run = _Run(spaces, wire, frozenset(server.capabilities), ttl_s, tell)
        try:
            results = await run.all(chosen)
        finally:
            await spaces.clear()
            if spaces.leftovers and on_leftovers is not None:
                on_leftovers(spaces.leftovers)
    outcomes = Counter(result.outcome for result in results)
    return ConformanceReport(
        url=str(uds or base_url),
        server=server,
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        not_applicable=outcomes["not_applicable"],
        checks=tuple(results),
        leftovers=spaces.leftovers,
        duration_ms=_since(started),
    )


def choose_checks(only: Sequence[str] | None = None) -> tuple[ContractCheck, ...]:
    """Return the checks with these names or prefixes of names; all checks for none.

    Raises:
        Invalid: a name matches no check.
    """
    if not only:
        return CHECKS
    chosen: set[str] = set()
    for name in only:
        exact = {check.name for check in CHECKS if check.name == name}
        found = exact or {check.name for check in CHECKS if check.name.startswith(f"{name}-")}
        if not found:
            raise Invalid(
                f"There is no check {name}; memtui bindings conformance --list names them all."
            )
        chosen |= found
    return tuple(check for check in CHECKS if check.name in chosen)


class _Run:
    """One run over an open connection."""

    def __init__(
        self, spaces: Spaces, wire: ProbeClient, capabilities: frozenset[str], ttl_s: float,
        tell: OnResult,
    ) -> None:  # fmt: skip
        self._wire, self._spaces, self._tell = wire, spaces, tell
        self._capabilities, self._ttl_s = capabilities, ttl_s
        self._gate = asyncio.Semaphore(_SIDE_BY_SIDE)
        self._found: dict[str, CheckResult] = {}

    async def all(self, checks: Sequence[ContractCheck]) -> list[CheckResult]:
        """Return the results, in the order of the checks."""
        async with asyncio.TaskGroup() as group:
            for check in checks:
                if not check.alone:
                    group.create_task(self._one(check))
        await self._spaces.clear()  # before the attacks, while the server works
        killer = ""
        for check in (one for one in checks if one.alone):
            if killer and check.name != _AFTERWARDS:
                gone = f"Not run: the server stopped answering at {killer}."
                self._note(check, "not_applicable", gone)
                continue
            await self._one(check)
            if self._found[check.name].outcome == "fail" and not await self._is_back():
                killer = killer or check.name
        return [self._found[check.name] for check in checks]

    async def _is_back(self) -> bool:
        """Return whether the server answers, at least after some tries."""
        for _ in range(_TRIES):
            try:
                await self._wire.send("GET", "/v1/health")
            except Failed:
                await asyncio.sleep(_BETWEEN_TRIES_S)
            else:
                return True
        return False

    async def _one(self, check: ContractCheck) -> None:
        missing = [name for name in check.needs if name not in self._capabilities]
        if missing:
            lacking = f"The server does not list {' and '.join(missing)}."
            self._note(check, "not_applicable", lacking)
            return
        probe = Probe(self._wire, self._spaces, self._capabilities, self._ttl_s)
        longest = max(_LEAST_SECONDS_A_CHECK, _TIMEOUTS_A_CHECK * self._wire.timeout_s)
        async with self._gate:
            started = perf_counter()
            try:
                async with asyncio.timeout(longest):
                    await check.run(probe)
            except Failed as error:
                seen = {"request": error.request, "reply": error.reply}
                self._note(check, "fail", str(error), started, **seen)
            except TimeoutError:
                self._note(check, "fail", f"Not done after {longest:g} s.", started)
            else:
                self._note(check, "pass", probe.remark, started)

    def _note(
        self,
        check: ContractCheck,
        outcome: Outcome,
        detail: str,
        started: float | None = None,
        **seen: Any,
    ) -> None:
        self._found[check.name] = CheckResult.like(
            check,
            outcome=outcome,
            detail=readable(detail),
            duration_ms=_since(started) if started is not None else 0.0,
            **seen,
        )
        self._tell(self._found[check.name])


async def _greet(wire: ProbeClient, place: str) -> ServerSeen:
    """Return the server's health reply as far as it is readable; the checks judge the rest."""
    try:
        reply = await wire.send("GET", "/v1/health")
    except Silent as error:
        raise Unavailable(
            f"The memory plugin at {place} does not answer; check that it runs and that the "
            f"address is right. {error}"
        ) from error
    if reply.status == 503:
        raise Unavailable(f"The memory plugin at {place} says that it cannot serve now (503).")
    if not _speaks(reply):
        # If only its health is wrong, the server is a plugin, and the checks report this.
        body: Json = {"namespaces": [f"custom:{MARK}"], "limit": 1}
        with suppress(Silent):  # the checks report it in more detail
            searched = await wire.send("POST", "/v1/search", body)
            if not _speaks(searched):
                health, search = (
                    f"{one.status}" if not one.is_ok else f"{one.status} and no JSON"
                    for one in (reply, searched)
                )
                raise Unavailable(
                    f"There is no memory plugin v1 at {place}: it answers GET /v1/health with "
                    f"{health} and POST /v1/search with {search}; check the address, or the "
                    "server's log."
                )
    said: Json = {}
    with suppress(Failed):
        said = reply.fields
    version, listed = said.get("version"), said.get("capabilities")
    names = [one for one in (listed if isinstance(listed, list) else []) if isinstance(one, str)]
    return ServerSeen(
        version=readable(version) if isinstance(version, str) else None,
        capabilities=tuple(map(readable, names)),
    )


def _speaks(reply: Exchange) -> bool:
    """Whether a reply may be a plugin's: a success with JSON."""
    with suppress(Failed):
        _ = reply.document
        return reply.is_ok
    return False


def _since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 1)
