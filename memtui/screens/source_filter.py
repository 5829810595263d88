"""From a source to the filter line that finds what else comes from it."""

from __future__ import annotations

from memtui.contract import SourceRef
from memtui.filters import build_filter, format_filter


def source_line_filter(source: SourceRef | None) -> str:
    """Return the filter line for the issue, else the run, else the kind, of a source.

    Empty where there is no source at all.
    """
    if source is None:
        return ""
    if source.issue_id:
        return format_filter(build_filter(issue_id=source.issue_id))
    if source.run_id:
        return format_filter(build_filter(run_id=source.run_id))
    return format_filter(build_filter(source_kind=source.kind))
