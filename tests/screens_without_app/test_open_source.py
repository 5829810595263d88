"""What opens a source; a source is foreign text, so most links do not."""

from __future__ import annotations

import pytest

from memtui.contract import Filter, Location, SourceKind, SourceRef
from memtui.screens.open_source import LogEntries, WebAddress, find_opening

RUN = SourceRef(kind=SourceKind.RUN, company_id="c", run_id="run-7")
COMMENT = SourceRef(kind=SourceKind.ISSUE_COMMENT, company_id="c", issue_id="ISS-1")
NOTE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="c")


def test_the_place_wins_over_the_link_and_the_link_over_the_log() -> None:
    place = Location(path="/v/facts.md", line=7)
    assert find_opening(None, None, place) == place
    assert find_opening(RUN, None, place) == LogEntries(Filter(run_id="run-7"))
    assert find_opening(RUN, "https://x.test/7") == WebAddress("https://x.test/7")
    assert find_opening(RUN, None) == LogEntries(Filter(run_id="run-7"))
    assert find_opening(COMMENT, None) == LogEntries(Filter(issue_id="ISS-1"))
    assert find_opening(NOTE, None) is None
    assert find_opening(None, None) is None


def test_files() -> None:
    assert find_opening(NOTE, "/v/a.md:12") == Location(path="/v/a.md", line=12)
    assert find_opening(NOTE, "file:///v/a%20b.md") == Location(path="/v/a b.md")


@pytest.mark.parametrize(
    "link",
    ["ftp://x.test/a", "vscode://x", "https://", "https://x.test/\x1b[31m", "https://[bad"],
)
def test_what_never_opens(link: str) -> None:
    assert find_opening(NOTE, link) is None
