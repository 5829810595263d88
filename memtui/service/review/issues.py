"""Which facts come from an issue that has changed since, by what hooks captured of it.

memtui asks no tracker, so what nobody captured is not known. A note tells what was said then; only
a fact, which is taken to be so now, can be outdated.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import unquote

from memtui.analytics.company_log import CompanyLog
from memtui.contract import (
    Filter,
    OperationStatus,
    Record,
    RecordHandle,
    SourceKind,
    SourceRef,
    Term,
)
from memtui.fact_values import FACT
from memtui.store.log import parts
from memtui.store.operation import Operation

_KINDS = frozenset({SourceKind.ISSUE, SourceKind.ISSUE_COMMENT, SourceKind.ISSUE_DOCUMENT})
_CAPTURED = Filter(
    channel="hook",
    status=OperationStatus.OK,
    terms=(Term(field="operation_type", values=("write", "correct")),),
)
_AT_ONCE = 100


def changed_issues(
    log: CompanyLog, records: Iterable[Record], url: str | None
) -> dict[RecordHandle, str]:
    """Return how the issues that facts come from have changed since; empty: they have not.

    A comment or a document has changed when another text of it was captured, an issue when
    anything of it was captured that is new. Facts that name none are left out. Blocking.

    Args:
        log: The log, as far as the caller sees it.
        records: The records, facts or not.
        url: The company's link template of issues, by which a fact may name one.
    """
    dated = (one for one in records if one.kind == FACT and one.created_at)
    facts = [(one, source) for one in dated if (source := _issue(one.source, url))]
    captured: dict[str | None, list[Operation]] = defaultdict(list)
    for some in parts(sorted({str(source.issue_id) for _, source in facts}), _AT_ONCE):
        one_of = tuple(Filter(issue_id=one) for one in some)
        for operation in log.each(_CAPTURED.model_copy(update={"alternatives": one_of})):
            if operation.source is not None and operation.source.kind in _KINDS:
                captured[operation.source.issue_id].append(operation)
    return {one.handle: _change(one, source, captured[source.issue_id]) for one, source in facts}


def _issue(source: SourceRef | None, url: str | None) -> SourceRef | None:
    """Return the issue of a source, or the comment or document of one; None: it is none."""
    if source is None or (source.kind in _KINDS and source.issue_id):
        return source
    pattern = r"([^/?#]+)".join(map(re.escape, (url or "").split("{issue_id}")))
    found = re.fullmatch(rf"{pattern}(?:[/?#].*)?", source.external_ref or "")
    if found is None or not found.groups():
        return None
    issue = {"kind": SourceKind.ISSUE, "issue_id": unquote(found[1])}
    return SourceRef(company_id=source.company_id, **issue)


def _change(fact: Record, source: SourceRef, captured: Iterable[Operation]) -> str:
    """Return what of a fact's source was captured after the fact; empty: nothing."""
    made = max(filter(None, (fact.created_at, fact.updated_at, fact.valid_from)))
    known: dict[str, object] = {}
    for one in captured:
        named, scope = one.source or source, one.scope
        # A reader of the fact may not learn of captures for another owner.
        if not {scope.project_id, scope.subject_id} <= {None, fact.scope.project_id,
                                                        fact.scope.subject_id}:  # fmt: skip
            continue
        name, text = _name(named), one.request.get("content")
        was, known[name] = known.get(name), text
        is_same = name == _name(source) and was is not None
        if one.started_at > made and text != was and (is_same or source.kind is SourceKind.ISSUE):
            what = "was captured again" if is_same else f"has changed: {name} was captured"
            return f"Its source, {_name(source)}, {what} on {one.started_at:%Y-%m-%d}."
    return ""


def _name(source: SourceRef) -> str:
    """Return the name of an issue, or of a comment or document of one."""
    part = source.comment_id and f"comment {source.comment_id} of "
    part = part or (source.document_key and f"{source.document_key} of ")
    return f"{part or ''}issue {source.issue_id}"
