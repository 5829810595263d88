"""`conformance`: check a running memory plugin against the contract v1, rule by rule."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.contract import Invalid
from memtui.doors.cli.output import Dim, Line, Output
from memtui.doors.cli.session import Invocation
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.conformance import Check, CheckResult, Report


_MARKS = {"pass": "✓", "fail": "✗", "not_applicable": "–"}
_BODY_LIMIT = 400
"""Characters of a body that a person is shown; JSON holds more."""
_LEFTOVERS = 5
"""So many leftovers are named to a person."""
_OVER_A_SOCKET = "http://plugin"


async def conformance(
    invocation: Invocation,
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="The plugin's address, such as http://localhost:9100."),
    ] = None,
    *,
    uds: Annotated[
        Path | None, typer.Option(help="The plugin's unix socket; the URL can be left out then.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run this check only, or those whose names begin so; give it several times.",
        ),
    ] = None,
    list_checks: Annotated[
        bool, typer.Option("--list", help="List the checks and their rules, and run none.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=600, help="Seconds that one request may take.")
    ] = 5.0,
) -> int:
    """Check a running memory plugin against the contract v1, rule by rule.

    It works in namespaces of its own, custom:memtui-conformance-… and the like, and removes them
    afterwards. Exit 1 if a rule is broken, 3 if the server cannot be reached.
    """
    from memtui.conformance import choose_checks, run_conformance

    checks = choose_checks(only)
    if list_checks:
        document = {"checks": [_listed(check) for check in checks]}
        invocation.out.answer(document, _rules(checks))
        return 0
    if url is None and uds is None:
        raise Invalid("Give the address of the plugin to check, or its unix socket with --uds.")
    lines = _Lines(checks, invocation.out)
    report = await run_conformance(
        url or _OVER_A_SOCKET,
        uds=uds,
        only=only,
        on_result=lines.add,
        on_leftovers=lambda names: _tell_leftovers(invocation.out, names),
        timeout_s=timeout,
    )
    invocation.out.answer(report, _summary(report))
    return 1 if report.failed else 0


class _Lines:
    """Prints results as they come, in the order of the checks."""

    def __init__(self, checks: tuple[Check, ...], out: Output) -> None:
        self._names = [check.name for check in checks]
        self._width = max(map(len, self._names))
        self._waiting: dict[str, CheckResult] = {}
        self._out = out

    def add(self, result: CheckResult) -> None:
        """Print a result as soon as all before it are printed."""
        self._waiting[result.name] = result
        while self._names and self._names[0] in self._waiting:
            found = self._waiting.pop(self._names.pop(0))
            if not self._out.as_json:
                for line in _shown(found, self._width):
                    self._out.line(line)


def _shown(result: CheckResult, width: int) -> Iterator[Line]:
    yield _fitted(f"{_MARKS[result.outcome]} {result.name:<{width}}  {result.rule}")
    if result.detail:
        detail = visible(result.detail, limit=_BODY_LIMIT)
        yield f"    {detail}" if result.outcome == "fail" else Dim(f"    {detail}")
    if result.request is not None:
        sent = f"{result.request.method} {result.request.path} {result.request.body or ''}"
        yield Dim(f"    → {visible(sent.rstrip(), limit=_BODY_LIMIT)}")
    if result.reply is not None:
        seen = f"{result.reply.status} {result.reply.content_type or ''} {result.reply.body}"
        yield Dim(f"    ← {visible(seen.rstrip(), limit=_BODY_LIMIT)}")


def _fitted(line: str) -> str:
    """Return a line of ours that takes one line of the terminal, where there is one."""
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or len(line) <= columns:
        return line
    return f"{line[: columns - 1]}…"


def _summary(report: Report) -> Iterator[Line]:
    counts = f"{report.passed} passed, {report.failed} failed"
    if report.not_applicable:
        counts += f", {report.not_applicable} not applicable"
    yield f"{counts} in {report.duration_ms / 1000:.1f} s"


def _listed(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "rule": check.rule,
        "source": check.source,
        "needs": list(check.needs),
    }


def _rules(checks: tuple[Check, ...]) -> Iterator[Line]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        needs = f" (with {', '.join(check.needs)})" if check.needs else ""
        yield f"{check.name:<{width}}  {check.rule}{needs}"
        yield Dim(f"{'':<{width}}  {check.source}")


def _tell_leftovers(out: Output, names: tuple[str, ...]) -> None:
    for name in names[:_LEFTOVERS]:
        out.say(f"Could not be removed from the server: {name}.")
    if len(names) > _LEFTOVERS:
        out.say(f"Nor could {len(names) - _LEFTOVERS:,} more; --json names them all.")


_HEAD = """\
`memtui conformance` checks a running server against the memory plugin contract v1, rule by rule. It
needs no memtui on the other side, no binding and no home.

```console
$ memtui conformance http://localhost:9100
✓ health-shape               Health answers 200 with a status of ok or degraded, a version and …
✗ pin-first                  Without a query pinned memories come first, older ones too.
    The pinned memory is not the first row.
    → POST /v1/search {"namespaces": ["custom:memtui-conformance-9c1e-4f2a"], "limit": 100}
    ← 200 application/json {"memories": [{"id": "…", "content": "newer 2", "pin": false, …
– ttl-past                   A memory that is past its expiry when it is written is refused, or …
    The server does not list ttl.
79 passed, 1 failed, 2 not applicable in 6.2 s
```

✓ is a rule that is kept, ✗ one that is broken, – one that does not apply, because the server does
not list the capability that it needs. The exit code is 0 where nothing failed, 1 where something
did, 3 where the server cannot be reached, its health answers 503, or it is no memory plugin at all:
neither its health nor a search is answered with success and JSON.

- `--only NAME` runs one check, or all whose names begin so (`--only search`), and can be given
  several times. `--list` shows the checks and runs none.
- `--uds PATH` connects to a unix socket. `--timeout` is how many seconds one request may take; the
  hundred writes at once may take five times that.
- `--json` prints `{"url", "server": {"version", "capabilities"}, "passed", "failed",
  "not_applicable", "checks": [{"name", "rule", "source", "outcome", "detail", "request", "reply",
  "duration_ms"}], "leftovers", "duration_ms"}`. `outcome` is `pass`, `fail` or `not_applicable`;
  `request` and `reply` are there on a failure, cut after 2,000 characters.

## What it does to the server

It writes into namespaces of its own, named like `custom:memtui-conformance-9c1e7d02-4f2ab833`, and
touches no other. They are removed in the end, also after a failure or ctrl+c; what the server would
not remove is named on stderr and in `leftovers`. Checks run side by side, six at a time; those
marked *alone* load or attack the server, and run last, one after the other. Where the server is
gone after one of these, the rest is not run. It takes about as long as some 900 requests, and a few
seconds for expiries to pass; the clocks of both machines must agree to about a second.

Some things are left open, because the contract leaves them open: a limit of 0 may be the default or
400, a megabyte of content may be refused with a message, a NUL may be stored or refused, PATCH may
merge metadata, the keys of propagation may come back in another order.

## From a program, and in a plugin's own tests

```python
from memtui.conformance import run_conformance

report = await run_conformance("http://localhost:9100", only=["write"], on_result=print)
assert report.failed == 0
```

As a pytest suite (it needs pytest-asyncio), with one test a rule:

```python
from memtui.conformance.suite import PluginConformance


class TestMyPlugin(PluginConformance):
    @pytest.fixture
    def url(self):
        return "http://localhost:9100"
```

## The rules

*Guide* is the document “Writing a Memory Plugin”, *OpenAPI* the description of the contract v1."""


def conformance_page() -> str:
    """Return the page of every check: its rule, where that stands, and what it needs."""
    from memtui.conformance import CHECKS
    from memtui.conformance.probe import GUIDE

    lines = [
        "# Conformance",
        "",
        _HEAD,
        "",
        "| check | rule | source | needs |",
        "| --- | --- | --- | --- |",
    ]
    for check in CHECKS:
        needs = ", ".join(check.needs + (("*alone*",) if check.alone else ()))
        source = check.source.replace(GUIDE, "Guide").replace("OpenAPI v1", "OpenAPI")
        rule = check.rule.replace("|", "\\|")
        lines.append(f"| `{check.name}` | {rule} | {source} | {needs} |")
    return "\n".join(lines) + "\n"
