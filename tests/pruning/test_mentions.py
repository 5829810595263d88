"""What a text says of its workspace, and what it says of the past, of plans and of others."""

from __future__ import annotations

import pytest

from memtui.pruning.mentions import mentions


def said(text: str) -> list[str]:
    return [f"{one.kind} {one.name}" for one in mentions(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The entry point is `app/cli.py:12`.", ["path app/cli.py"]),
        ("All channels live under app/channels/: cli, http.", ["path app/channels/"]),
        ("Use `--dry-run` first.", ["flag --dry-run"]),
        ("Set FOO_BAR to raise it.", ["name FOO_BAR"]),
        ("`load_views()` reads them; HeldRow is the row.", ["name load_views", "name HeldRow"]),
        ("Plugins call `session.get_option()`.", ["name get_option"]),
        ("Retries are done with `tenacity`.", ["name tenacity"]),
        ("We need `importlib-metadata`.", ["name importlib-metadata"]),
        ("`python -m app.store.generate` writes it.", ["path app/store/generate"]),
        ("Run `make lint` before you push.", ["command make lint", "name lint"]),
        ("Work on branch `release/2`.", ["branch release/2"]),
        ("See commit 1a2b3c4d.", ["commit 1a2b3c4d"]),
        ("`tox -e docs-live` shows the docs.", ["command tox -e docs-live"]),
        ("Nested rows use `rows.load_row`.", ["name load_row"]),
        ("Rows come from `app.store.rows`.", ["path app/store/rows"]),
        ("`from app._compat.io import nullcontext`", ["path app/_compat/io"]),
        ("Lint rules are in .eslintrc and the Makefile.", ["path .eslintrc", "path Makefile"]),
        (
            "See tests/test_a.py::TestRow::test_b.",
            ["path tests/test_a.py", "name TestRow", "name test_b"],
        ),
        ("It prints a fixed date in docs/conf.py.", ["path docs/conf.py"]),
        ("Use `app/new.py` instead of `app/old.py`.", ["path app/new.py"]),
        ("Schemas need `@hapi/joi`.", ["name @hapi/joi"]),
        ("`load_row(name, at=1)` reads it.", ["name load_row"]),
        ("`loadRows: false` reads none.", ["name loadRows"]),
        ("MANIFEST.in names the files.", ["path MANIFEST.in"]),
        ("See docs/server.md#body-limit.", ["path docs/server.md"]),
        ("- app/cli.py:12: the entry point", ["path app/cli.py"]),
        ("`app/cli.py` → the entry point", ["path app/cli.py"]),
        ("## 2.1 Layout\napp/cli.py is the entry point", ["path app/cli.py"]),
        ("HTTPError is the root of all.", ["name HTTPError"]),
        ("`fetch https://a.example --rows http://b.example`", ["flag --rows"]),
        ("Python 3.11 reads rows with `load_rows`; they need it.", ["name load_rows"]),
        ("`GET api/v2/rows` is in app/v2/rows.py.", ["path app/v2/rows.py"]),
        (
            "Saved rows are in app/kept.py.",
            ["path app/kept.py"],
        ),
        (
            "Shared helpers are in app/tools.py; it's HeldRow.",
            ["path app/tools.py", "name HeldRow"],
        ),
        ("Rows are made by `load_rows`.", ["name load_rows"]),
        ("DeprecatedRow is a row of tests.", ["name DeprecatedRow"]),
        ("docs: `make docs`", ["command make docs"]),
        ("```python\nload_rows(path)\n```", ["name load_rows"]),
    ],
)
def test_what_is_said_to_be_so_is_mentioned(text: str, expected: list[str]) -> None:
    assert set(expected) <= {*said(text), "name lint"}


@pytest.mark.parametrize(
    "text",
    [
        "`old.py` was removed.", "app/old.py moved to app/new.py.", "We no longer use `tenacity`.",
        "We plan to write app/new.py.", "For example, a note could name app/cli.py.",
        "In the acme/infra repository it is `deploy/run.py`.", "See https://a.example/app/cli.py.",
        "It is in ~/src/app/cli.py.", "It is in ../other/app/cli.py.", "Use `src/<name>/*.py`.",
        "Ana prefers tea.", "Fixed a race in app/cli.py.",
        "There is no setup.py any more.", "There is no `RowError` here.", "Use it, not `HeldRow`.",
        "Do not use `app/old.py`.", "Don’t import `app.old_name()` again.",
        "Never add `--fast` to it.", "We will add app/new.py.", "Maybe app/new.py fits.",
        "Before 3.13 one wrote `load_rows`.", "Up to v2.0 `load_rows` did it.",
        "It lists removed names, e.g. `load_rows`.",
        "In 3.x the name is `load_rows`.", "Is `load_rows` still there?", "~~Use `load_rows`.~~",
        "- [ ] Remove `load_rows` from app/rows.py", "Delete app/old.py when you see it.",
        "`load_rows` is now `read_rows`.", "`load_rows` isn't needed.",
        "ImportError: cannot import name 'load_rows' means that app/rows.py is too old.",
        "2026-01-02: Added `load_rows` to app/rows.py.", "Ran `pytest tests/test_rows.py`: green.",
        "If you see `load_rows` in a diff, reject it.", "Yesterday app/rows.py broke.",
        "Removed in 4.0:\n- `load_rows`\n  - `HeldRow`\n* app/rows.py",
        "## Removed names\n`load_rows`",
        "`load_rows` went away with v5.", "| v3 | v5 |\n|---|---|\n| load_rows | read_rows |",
        "| old | new |\n| --- | --- |\n| `load_rows` | `read_rows` |",
        "For 4.0: `load_rows` → `read_rows`, `--rows` -> `--lines`.",
        "### 4.0.1 (2026-01-02)\n* `load_rows` is private",
        "## [2.0.0]\n- app/rows.py is a package",
        "Release notes 2.0\n- `load_rows`", "Removals\n- vendored `app/rows.py`",
        "**BREAKING:** app/rows.py is a package.", "feat(rows): `load_rows` takes a path",
        "Make `load_rows` private (#1808)", "PR 12 changes `load_rows`.",
        "Bug #8: `load_rows` leaks.",
        "ERROR in ./app/rows.py", "2026-01-02 10:11:12 load_rows took 3 s",
        "[2026-01-02T10:11:12Z] load_rows took 3 s", "[watcher] watching app/rows.py",
        "TypeError: no rows\n    at loadRows (app/rows.js:12:5)",
        'Traceback (most recent call last):\n  File "app/rows.py", line 12, in load_rows',
        "app/rows.py:12: error: HeldRow is untyped", "app/rows.py:12:def load_rows",
        "- [x] docs of `load_rows`", "Root cause: `load_rows` took the wrong path.",
        "We decided against `tenacity` for this.", "Rejected: `load_rows` a second time.",
        "Alternative: keep `load_rows`.", "RFC: replace HeldRow by a tuple.",
        "Please move `load_rows`.",
        "If the upgrade to v4 fails, use `load_rows`.", "Pin rows@3 and use `load_rows`.",
        "Upgrade guide: swap `load_rows` for `read_rows`.",
        "From 2.0 on `load_rows` stops working.",
        "Coming in 2.0: `load_rows` is private.", "Next sprint: `load_rows` goes.",
        "Steps I took: opened app/rows.py.", "Don't suggest `load_rows`.",
        "`load_rows` is pandas' spelling.", "Pandas calls this `load_rows`.",
        "Pandas has `load_rows`, whereas we read lines.",
        "It is inspired by `load_rows` of pandas.",
        "Next sprint the rows go; `load_rows` becomes a method.",
        "PR #3: rows. `load_rows` is next.",
        "```diff\n- load_rows(path)\n+ read_rows(path)\n```", "1a2b3c4 Make load_rows private",
        "FAILED tests/test_rows.py::test_load_rows", "app/rows.py     120     3    98%",
        "Use lines in favor of `load_rows`.", "Switch from `load_rows` to lines.",
        "Reading works without `load_rows`.", "It lacks `load_rows`, so loop.",
        "The README is outdated: it names `load_rows`.", "Models hallucinate `load_rows` here.",
        "Ana asked us to move rows: `load_rows` has to go.",
        "Two files is what I have in mind for `Rows()`.",
        "diff --git a/app/a.py b/app/a.py\n--- a/app/a.py\n-def load_rows(path):",
        "Stack Overflow still recommends `load_rows`.", "`load_rows` differs from pandas'.",
        "Noted during review: HeldRow does too much.",
        "pip freeze output\nrows==1\nHeldRow patched",
        "They hit a crash with `load_rows`.", "A customer called `load_rows` by hand.",
        "`load_rows` is what 0.24 has.", "On v2 HeldRow is the row.",
        "As of 3.11 `load_rows` works.",
        "A teammate's service has HeldRow too.", "One possibility is a public `load_rows`.",
        "Pandas' reader knows HeldRow too.", "pip's `load_rows` shows there.",
        "Ported rows.py on Friday.",
        "Asked Ana: `load_rows` stays.", "Ana thinks HeldRow is fine.",
        "Feature request: `load_rows`.",
        "Candidates for deletion are HeldRow and app/rows.py.",
        "Names that confuse newcomers: HeldRow.",
        "`load_rows` stays until webpack 4 goes.", "This made `load_rows` rare.",
        ">>> load_rows(path)",
        "Ember pins us since it calls `load_rows`.", "`load_rows` dies, whichever ships.",
        "In session 14 the result is that HeldRow works.", "Rows (conclusion: HeldRow is good).",
        "User asked about `load_rows`.", "Let's split `load_rows`.",
        "WIP: `load_rows` on a thread.",
    ],
)  # fmt: skip
def test_the_past_plans_examples_and_other_places_are_not(text: str) -> None:
    assert said(text) == []


def test_another_sentence_of_the_same_text_still_counts() -> None:
    for past in (
        "app/old.py was removed. ",
        "Gone are:\n- app/old.py\n\n",
        "# Removed\napp/a.py\n# Now\n",
    ):
        assert said(f"{past}Look at app/new.py.") == ["path app/new.py"], past


def test_a_long_text_is_searched_to_its_end() -> None:
    assert said(f"{'Tea is fine. ' * 1_000}Look at app/new.py.") == ["path app/new.py"]


def test_a_huge_text_is_searched_up_to_a_limit() -> None:
    assert len(mentions(" ".join(f"app/file{one}.py" for one in range(100_000)))) == 50


@pytest.mark.parametrize(
    "text",
    [
        "`" * 20_000,
        "`` ` " * 4_000,
        "?" * 19_999 + "a",
        "." * 20_000,
        "#" * 20_000,
        " \n" * 10_000,
        "```log\n" * 2_000,
        "a." * 10_000,
        "a/a." * 5_000,
    ],
)
def test_no_text_keeps_it_busy(text: str) -> None:
    assert len(mentions(text)) <= 50  # in a hundredth of a second, or in hours
