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
    "text", ["`" * 20_000, "`` ` " * 4_000, "?" * 19_999 + "a", "a." * 10_000, "a/a." * 5_000]
)
def test_no_text_keeps_it_busy(text: str) -> None:
    assert len(mentions(text)) <= 50  # in a hundredth of a second, or in hours
