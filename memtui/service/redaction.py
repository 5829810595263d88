"""Secrets are taken out of whatever leaves for a provider or for the log (seed 001, SAFE-T1201)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_URL_END = r"[^\s\"'<>`\\]*"
_PATTERNS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    (
        "PRIVATE_KEY",
        ("-----begin",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
    ),
    (
        "DATABASE_URL",
        ("://",),
        re.compile(
            r"(?i)\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql)"
            rf"(?:\+[a-z0-9_]{{1,20}})?://[^\s:/@]{{0,200}}:[^\s@]{{1,500}}@{_URL_END}"
        ),
    ),
    (
        "URL_PASSWORD",
        ("://",),
        re.compile(
            rf"(?i)\b[a-z][a-z0-9+.\-]{{1,30}}://[^\s:/@]{{0,200}}:[^\s@/]{{1,500}}@{_URL_END}"
        ),
    ),
    (
        "BEARER",
        ("bearer",),
        re.compile(
            r"(?i)\bbearer\s{1,20}(?![a-z\-]{1,24}(?![a-z0-9._~+/\-=]))[a-z0-9._~+/\-]{8,}=*"
        ),
    ),
    (
        "GITHUB_TOKEN",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ),
    (
        "AWS_ACCESS_KEY",
        ("akia", "asia"),
        re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ),
    (
        "API_KEY",
        ("sk-",),
        re.compile(
            r"(?<![A-Za-z0-9\-])sk-(?:(?=[A-Za-z_\-]{0,80}[0-9])[A-Za-z0-9_\-]{16,}"
            r"|[A-Za-z0-9_\-]{40,})"
        ),
    ),
    (
        "SLACK_TOKEN",
        ("xox",),
        re.compile(r"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9\-]{10,}"),
    ),
)
"""The label of a sort of secret, texts of which each of them has one, and what it looks like."""

_NAME = r"(API[_\- ]?KEY|TOKEN|SECRET|PASSWORD|PASSWD)([A-Z0-9_\-]{0,40})"
_NAMED = re.compile(
    rf"(?i){_NAME}((?:\\?[\"'])?)(\s{{0,20}}[=:]\s{{0,20}})"
    r"(\\\"[^\"\\\n]{4,}\\\"|\"(?:[^\"\\\n]|\\.){4,}\"|'(?:[^'\\\n]|\\.){4,}'"
    r"|[\"'][^\s\"'][^\"'\n]{3,200}|(?:[^\s\"',;\\]|[,;](?!\s|\w{1,40}\s?[=:])){6,})"
)
_NAME_SIGNS = ("apikey", "api_key", "api-key", "api key", "token", "secret", "passw")
_SIGNS = (*dict.fromkeys(sign for _, signs, _ in _PATTERNS for sign in signs), *_NAME_SIGNS)
_NAMED_MEMBER = re.compile(rf"(?i)[A-Z0-9_.\-]{{0,60}}{_NAME}")
_LABELS = {"APIKEY": "API_KEY", "TOKEN": "TOKEN", "SECRET": "SECRET"}
_SECRET_ENDINGS = frozenset({"", "S", "KEY", "ACCESSKEY", "KEYBASE", "VALUE"})
_QUOTES = "\\\"'"
_TAKEN_OUT = re.compile(r"\[REDACTED:[A-Z_]+\]")
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,62}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def redact(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with each secret replaced by `[REDACTED:LABEL]`, and the labels found."""
    folded = _folded(text)
    if not _has_any(folded, _SIGNS):
        return text, ()
    labels: list[str] = []
    for label, signs, pattern in _PATTERNS:
        if _has_any(folded, signs):
            text, count = pattern.subn(f"[REDACTED:{label}]", text)
            labels.extend([label] * count)
    if not _has_any(folded, _NAME_SIGNS):
        return text, tuple(labels)

    def replace_value(match: re.Match[str]) -> str:
        keyword, ending, name_quote, separator, value = match.groups()
        bare = value.strip(_QUOTES)
        in_json = bool(name_quote) and value[0] in _QUOTES
        sure = "=" in separator or keyword.isupper() or in_json
        if _TAKEN_OUT.fullmatch(bare) or not _is_secret(keyword, ending, bare, sure=sure):
            return match[0]
        label = _label(keyword)
        labels.append(label)
        before, _, after = value.partition(bare)
        return f"{keyword}{ending}{name_quote}{separator}{before}[REDACTED:{label}]{after}"

    return _NAMED.sub(replace_value, text), tuple(labels)


def may_hold_secret(text: str) -> bool:
    """Tell whether there can be a secret in a text at all, in a tenth of the time of `redact`.

    The text may be the JSON or the `repr` of a value: where this is False, `redact_json` finds
    nothing in the value either.
    """
    return _has_any(_folded(text), _SIGNS)


def _has_any(folded: str, signs: tuple[str, ...]) -> bool:
    return any(map(folded.__contains__, signs))


def _folded(text: str) -> str:
    """Return the text with every letter that a pattern takes for an ASCII one as that one."""
    folded = text.casefold()
    return folded if folded.isascii() else folded.replace("\u0131", "i").replace("\u0307", "")


def _label(keyword: str) -> str:
    return _LABELS.get(re.sub(r"[_\- ]", "", keyword).upper(), "PASSWORD")


def _is_secret(keyword: str, ending: str, value: str, *, sure: bool) -> bool:
    """Tell whether the value under a secret's name is one; `sure`: it is no prose.

    `API_KEY=abc…` is one, while `token: budget`, `max_tokens=200000`, `tokenizer=cl100k_base` and
    `token_env=MEM0_TOKEN` are none.
    """
    if _label(keyword) == "TOKEN" and re.fullmatch(r"[\d.,_]+[kKmM]?", value):
        return False
    letters = any(char.isalpha() for char in value)
    mixed = letters and any(char.isdigit() for char in value)
    if re.sub(r"[_\-]|\d+$", "", ending).upper() not in _SECRET_ENDINGS:
        separated = ending[0] in "_-"
        return separated and mixed and len(value) >= 8 and not _VARIABLE.fullmatch(value)
    return sure or mixed


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
    name = _NAMED_MEMBER.fullmatch(key)
    if name is None:
        return redact_json(value)
    if isinstance(value, list | tuple):
        parts = [_redact_member(key, inner) for inner in value]
        return [part for part, _ in parts], tuple(label for _, found in parts for label in found)
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    text = str(value)
    if not plain or len(text) < 4 or _TAKEN_OUT.fullmatch(text):
        return redact_json(value)
    if not _is_secret(name[1], name[2], text, sure=True):
        return redact_json(value)
    return f"[REDACTED:{_label(name[1])}]", (_label(name[1]),)


def redact_config(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Redact a config, but not the names of secrets that its keys in `_secret` give."""
    names = {
        key: value
        for key, value in config.items()
        if key.endswith("_secret") and _SECRET_NAME.fullmatch(str(value)) and not redact(value)[1]
    }
    clean, labels = redact_json({key: config[key] for key in config if key not in names})
    return {**clean, **names}, labels
