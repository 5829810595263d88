"""The rows of the Bindings screen, and the details of a row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Embedding, Problem, Scope
from memtui.json_text import json_text
from memtui.presenters import format as fmt
from memtui.presenters import spending
from memtui.screens.state import AppState
from memtui.service import Capture
from memtui.widgets.charts import sparkline
from memtui.widgets.detail_lines import pairs
from memtui.widgets.display import ACCENT, BAD, DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.frame import PAST_SIGN

if TYPE_CHECKING:
    from memtui.backends.discovery import DiscoveredMemory
    from memtui.service.answers import (
        BindingHealth,
        BindingView,
        ProfileAnswer,
        SyncAnswer,
        TargetView,
    )
    from memtui.service.home.agents import Connected
    from memtui.service.operations.in_sync import InSync

_PROBLEMS_SHOWN = 50
_STEM = Content.styled("│  ", DIM)
"""Drawn before a row that belongs to a binding."""
HEALTH_MARKS = {"ok": ("●", OK), "degraded": ("▲", WARN), "down": ("✗", BAD)}
"""Mark and style of each health status."""


@dataclass(frozen=True, slots=True)
class BindingsView:
    """The bindings, the health known so far, and the memories found on this machine."""

    bindings: tuple[BindingView, ...] = ()
    healths: Mapping[str, BindingHealth] = field(default_factory=dict)
    unusable: tuple[Problem, ...] = ()
    """Problems of installed providers that cannot be used."""
    findings: tuple[DiscoveredMemory, ...] | None = None
    """Memories found on this machine; None: the search is under way."""
    agents: tuple[Connected, ...] = ()
    """Agents connected now, or lately."""
    in_sync: tuple[InSync, ...] = ()
    """Pairs of bindings that are kept in sync."""
    plugins: frozenset[str] = frozenset()
    """Providers that are memory plugins."""

    def embedding(self, key: str) -> Embedding | None:
        """Return the embedding state of a binding; None: unknown, or it has no model."""
        health = self.healths.get(key)
        return health.health.embedding if health else None

    def steps_of(self, key: str) -> Iterator[tuple[str, InSync]]:
        """Yield the bindings in sync with the binding `key`, each with the state of the sync."""
        for one in self.in_sync:
            if key in {one.left, one.right}:
                yield one.right if key == one.left else one.left, one

    def holder(self, finding: DiscoveredMemory) -> BindingView | None:
        """Return the binding that reads a finding already; None: there is none."""
        for binding in self.bindings:
            if finding.is_read_by(binding.provider_key, binding.config):
                return binding
        return None

    @property
    def unbound(self) -> tuple[DiscoveredMemory, ...]:
        """Findings that no binding reads yet."""
        return tuple(one for one in self.findings or () if self.holder(one) is None)

    @property
    def addable(self) -> tuple[DiscoveredMemory, ...]:
        """Unbound findings that can be added as bindings; of several of one place the first."""
        usable = [one for one in self.unbound if one.usable]
        places = {one.path: one for one in reversed(usable)}
        return tuple(one for one in usable if places[one.path] is one)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One row of the tree: its content, and the object that it shows."""

    content: Content
    binding: BindingView | None = None
    target: TargetView | None = None
    problem: Problem | None = None
    finding: DiscoveredMemory | None = None
    agent: Connected | None = None
    company: bool = False
    """Whether it shows the company."""
    more: int = 0
    """Number of problems that are not listed."""
    selectable: bool = True
    """Whether the cursor can be on it."""

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the object of the row across changes."""
        path = self.finding.path if self.finding else None
        key = self.binding.key if self.binding else None
        agent = (self.agent.principal, self.agent.run_id) if self.agent else None
        more = self.company, bool(self.more)
        return self.selectable, key, self.target, self.problem, path, agent, more


def rows_of(view: BindingsView, state: AppState) -> Iterator[TreeRow]:
    """Yield the rows: the company, its bindings with targets and problems, agents, findings."""
    name = state.session.company.name if state.session else state.scope.company_id
    yield TreeRow(display(name, limit=100, style=STRONG) + _path_note(state), company=True)
    if state.as_of is not None:
        last_answer = f"{PAST_SIGN} Bindings, their health and agents are shown as they are now."
        yield TreeRow(display(last_answer, style=WARN), selectable=False)
    for problem in view.unusable:
        yield TreeRow(_STEM + _problem_line(problem), problem=problem)
    for number, binding in enumerate(view.bindings, 1):
        yield from _binding_rows(view, binding, state, last=number == len(view.bindings))
    yield TreeRow(Content(""), selectable=False)
    connected = "Connected now"
    if not view.agents:
        connected = "No agent is connected; memtui mcp install adds one."
    elif not all(agent.is_open for agent in view.agents):
        connected = "Connected now ● or lately ○"
    style = STRONG if view.agents else DIM
    yield TreeRow(display(connected, style=style), selectable=False)
    for agent in view.agents:
        yield TreeRow(_agent_line(agent, state.true_clock()), agent=agent)
    yield TreeRow(Content(""), selectable=False)
    yield TreeRow(_found_title(view), selectable=False)
    for finding in view.unbound:
        yield TreeRow(_finding_line(finding), finding=finding)


def _binding_rows(
    view: BindingsView, binding: BindingView, state: AppState, *, last: bool
) -> Iterator[TreeRow]:
    stem = Content(" " * len(_STEM)) if last else _STEM
    health = view.healths.get(binding.key)
    problems = health.health.problems if health else ()
    branch = "└─ " if last else "├─ "
    steps = [_step_note(other, one) for other, one in view.steps_of(binding.key)]
    yield TreeRow(line(_binding_line(branch, binding, view, state), *steps, gap="  "), binding)
    for target in binding.targets:
        yield TreeRow(stem + _target_line(binding, target, state), binding, target)
    for problem in problems[:_PROBLEMS_SHOWN]:
        yield TreeRow(stem + _problem_line(problem), binding, problem=problem)
    if more := len(problems[_PROBLEMS_SHOWN:]):
        words = display(f"… and {fmt.count(more)} more", style=DIM)
        yield TreeRow(stem + words, binding, more=more)


def _path_note(state: AppState) -> Content:
    if state.resolution is None:
        return display(f"   {state.resolution_problem}", limit=300, style=WARN)
    key, reason = state.resolution.binding_key, state.resolution.reason
    return display(f"   used here: the binding `{key}` ({reason})", limit=300, style=DIM)


def _binding_cells(
    branch: str, binding: BindingView, health: BindingHealth | None, state: AppState
) -> tuple[Content, ...]:
    """Return the cells of a binding that align with those of the others."""
    active = serves(binding, state)
    mark, word, style = health_words(binding, health)
    records = health.health.records if health is not None else None
    name = display(binding.key, limit=60, style=f"bold {ACCENT}" if active else "bold")
    lead = Content.styled(branch, ACCENT if active else DIM) + name
    return (
        lead + Content.styled(" ◀", f"bold {ACCENT}") if active else lead,
        display(binding.provider_key, limit=40, style=DIM),
        display(f"{mark} {word}", style=style),
        display("read-only", style=WARN) if binding.read_only else Content(""),
        display("" if records is None else fmt.counted(records, "record"), style=DIM),
    )


def _binding_line(
    branch: str, binding: BindingView, view: BindingsView, state: AppState
) -> Content:
    health = view.healths.get(binding.key)
    every = [_binding_cells(branch, one, view.healths.get(one.key), state) for one in view.bindings]
    widths = [max(cell.cell_length for cell in column) for column in zip(*every, strict=True)]
    cells = _binding_cells(branch, binding, health, state)
    padded = [
        cell + Content(" " * (width - cell.cell_length))
        for cell, width in zip(cells, widths, strict=True)
    ]
    padded[-1] = Content(" " * (widths[-1] - cells[-1].cell_length)) + cells[-1]
    notes: list[Content | None] = [
        display("shared with another company", style=WARN) if binding.shared else None,
        display("captures", style=DIM) if binding.captures else None,
    ]
    if health is not None:
        if health.health.embedding is not None:
            notes.append(_embedding_note(health.health.embedding))
        if health.latencies_ms:
            spark = sparkline(health.latencies_ms, 12)
            notes.append(display(f"{fmt.duration(health.latencies_ms[-1]):>6} {spark}", style=DIM))
        if health.health.problems:
            notes.append(display(fmt.counted(len(health.health.problems), "problem"), style=WARN))
    return line(*padded, *notes, gap="  ")


def _step_note(other: str, found: InSync) -> Content:
    """Return the binding that another is in sync with, and its open conflicts and deletions."""
    return display(f"⇄ {other}{_open_words(found)}", style=WARN if _open_words(found) else DIM)


def _open_words(found: InSync) -> str:
    conflicts = f", {fmt.counted(found.conflicts, 'conflict')}" if found.conflicts else ""
    deletions = f", {fmt.counted(found.held_back, 'deletion')} held back" if found.held_back else ""
    return conflicts + deletions


def _embedding_note(found: Embedding) -> Content | None:
    """Return the progress of embedding in few words; None: it is complete."""
    if found.is_done:
        return None
    if not found.agreed:
        return display("embedding not confirmed", style=WARN)
    share = f"embedding {fmt.count(found.embedded)}/{fmt.count(found.texts)}"
    is_changing = found.serving not in {None, found.model}
    return display(f"re-index: {share}" if is_changing else share, style=WARN)


def _target_line(binding: BindingView, target: TargetView, state: AppState) -> Content:
    lit = serves(binding, state) and target_serves(target, state)
    style = f"bold {ACCENT}"
    words = display(target_words(target), limit=100, style=style if lit else "")
    note = Content.styled("  ◀" if lit else "", style)
    return Content.styled("→ ", style if lit else DIM) + words + note


def _problem_line(problem: Problem) -> Content:
    place = fmt.place_line(problem.location) if problem.location else ""
    parts = display(place, limit=80, style=STRONG), display(problem.message, limit=300)
    return Content.styled("! ", WARN) + line(*parts)


def _found_title(view: BindingsView) -> Content:
    if view.findings is None:
        return display("Found on this machine: looking …", style=DIM)
    if not view.unbound:
        return display("No other memory stores were found on this machine.", style=DIM)
    head = display("Found on this machine", style=STRONG)
    return head + display("   a adds one, f adds all, read-only, after you confirm", style=DIM)


def _finding_line(finding: DiscoveredMemory) -> Content:
    mark = Content.styled("○ ", DIM) if finding.usable else Content.styled("✗ ", BAD)
    about = "" if finding.records is None else _about(finding.records, estimated=finding.estimated)
    return mark + line(
        display(found_title(finding), limit=80, style=STRONG),
        display(finding.provider, limit=40, style=DIM),
        display(about, style=DIM),
        display(found_place(finding), limit=200, style=DIM),
        gap="  ",
    )


def _agent_line(agent: Connected, now: datetime) -> Content:
    mark = Content.styled("● ", OK) if agent.is_open else Content.styled("○ ", DIM)
    return mark + line(
        display(agent.principal.removeprefix("agent:"), limit=60, style=STRONG),
        display(agent.project_id, limit=60),
        display(fmt.last_answer_words(agent.last_answer, now), limit=200),
        display("" if agent.is_open else f"seen {fmt.since(agent.last_seen, now)}", style=DIM),
        display(" · ".join(filter(None, [agent.channel, agent.client])), limit=100, style=DIM),
        gap="  ",
    )


def _agent_detail(agent: Connected, state: AppState, width: int) -> Content:
    """Return the details of a connected agent, with its last answer."""
    now = state.true_clock()
    facts = [
        ("acts for", agent.acts_for or ""),
        ("through", agent.channel),
        ("client", agent.client or ""),
        ("project", agent.project_id or ""),
        ("run", agent.run_id or ""),
        ("since", fmt.since(agent.since, now)),
        ("last seen", fmt.since(agent.last_seen, now)),
        ("last given", fmt.last_answer_words(agent.last_answer, now)),
    ]
    said = "A session is open." if agent.is_open else "It did something lately."
    head = line(display(agent.principal, limit=200, style=STRONG), display(said, style=DIM))
    hint = "o shows all that it was given and did."
    if agent.run_id is not None:
        hint = "o replays its run step by step."
    shown = pairs([fact for fact in facts if fact[1]], width)
    return lines([head, Content(""), *shown, Content(""), display(hint, style=DIM)])


def _about(records: int, *, estimated: bool) -> str:
    return ("about " if estimated and records else "") + fmt.counted(records, "record")


def found_title(finding: DiscoveredMemory) -> str:
    """Return a finding's title, with the home folder as `~`."""
    return finding.title.replace(f"{Path.home()}/", "~/")


def found_place(finding: DiscoveredMemory) -> str:
    """Return a finding's path; empty: the title contains it."""
    return "" if finding.path in finding.title else short_path(finding.path)


def short_path(path: str) -> str:
    """Return a path with the home folder as `~`."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


def health_words(binding: BindingView, health: BindingHealth | None) -> tuple[str, str, str]:
    """Return mark, word and style of a binding's health."""
    if not binding.enabled:
        return "◌", "off", DIM
    if health is None:
        return "○", "checking", DIM
    if health.breaker_open:
        return "✗", "paused after failures", BAD
    mark, style = HEALTH_MARKS[health.health.status]
    return mark, health.health.status, style


def serves(binding: BindingView, state: AppState) -> bool:
    """Whether a binding serves the chosen scope."""
    return state.resolution is not None and state.resolution.binding_key == binding.key


def target_serves(target: TargetView, state: AppState) -> bool:
    """Whether the chosen scope is served because of this target."""
    reason = state.resolution.reason if state.resolution else ""
    if target.target_type == "company":
        return reason.startswith("company")
    return reason == f"for the {target.target_type} {target.target_id}"


CAPTURE_WORDS = {
    Capture.POST_RUN: "a note of each run",
    Capture.COMMENTS: "comments of issues",
    Capture.DOCUMENTS: "documents of issues",
}


def capture_words(captures: Collection[Capture]) -> str:
    """Return the captures of a binding, as part of a sentence."""
    return ", ".join(words for one, words in CAPTURE_WORDS.items() if one in captures)


def target_words(target: TargetView) -> str:
    """Return a target in words: `the whole company`, `project x`, `agent y`."""
    return fmt.target_words(target, "the whole company")


def row_detail(row: TreeRow, view: BindingsView, state: AppState, width: int) -> Content:
    """Return the details of a row."""
    if row.finding is not None:
        return _finding_detail(row.finding, width)
    if row.agent is not None:
        return _agent_detail(row.agent, state, width)
    if row.binding is not None:
        return _binding_detail(row, row.binding, view, state, width)
    return _company_detail(view, state, width)


def _company_detail(view: BindingsView, state: AppState, width: int) -> Content:
    company = state.session.company if state.session else None
    facts = [
        ("company", state.scope.company_id),
        ("name", company.name if company else ""),
        ("bindings", fmt.count(len(view.bindings))),
        *_limit_facts("company", state.scope.company_id, state),
        ("read-only", "yes, every change is refused" if state.read_only else "no"),
        *([("second yes", words)] if company and (words := fmt.second_yes(company)) else []),
    ]
    links = [
        (kind.replace("_", " "), template)
        for kind, template in (company.link_templates if company else {}).items()
    ]
    key = state.keymap.label("bindings.configure")
    shown = links or [("none", f"a source opens at its own reference; {key} gives it an address")]
    hint = (
        "A binding connects this company to a memory store; its targets say whose records go there."
    )
    blocks = [*pairs(facts, width), Content(""), display("How sources open", style=STRONG)]
    blocks += [*pairs(shown, width), Content(""), display(hint, style=DIM)]
    return lines(blocks)


def _binding_detail(
    row: TreeRow, binding: BindingView, view: BindingsView, state: AppState, width: int
) -> Content:
    key, health = state.keymap.label, view.healths.get(binding.key)
    mark, word, style = health_words(binding, health)
    head = display(f"{binding.provider_key}·{binding.key}", limit=100, style=STRONG)
    blocks = [line(head, display(f"{mark} {word}", style=style), gap="  ")]
    if health is not None and health.health.message:
        blocks.append(display(health.health.message, limit=600, style=style))
    if serves(binding, state) and state.resolution:
        why = f"◀ used here ({state.resolution.reason})"
        blocks.append(display(why, limit=200, style=f"bold {ACCENT}"))
    if row.problem is not None:
        blocks += [Content(""), display("Problem", style=STRONG)]
        blocks.append(display(row.problem.message, limit=2_000))
        if row.problem.location:
            place = f"{row.problem.location.path}:{row.problem.location.line}"
            blocks += [
                display(place, limit=600, style=ACCENT),
                display(f"{key('bindings.open')} opens it", style=DIM),
            ]
    targets = ", ".join(target_words(one) for one in binding.targets)
    config = [
        (name, value if isinstance(value, str) else json_text(value))
        for name, value in binding.config.items()
    ]
    facts = [
        ("serves", targets or f"nobody; {key('bindings.target')} sets one"),
        ("can", ", ".join(binding.capabilities.words())),
        ("read-only", "yes" if binding.read_only else "no"),
        ("captures", capture_words(binding.captures) or "nothing; “captures” in ctrl+p chooses"),
        (
            "review",
            "; ".join(one.name for one in binding.review)
            or f"no rule holds writes; {key('app.review')}, then {key('review.rules')}, sets rules",
        ),
        *_limit_facts("binding", binding.key, state),
        *([("texts go to", ", ".join(binding.agreed))] if binding.agreed else []),
        *(
            []
            if binding.embeds
            else [("embedding", "stopped; “meaning” in ctrl+p starts it again")]
        ),
        *_step_facts(binding, view, state),
        *([("shared", "another company's records are there too")] if binding.shared else []),
        *(_health_facts(health, state) if binding.enabled else []),
        ("added", fmt.exact(binding.created_at, state.zone)),
    ]
    blocks += [Content(""), *pairs(facts, width)]
    heading = display("Config", style=STRONG) + display(
        f"   {key('bindings.configure')} changes it", style=DIM
    )
    shown = pairs(config, width) or [display("all at its defaults", style=DIM)]
    blocks += [Content(""), heading, *shown]
    return lines(blocks)


def _limit_facts(kind: str, name: str, state: AppState) -> Iterator[tuple[str, str]]:
    """Yield the spending limits of a company or binding, with the spending last counted."""
    own = [one for one in state.spending if (one.target_type, one.target_id) == (kind, name)]
    for one in own:
        yield "limit", spending.stand(one, spending.period(one, state.true_clock(), state.zone))
    if not own:
        yield "limit", f"none; {state.keymap.label('app.limits')} sets one"


def _step_facts(
    binding: BindingView, view: BindingsView, state: AppState
) -> Iterator[tuple[str, str]]:
    for other, found in view.steps_of(binding.key):
        when = fmt.since(found.synced_at, state.true_clock()) if found.synced_at else ""
        yield (
            "in sync",
            f"with {other}, {when}{_open_words(found)}; “keep in sync” in ctrl+p shows it",
        )


def _health_facts(health: BindingHealth | None, state: AppState) -> list[tuple[str, str]]:
    if health is None:
        return [("health", "checking")]
    records, latencies = health.health.records, sorted(health.latencies_ms)
    slowest = (
        f"median {fmt.duration(latencies[len(latencies) // 2])}, "
        f"slowest {fmt.duration(latencies[-1])}"
        if latencies
        else ""
    )
    return [
        ("records", "" if records is None else fmt.count(records)),
        ("problems", fmt.count(len(health.health.problems)) if health.health.problems else ""),
        (
            "meaning",
            fmt.embedding_words(health.health.embedding) if health.health.embedding else "",
        ),
        ("latency", slowest),
        ("version", health.health.version or ""),
        ("checked", fmt.since(health.checked_at, state.true_clock())),
    ]


def _finding_detail(finding: DiscoveredMemory, width: int) -> Content:
    about = "" if finding.records is None else _about(finding.records, estimated=finding.estimated)
    facts = [
        ("provider", finding.provider),
        ("where", finding.path),
        ("holds", about),
        ("why here", finding.why),
        ("new key", finding.key),
    ]
    hint = (
        "a adds it as a read-only binding, f adds all found ones. Its data is not changed; you are "
        "asked first."
        if finding.usable
        else "It cannot be added as it is."
    )
    title = display(found_title(finding), limit=200, style=STRONG)
    blocks = [title, Content(""), *pairs(facts, width)]
    blocks += [display(f"! {one}", limit=400, style=WARN) for one in finding.problems]
    return lines([*blocks, Content(""), display(hint, style=DIM)])


def sync_content(answer: SyncAnswer) -> Content:
    """Return the result of a sync."""
    last_answer = (
        f"Saw {fmt.counted(answer.seen, 'record')}, changed {fmt.count(answer.changed)}, "
        f"removed {fmt.count(answer.removed)} in {fmt.duration(answer.latency_ms)}."
    )
    kept = "The external source was not changed, so there is nothing to undo."
    problems = [display(f"! {one.sentence()}", limit=400, style=WARN) for one in answer.problems]
    return lines([display(last_answer), *problems, Content(""), display(kept, style=DIM)])


def profile_content(answer: ProfileAnswer) -> Content:
    """Return a profile, and its cost."""
    summary = answer.profile.summary.strip()
    took = f"tokens {fmt.tokens(answer.usage)}   {fmt.duration(answer.latency_ms)}"
    said = display(summary, keep_newlines=True) if summary else display("Nothing.", style=DIM)
    return lines([said, Content(""), display(took, style=DIM)])


def whose(scope: Scope) -> str:
    """Name the owners of a scope: `project web, user ana`, or the whole company."""
    words = {"project_id": "project", "subject_id": "user", "agent_id": "agent"}
    named = [f"{words[field]} {name}" for field in words if (name := getattr(scope, field))]
    return ", ".join(named) or "the whole company"
