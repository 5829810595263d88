"""`bindings conformance`: check a memory plugin against the contract, or if a provider forgets."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import Yes, complete_binding
from memtui.channels.cli.output import Dim, Line, Output, columns, table
from memtui.channels.cli.session import Invocation
from memtui.contract import Invalid
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.conformance import CheckResult, ConformanceReport
    from memtui.conformance.probe import ContractCheck
    from memtui.service.usecases.really_gone import GoneReport


_MARKS = {"pass": "✓", "fail": "✗", "not_applicable": "–", "gone": "✓", "found": "✗",
          "not offered": "–", "not asked": "?", "kept": "✓", "lost": "✗"}  # fmt: skip
_BODY_LIMIT = 400
"""Characters of a body shown to a person; JSON contains more."""
_LEFTOVERS = 5
"""Most leftovers named to a person."""


async def bindings_conformance(
    invocation: Invocation,
    url: str | None = None,
    *,
    uds: Path | None = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    list_checks: Annotated[bool, typer.Option("--list")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=600)] = 5.0,
    forgetting: Annotated[
        str | None, typer.Option(metavar="BINDING", autocompletion=complete_binding)
    ] = None,
    project: str | None = None,
    within: Annotated[float, typer.Option(min=0.1, max=3600)] = 30.0,
    yes: Yes = False,
) -> int:
    """Check a running memory plugin against the contract v1, rule by rule.

    It works in its own namespaces, named like custom:memtui-conformance-…, and removes them
    afterwards. Exit 1 if a rule is broken, 3 if the server cannot be reached.

    With --forgetting it checks a binding of any provider instead: it writes four memories into a
    scratch project, forgets three, and asks for them in every way that the provider has, also after
    a re-index. Exit 1 if one is still found, 3 if the provider could not be asked.

    Args:
        url: The plugin's address, such as http://localhost:9100.
        uds: The plugin's unix socket; the URL can be left out then.
        only: Run this check only, or those whose names begin with NAME; may be repeated.
        list_checks: List the checks and their rules, and run none.
        timeout: Seconds that one request may take.
        forgetting: Check whether what this binding forgets is gone.
        project: With --forgetting, the project to write to, for a binding that has only this one.
        within: With --forgetting, seconds to wait until memories are found, and until they are
            gone.
    """
    from memtui.conformance import choose_checks, run_conformance

    if forgetting is not None:
        if url or uds or only or list_checks:
            raise Invalid("--forgetting takes a binding, and neither an address nor checks.")
        return await _forgetting(invocation, forgetting, project, within, yes=yes)
    if project is not None or yes:
        raise Invalid("--project and --yes go with --forgetting.")
    checks = choose_checks(only)
    if list_checks:
        document = {"checks": [_listed(check) for check in checks]}
        invocation.out.answer(document, _rules(checks))
        return 0
    if url is None and uds is None:
        raise Invalid("Give the address of the plugin to check, or its unix socket with --uds.")
    lines = _Lines(checks, invocation.out)
    report = await run_conformance(
        url or None,
        uds=uds,
        only=only,
        on_result=lines.add,
        on_leftovers=lambda names: _tell_leftovers(invocation.out, names),
        timeout_s=timeout,
    )
    invocation.out.answer(report, _summary(report))
    return 1 if report.failed else 0


async def _forgetting(
    invocation: Invocation, key: str, project: str | None, within: float, *, yes: bool
) -> int:
    """Check whether what a binding forgets is gone; print the outcome and return the exit code."""
    from memtui.service.usecases.really_gone import check_forgetting

    question = f"Write four memories to {key}, forget them, and let it rebuild its index?"
    async with invocation.session() as session:
        report = await check_forgetting(
            session.service, session.caller, key, project_id=project, within_s=within,
            agree=lambda: None if yes else confirm(question),
            tell_leftovers=lambda ids: invocation.out.say(f"Not removed again: {', '.join(ids)}."),
        )  # fmt: skip
    outcomes = {one.outcome for one in report.probes}
    passed = outcomes.isdisjoint({"found", "lost"})
    document = report.model_dump() | {"passed": passed}
    invocation.out.answer(document, _gone_lines(report, is_scratch=project is None))
    return 1 if not passed else 3 * ("not asked" in outcomes)


def _gone_lines(report: GoneReport, *, is_scratch: bool) -> Iterator[Line]:
    rows = ([one.name, f"{_MARKS[one.outcome]} {one.outcome}", one.detail] for one in report.probes)
    yield from table(columns("asked for by", "outcome", "detail*"), rows)
    after = report.gone_after_s
    yield "Not gone in time." if after is None else f"Gone {after:.2f} s after it was forgotten."
    yield from (visible(f"Still in {place}.") for place in report.traces)
    if report.copies:
        what = f"--project {report.project_id}" if is_scratch else report.record_ids[0]
        copies = ", ".join(report.copies)
        yield f"memtui's own copies: {copies}. `memtui purge {what} --yes` erases them."
    yield from (Dim(visible(f"- {sentence}")) for sentence in report.beyond)


class _Lines:
    """Prints results in the order of the checks, each as early as possible."""

    def __init__(self, checks: tuple[ContractCheck, ...], out: Output) -> None:
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
    """Return a line cut to the width of the terminal, if stdout is one."""
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or len(line) <= columns:
        return line
    return f"{line[: columns - 1]}…"


def _summary(report: ConformanceReport) -> Iterator[Line]:
    counts = f"{report.passed} passed, {report.failed} failed"
    if report.not_applicable:
        counts += f", {report.not_applicable} not applicable"
    yield f"{counts} in {report.duration_ms / 1000:.1f} s"


def _listed(check: ContractCheck) -> dict[str, object]:
    return {
        "name": check.name,
        "rule": check.rule,
        "source": check.source,
        "needs": list(check.needs),
    }


def _rules(checks: tuple[ContractCheck, ...]) -> Iterator[Line]:
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
