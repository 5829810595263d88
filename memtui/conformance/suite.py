"""The checks as a pytest suite for a plugin's own tests; it needs pytest and pytest-asyncio."""

from pathlib import Path
from typing import ClassVar

import pytest

from memtui.visible import visible

from . import CHECKS, TIMEOUT_S, TTL_S, CheckResult, run_conformance

_BODY_LIMIT = 1_000


@pytest.mark.asyncio
class PluginConformance:
    """Subclass it as `TestSomething`, override the fixture `url`, and run pytest.

    Each check is one test, skipped if the server does not list the capability it needs. Example:

        class TestMine(PluginConformance):
            @pytest.fixture
            def url(self) -> str:
                return "http://localhost:9100"
    """

    uds: ClassVar[Path | None] = None
    """The unix socket to connect to instead of the URL's host."""
    timeout_s: ClassVar[float] = TIMEOUT_S
    """Time limit of one request, in seconds."""
    ttl_s: ClassVar[float] = TTL_S
    """Distance of the expiries that the checks wait for, in seconds."""

    @pytest.fixture
    def url(self) -> str:
        """Return the address of a running plugin; an override may start and stop it."""
        raise NotImplementedError("Override the fixture url with your plugin's address.")

    @pytest.mark.parametrize("name", [check.name for check in CHECKS])
    async def test_rule(self, url: str, name: str) -> None:
        """The plugin keeps one rule of the contract."""
        report = await run_conformance(
            url, uds=self.uds, only=[name], timeout_s=self.timeout_s, ttl_s=self.ttl_s
        )
        result = next(found for found in report.checks if found.name == name)
        if result.outcome == "not_applicable":
            pytest.skip(visible(result.detail))
        if result.outcome == "fail":
            pytest.fail(_report(result), pytrace=False)


def _report(result: CheckResult) -> str:
    lines = [f"{result.name}: {visible(result.detail)}", f"{result.rule} ({result.source})"]
    if result.request is not None:
        sent = f"{result.request.method} {result.request.path} {result.request.body or ''}"
        lines.append(f"→ {visible(sent, limit=_BODY_LIMIT)}")
    if result.reply is not None:
        seen = f"{result.reply.status} {result.reply.content_type or ''} {result.reply.body}"
        lines.append(f"← {visible(seen, limit=_BODY_LIMIT)}")
    return "\n".join(lines)
