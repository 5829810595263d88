"""Secrets that are known by their shape alone: tokens, keys, URLs with a password, headers.

The shapes of several vendors' tokens are those of detect-secrets, which is imported only when a
text holds the sign of one; its guesses by entropy are left out, because they take ordinary words
for secrets. Each shape may begin only where a word begins and repeats nothing without a bound
inside of another repetition, so that the work is linear in the length of a text.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""Where a token may begin: at a word's start, or behind an escape such as `\\n` in JSON text."""

_URL_END = r"[^\s\"'<>`\\]*"


@dataclass(frozen=True, slots=True)
class Shape:
    """What one sort of secret looks like.

    `pattern` finds it; its group `secret`, where it has one, is what is taken out. A text without
    any of the `signs`, in lower case, has none.
    """

    label: str
    signs: tuple[str, ...]
    pattern: str = ""
    detector: str = ""
    """The module of detect-secrets whose patterns count, in place of `pattern`."""


def _prefixed(label: str, body: str, *prefixes: str) -> Shape:
    """A token that a prefix of its own makes known."""
    heads = "|".join(map(re.escape, prefixes))
    return Shape(label, tuple(prefix.lower() for prefix in prefixes), rf"{_START}(?:{heads}){body}")


def _detected(label: str, detector: str, *signs: str) -> Shape:
    return Shape(label, signs, detector=detector)


SHAPES = (
    Shape(
        "PRIVATE_KEY",
        ("-----begin", "putty-user-key-file"),
        r"(?s:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
        r"|PuTTY-User-Key-File-\d.*?(?:Private-MAC: ?[0-9a-f]{1,128}|\Z))",
    ),
    Shape(
        "DATABASE_URL",
        ("://",),
        r"(?i)\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql)"
        rf"(?:\+[a-z0-9_]{{1,20}})?://[^\s:/@]{{0,200}}:(?![$<{{])[^\s@]{{1,500}}@{_URL_END}",
    ),
    Shape(
        "URL_PASSWORD",
        ("://",),
        r"(?i)\b[a-z][a-z0-9+.\-]{1,30}://(?:[^\s:/@]{0,200}:(?![$<{*]|password@)[^\s@/]{1,500}"
        rf"|(?=[^\s:/@]{{0,200}}[0-9])(?=[^\s:/@]{{0,200}}[a-z])[\w.~%\-]{{16,200}})@{_URL_END}",
    ),
    Shape(
        "BEARER",
        ("bearer",),
        r"(?i)\bbearer\s{1,20}(?![a-z\-]{1,24}(?![a-z0-9._~+/\-=]))[a-z0-9._~+/\-]{8,}=*",
    ),
    Shape(
        "AUTHORIZATION",
        ("authorization",),
        r"(?i)\bauthorization(?:\\?[\"'])?\s{0,5}[:=]\s{0,5}(?:\\?[\"'])?(?P<secret>"
        r"(?:basic|token|digest|negotiate|api-?key|key|sso-key|hawk)\s{1,5}[^\s\"'\\,]{6,}"
        r"|(?=[^\s\"'\\]{0,200}[0-9])(?=[^\s\"'\\]{0,200}[a-z])[\w.~+/=\-]{16,})",
    ),
    Shape(
        "COOKIE",
        ("cookie",),
        r"(?i)\b(?:set-)?cookie(?:\\?[\"'])?\s{0,5}:\s{0,5}(?:\\?[\"'])?"
        r"(?P<secret>[\w.\-]{1,60}=[^\s;\"'\\]{1,4000}(?:;\s{0,3}[^\n\"'\\]{0,4000})?)",
    ),
    Shape(
        "COOKIE",
        ("curl",),
        r"\bcurl\b[^\n]{0,300}?\s(?:-b|--cookie)[ =]?[\"']?"
        r"(?P<secret>[\w.\-]{1,60}=[^\s;\"']{6,}(?:;[^\n\"']{0,4000})?)",
    ),
    Shape(
        "PASSWORD",
        ("curl", "wget"),
        r"\b(?:curl|wget)\b[^\n]{0,300}?\s(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"'$]{1,100}:"
        r"(?P<secret>(?!\$)[^\s\"']{3,200})",
    ),
    Shape(
        "PASSWORD",
        ("curl",),
        r"\bcurl\b[^\n]{0,300}?\s(?:-u|--user)[ =]?[\"']?(?P<secret>[\w\-]{16,200}):",
    ),
    Shape(
        "PASSWORD",
        ("sshpass", "mysql", "mariadb"),
        r"\b(?:sshpass\b[^\n]{0,60}?\s-p\s?|(?:mysql|mariadb)\w{0,10}\b[^\n]{0,200}?\s-p)[\"']?"
        r"(?P<secret>(?![$<\"'])[^\s\"']{4,200})",
    ),
    Shape(
        "PASSWORD",
        ("redis-cli", "sqlcmd", "mosquitto_", "ldap", "mongo", "login", "zip", "7z", "openssl"),
        r"\b(?:redis-cli\b[^\n&|;]{0,300}?\s(?:-a|--pass)|sqlcmd\b[^\n&|;]{0,300}?\s-P"
        r"|mosquitto_[a-z]{1,9}\b[^\n&|;]{0,300}?\s(?:-P|--pw)|ldap[a-z]{2,12}\b[^\n&|;]{0,300}?\s-w"
        r"|mongo[a-z]{0,12}\b[^\n&|;]{0,300}?\s-p|(?:un)?zip\b[^\n&|;]{0,300}?\s-P"
        r"|(?:docker|podman|helm|oras|skopeo|az)\b[^\n&|;]{0,60}?\slogin\b[^\n&|;]{0,120}?\s-p"
        r"|7z[ar]?\s[^\n&|;]{0,300}?\s-p|openssl\b[^\n&|;]{0,300}?\s(?:-k\s|-pass(?:in|out)?\spass:))"
        r"[ =]?[\"']?(?P<secret>(?![$<%\-/~.\"'])(?!(?:[a-z\-]{1,60}|[0-9]{1,5})(?:\W|$))"
        r"[^\s\"']{4,200})",
    ),
    Shape(
        "PASSWORD",
        ("smbclient",),
        r"\bsmbclient\b[^\n]{0,300}?\s(?:-U|--user)[ =]?[\"']?[^\s%\"']{1,100}%"
        r"(?P<secret>(?!\$)[^\s\"']{3,200})",
    ),
    Shape(
        "PASSWORD",
        (" -a", "--auth"),
        r"(?<!\S)https?\s(?:[^\n]{0,300}?\s)?(?:-a|--auth)[ =]?[\"']?[^\s:\"'$]{1,100}:"
        r"(?P<secret>(?!\$)[^\s\"']{3,200})",
    ),
    Shape(
        "PASSWORD",
        ("auth",),
        r"(?:\bauth\s{0,3}=\s{0,3}|BasicAuth)\(\s{0,3}[\"'][^\"'\n]{1,100}[\"'],\s{0,3}"
        r"[\"'](?P<secret>(?!pass(?:word)?[\"'])[^\"'\n]{3,200})[\"']",
    ),
    Shape(
        "PASSWORD",
        ("identified by",),
        r"(?i)\bidentified\s{1,5}by\s{1,5}(?P<secret>'[^'\n]{3,200}'|\"[^\"\n]{3,200}\")",
    ),
    Shape(
        "PASSWORD",
        ("-stdin",),
        r"\becho\s{1,5}(?:-n\s)?[\"']?(?P<secret>(?![$<])[^\s\"'|]{6,300})[\"']?\s{0,5}\|"
        r"[^\n|]{1,80}--(?:password|token)-stdin",
    ),
    Shape(
        "PASSWORD",
        ("login", "cred", "pass"),
        r"(?i)\b(?:login|creds?|credentials|user(?:name)?\s?[/:]\s?pass(?:word)?)\s{0,3}(?::|is|are)"
        r"\s{1,3}[\w.@\-]{1,60}\s?[/:]\s?(?P<secret>(?=[^\s/]{0,60}[0-9])[^\s/]{6,60})",
    ),
    Shape(
        "PASSWORD",
        ("@",),
        r"(?<![\w/.@:\-])[\w.\-]{1,60}:(?P<secret>(?=[a-z0-9]{0,60}[A-Z!#%^&*]|[a-zA-Z]{1,60}[0-9])"
        r"[^\s@:/]{6,60})@[\w\-]{1,60}(?:\.[\w\-]{1,60}){1,8}",
    ),
    Shape(
        "PASSWORD",
        ("login ",),
        r"(?i)\blogin\s{1,5}\S{1,100}\s{1,5}password\s{1,5}(?P<secret>(?![$<])\S{3,200})",
    ),
    Shape(
        "PASSWORD",
        (":5432:", ":6432:", ":*:"),
        r"(?m)^[^:\s]{1,100}:(?:5432|6432|\*):[^:\s]{1,100}:[^:\s]{1,100}:(?P<secret>\S{3,200})$",
    ),
    Shape(
        "JWT",
        ("eyj",),
        r"(?:(?<![\w\-])|(?<=\\[nrt]))eyJ[\w\-]{10,}=*\.[\w\-]{2,}=*\.[\w\-]{2,}=*"
        r"(?:\.[\w\-]{1,8000}){0,2}",
    ),
    Shape(
        "API_KEY",
        ("sk-",),
        r"(?<![A-Za-z0-9\-])sk-(?:(?=[A-Za-z_\-]{0,80}[0-9])[A-Za-z0-9_\-]{16,}"
        r"|[A-Za-z0-9_\-]{40,})",
    ),
    _prefixed(
        "MEMTUI_TOKEN", r"(?=[\w\-]{0,42}[0-9])(?=[\w\-]{0,42}[A-Z])[\w\-]{43}", "memtui_"
    ),
    Shape(
        "GITHUB_TOKEN",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    ),
    Shape(
        "AWS_ACCESS_KEY",
        ("akia", "asia", "abia", "acca"),
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    Shape("AWS_SIGNATURE", ("amz-signature=",), r"(?i)amz-signature=(?P<secret>[0-9a-f]{32,})"),
    Shape("AZURE_SIGNATURE", ("sig=",), r"(?i)[?&]sig=(?P<secret>[\w%+/\-]{20,}=*)"),
    _prefixed("SLACK_TOKEN", r"[A-Za-z0-9.\-]{10,}",
              "xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xoxe.", "xoxc-",
              "xoxd-", "xapp-"),
    _detected("SLACK_WEBHOOK", "slack", "hooks.slack.com"),
    Shape(
        "WEBHOOK",
        ("discord.com/api/webhooks", "discordapp.com/api/webhooks", "webhook.office.com"),
        r"(?i)https://(?:[\w.\-]{1,60}discord(?:app)?\.com/api/webhooks|discord(?:app)?\.com/api/"
        rf"webhooks|[\w.\-]{{1,60}}webhook\.office\.com)/{_URL_END}",
    ),
    _detected("GITLAB_TOKEN", "gitlab_token", "glpat-", "gldt-", "glft-", "glsoat-", "glrt-",
              "gr1348941", "glcbt-", "glimt-", "glptt-", "glagent-", "gloas-"),
    _detected("STRIPE_KEY", "stripe", "sk_live_", "rk_live_"),
    _prefixed("STRIPE_KEY", r"[A-Za-z0-9]{16,}", "sk_test_", "rk_test_", "whsec_"),
    _detected("PYPI_TOKEN", "pypi_token", "pypi-ageicHlwaS5vcmc".lower(), "pypi-agendgvzdc5wexbpl"),
    _detected("SQUARE_SECRET", "square_oauth", "sq0csp-"),
    _prefixed("SQUARE_SECRET", r"[\w\-]{20,}", "sq0atp-", "EAAAE"),
    _prefixed("GOOGLE_KEY", r"[\w\-]{30,}", "AIza"),
    _prefixed("GOOGLE_TOKEN", r"[\w\-./]{20,}", "ya29.", "GOCSPX-", "1//0"),
    _prefixed("HUGGING_FACE_TOKEN", r"[A-Za-z0-9]{20,}", "hf_", "api_org_"),
    _prefixed("NPM_TOKEN", r"[A-Za-z0-9]{30,}", "npm_"),
    _prefixed("SENDGRID_KEY", r"[\w\-]{16,64}\.[\w\-]{16,}", "SG."),
    _prefixed("DIGITALOCEAN_TOKEN", r"[0-9a-f]{40,}", "dop_v1_", "doo_v1_", "dor_v1_"),
    _prefixed("VAULT_TOKEN", r"[\w\-]{20,}", "hvs.", "hvb.", "hvr."),
    Shape(
        "VAULT_TOKEN",
        ("s.",),
        r"(?<![A-Za-z0-9.])s\.(?=[A-Za-z]{0,23}[0-9])(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}"
        r"(?![A-Za-z0-9])",
    ),
    _prefixed("SHOPIFY_TOKEN", r"[0-9a-fA-F]{32,}", "shpat_", "shpca_", "shppa_", "shpss_"),
    _prefixed("DATABRICKS_TOKEN", r"[0-9a-f]{32}(?:-\d)?", "dapi"),
    _prefixed("NOTION_TOKEN", r"[A-Za-z0-9]{40,}", "ntn_", "secret_"),
    _prefixed("NEW_RELIC_KEY", r"[A-Z0-9]{24,}", "NRAK-", "NRJS-", "NRII-"),
    _prefixed("GRAFANA_TOKEN", r"[\w+/=]{30,}", "glsa_", "glc_"),
    _prefixed("ATLASSIAN_TOKEN", r"[\w\-=]{24,}", "ATATT3", "ATCTT3", "ATBB"),
    _prefixed("AGE_KEY", r"[A-Z0-9]{40,}", "AGE-SECRET-KEY-1"),
    _prefixed("TERRAFORM_TOKEN", r"[\w\-=]{60,70}", "atlasv1."),
    Shape(
        "TERRAFORM_TOKEN", (".atlasv1.",), rf"{_START}[A-Za-z0-9]{{14}}\.atlasv1\.[\w\-=]{{40,}}"
    ),
    _prefixed("DOPPLER_TOKEN", r"[A-Za-z0-9.]{20,}", "dp.pt.", "dp.st.", "dp.ct.", "dp.sa."),
    _prefixed("FLY_TOKEN", r"[\w+/=,\-]{30,}", "FlyV1 fm", "fm2_", "fo1_"),
    _prefixed(
        "API_KEY", r"(?=[A-Za-z_\-]{0,60}[0-9])[\w\-]{20,}",
        "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "tvly-", "fw_", "lin_api_", "PMAK-", "figd_",
        "dckr_pat_", "dckr_oat_", "rubygems_", "pul-", "sbp_", "sb_secret_", "pscale_tkn_",
        "pscale_pw_", "sntrys_", "sntryu_", "CFPAT-", "HRKU-", "phx_", "shippo_live_", "AKCp",
    ),
    _prefixed("API_KEY", r"[0-9a-f]{32}(?![0-9a-f])", "key-"),
    _prefixed("API_KEY", r"[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,}", "re_"),
    _prefixed("API_KEY", r"[a-z0-9]{43}", "oy2"),
    Shape(
        "BOT_TOKEN",
        (":aa",),
        rf"{_START}[0-9]{{8,10}}:AA[\w\-]{{32,34}}(?![\w\-])",
    ),
    Shape("MAPBOX_TOKEN", ("sk.eyj",), rf"{_START}sk\.eyJ[\w\-]{{20,}}\.[\w\-]{{10,}}"),
)  # fmt: skip

SIGNLESS = re.compile(
    r"[MNO][\w\-]{23,25}\.[\w\-]{6}\.[\w\-]{27,38}|[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])"
)
"""Tokens of Discord and Mailchimp: nothing in them is rare enough to look for first."""


def shapes_in(folded: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the labels and patterns of those secrets that a text, in lower case, may hold."""
    for position, shape in enumerate(SHAPES):
        if any(map(folded.__contains__, shape.signs)):
            for pattern in _patterns(position):
                yield shape.label, pattern
    yield "TOKEN", SIGNLESS


@cache
def _patterns(position: int) -> tuple[re.Pattern[str], ...]:
    shape = SHAPES[position]
    if not shape.detector:
        return (re.compile(shape.pattern),)
    module = importlib.import_module(f"detect_secrets.plugins.{shape.detector}")
    from detect_secrets.plugins.base import RegexBasedDetector

    own = [
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, RegexBasedDetector)
        and one.__module__ == module.__name__
    ]
    # Its patterns may end before a longer token does, and the rest of that is as secret.
    return tuple(
        re.compile(rf"{_START}(?:{pattern.pattern})[\w\-/+=.]*", pattern.flags)
        for detector in own
        for pattern in detector().denylist
    )
