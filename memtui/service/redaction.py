"""Secrets are taken out of whatever leaves for a provider or for the log (seed 001, SAFE-T1201)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "PRIVATE_KEY",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
    ),
    ("DATABASE_URL", re.compile(r"\b[a-z][a-z0-9+.\-]{1,30}://[^\s:/@]{0,200}:[^\s@/]{1,500}@\S+")),
    ("BEARER", re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/\-]{8,}=*")),
    ("GITHUB_TOKEN", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("AWS_ACCESS_KEY", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("API_KEY", re.compile(r"\bsk-[A-Za-z0-9_\-]{16,}")),
    ("SLACK_TOKEN", re.compile(r"\bxox[abprs]-[A-Za-z0-9\-]{10,}")),
)
_NAMED = re.compile(
    r"(?i)\b([A-Z0-9_.\-]{0,60}(API[_\-]?KEY|TOKEN|SECRET|PASSWORD|PASSWD)[A-Z0-9_]{0,40})"
    r"(\s*[=:]\s*)"
    r"(\"[^\"\n]{4,}\"|'[^'\n]{4,}'|[^\s\"',;\[]{6,})"
)
_NAMED_LABELS = {"APIKEY": "API_KEY", "TOKEN": "TOKEN", "SECRET": "SECRET"}


def redact(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with each secret replaced by `[REDACTED:LABEL]`, and the labels found."""
    labels: list[str] = []
    for label, pattern in _PATTERNS:
        text, count = pattern.subn(f"[REDACTED:{label}]", text)
        labels.extend([label] * count)

    def replace_value(match: re.Match[str]) -> str:
        word = match[2].upper().replace("_", "").replace("-", "")
        label = _NAMED_LABELS.get(word, "PASSWORD")
        if not _looks_secret(match[1], match[3], match[4]):
            return match[0]
        labels.append(label)
        return f"{match[1]}{match[3]}[REDACTED:{label}]"

    text = _NAMED.sub(replace_value, text)
    return text, tuple(labels)


def _looks_secret(name: str, separator: str, value: str) -> bool:
    """`API_KEY=abc…` always; `token: budget` in prose only where the value is no plain word."""
    if "=" in separator or name.isupper():
        return True
    return len(value) >= 12 and any(char.isdigit() for char in value)


def redact_json(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Redact every string inside a JSON value, keys included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        kept: dict[str, Any] = {}
        found: list[str] = []
        for key, inner in value.items():
            clean_key, key_labels = redact(str(key))
            kept[clean_key], labels = _redact_member(clean_key, inner)
            found.extend((*key_labels, *labels))
        return kept, tuple(found)
    if isinstance(value, list | tuple):
        parts = [redact_json(inner) for inner in value]
        return [part for part, _ in parts], tuple(label for _, found in parts for label in found)
    return value, ()


def _redact_member(key: str, value: Any) -> tuple[Any, tuple[str, ...]]:
    """A member's name tells as much as `NAME=value` does."""
    if isinstance(value, str) and _NAMED.fullmatch(f"{key}={value}"):
        _, labels = redact(f"{key}={value}")
        return f"[REDACTED:{labels[-1]}]", labels
    return redact_json(value)
