"""The page of the checks that `memtui conformance` makes, made from the checks."""

from __future__ import annotations

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
