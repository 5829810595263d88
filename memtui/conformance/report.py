"""What a conformance run found: one result a check, with the request and the reply of a failure."""

from __future__ import annotations

from typing import Literal

from memtui.contract import Model

Outcome = Literal["pass", "fail", "not_applicable"]


class SentRequest(Model):
    """A request as it was sent."""

    method: str
    path: str
    body: str | None = None
    """The body as text, cut after some thousand characters; None for none."""


class SeenReply(Model):
    """A reply as it came. Foreign text: show it through `visible()`."""

    status: int
    content_type: str | None = None
    body: str = ""
    """The body as text, cut after some thousand characters."""


class CheckResult(Model):
    """What one check found."""

    name: str
    rule: str
    """The rule in one sentence."""
    source: str
    """Where the contract says so."""
    outcome: Outcome
    detail: str = ""
    """What was wrong, why it does not apply, or a remark on a pass."""
    request: SentRequest | None = None
    """The request that shows the failure."""
    reply: SeenReply | None = None
    """Its reply; None where none came."""
    duration_ms: float = 0.0


class ServerSeen(Model):
    """What the server says of itself."""

    version: str | None = None
    capabilities: tuple[str, ...] = ()


class Report(Model):
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
    """What the run made and could not remove, each as a person would look it up."""
    duration_ms: float = 0.0
