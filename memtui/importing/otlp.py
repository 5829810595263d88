"""OpenTelemetry's spans in OTLP JSON, as collectors write them: a batch of spans a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_OWN = {
    "spanId": "id",
    "traceId": "trace_id",
    "parentSpanId": "parent_span_id",
    "name": "name",
    "startTimeUnixNano": "start_time",
    "endTimeUnixNano": "end_time",
}
"""What is taken of a span, and the name of its column."""

_STATUS = {0: "ok", 1: "ok", 2: "error"}
_NUMBERS = {"intValue": int, "doubleValue": float}


def is_batch(document: Mapping[str, Any]) -> bool:
    """Tell whether a line is a batch of spans."""
    return isinstance(document.get("resourceSpans"), list)


def spans(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans of a batch as flat rows, with the attributes of their resource.

    Raises:
        ValueError: it is no batch in OTLP's JSON.
    """
    try:
        for resource in document["resourceSpans"]:
            shared = _attributes(resource.get("resource", {}).get("attributes", ()))
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    yield shared | _row(span)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("it is no OTLP JSON") from error


def _row(span: Mapping[str, Any]) -> dict[str, Any]:
    row = {column: span[name] for name, column in _OWN.items() if span.get(name)}
    status = span.get("status", {})
    row["status"] = _STATUS[status.get("code", 0)]
    if status.get("message"):
        row["status_message"] = status["message"]
    return row | _attributes(span.get("attributes", ()))


def _attributes(given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {one["key"]: _value(one["value"]) for one in given}


def _value(given: Mapping[str, Any]) -> Any:
    [(kind, value)] = given.items()
    if kind == "arrayValue":
        return [_value(one) for one in value.get("values", ())]
    if kind == "kvlistValue":
        return _attributes(value.get("values", ()))
    return _NUMBERS[kind](value) if kind in _NUMBERS else value
