from __future__ import annotations

import json
import re
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memtui.contract import Scope, SourceKind, SourceRef, WriteRequest
from memtui.service.operations import redaction
from memtui.service.operations.redaction import redact, redact_json, suspicious
from tests.service.secret_forms import FORMS, ORDINARY

GITHUB = "ghp_" + "a1B2" * 9
PAT = "github_pat_" + "11ABCDEFG0" * 5
AWS = "AKIAIOSFODNN7EXAMPLE"
OPENAI = "sk-proj-abc123DEF456ghi789"
SLACK = "xoxb-123456789012-abcdefGHIJ"
BEARER = "eyJhbGciOiJIUzI1NiJ9.e30.Zm9v-bar_baz"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
PGP = "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----"
DATABASE = "postgresql://app:hunter2@db.example.com:5432/main?sslmode=require"
SHAPED = {
    GITHUB: "GITHUB_TOKEN",
    "gho_" + "x9Y8" * 9: "GITHUB_TOKEN",
    PAT: "GITHUB_TOKEN",
    AWS: "AWS_ACCESS_KEY",
    "ASIAIOSFODNN7EXAMPLE": "AWS_ACCESS_KEY",
    OPENAI: "API_KEY",
    "sk-" + "abcdefghij" * 5: "API_KEY",
    SLACK: "SLACK_TOKEN",
    PEM: "PRIVATE_KEY",
    PGP: "PRIVATE_KEY",
    DATABASE: "DATABASE_URL",
    "postgres://app:p/w:1@h/db": "DATABASE_URL",
    "mongodb+srv://u:pass%40word@cluster0.mongodb.net": "DATABASE_URL",
    "redis://:onlypassword@cache:6379/0": "DATABASE_URL",
    "https://ana:opensesame@example.com/x": "URL_PASSWORD",
}


@pytest.mark.parametrize(("secret", "label"), SHAPED.items())
@pytest.mark.parametrize(
    "sentence", ["{}", "Use {} to push", "({})", '{{"x": "{}"}}', "a={}, b", "see:{}\nnext line"]
)
def test_a_secret_of_a_known_shape_never_remains(secret: str, label: str, sentence: str) -> None:
    clean, labels = redact(sentence.format(secret))
    assert f"[REDACTED:{label}]" in clean
    assert label in labels
    assert secret not in clean
    assert redact(clean) == (clean, ())


@pytest.mark.parametrize(
    ("text", "clean", "label"),
    [
        ("API_KEY=abcdef", "API_KEY=[REDACTED:API_KEY]", "API_KEY"),
        ("export GH_TOKEN=abcdef1 && x", "export GH_TOKEN=[REDACTED:TOKEN] && x", "TOKEN"),
        ("my-api-key = abcdef1", "my-api-key = [REDACTED:API_KEY]", "API_KEY"),
        ("api key: abc123def", "api key: [REDACTED:API_KEY]", "API_KEY"),
        ("apiKey: 'abc 123 def'", "apiKey: '[REDACTED:API_KEY]'", "API_KEY"),
        ("AWS_SECRET_ACCESS_KEY=wJalrX/K7M+x=", "AWS_SECRET_ACCESS_KEY=[REDACTED:SECRET]",
         "SECRET"),
        ("client_secret=opensesame", "client_secret=[REDACTED:SECRET]", "SECRET"),
        ("SECRET_KEY_BASE=abcd1234efgh", "SECRET_KEY_BASE=[REDACTED:SECRET]", "SECRET"),
        ("PASSWORD=correcthorse", "PASSWORD=[REDACTED:PASSWORD]", "PASSWORD"),
        ("PASSWORD_2=hunter22", "PASSWORD_2=[REDACTED:PASSWORD]", "PASSWORD"),
        ("PASSWORD=ab[cd],ef;gh1", "PASSWORD=[REDACTED:PASSWORD]", "PASSWORD"),
        ("PASSWORD=12345678", "PASSWORD=[REDACTED:PASSWORD]", "PASSWORD"),
        ("the password: hunter2", "the password: [REDACTED:PASSWORD]", "PASSWORD"),
        ("DB_PASSWD: hunter2", "DB_PASSWD: [REDACTED:PASSWORD]", "PASSWORD"),
        ('PASSWORD="two words"', 'PASSWORD="[REDACTED:PASSWORD]"', "PASSWORD"),
        (r'PASSWORD="a\"b c"', 'PASSWORD="[REDACTED:PASSWORD]"', "PASSWORD"),
        ('PASSWORD="never closed', 'PASSWORD="[REDACTED:PASSWORD]', "PASSWORD"),
        ("f(token=abc123d,x=1)", "f(token=[REDACTED:TOKEN],x=1)", "TOKEN"),
        ('{"api_key": "my own"}', '{"api_key": "[REDACTED:API_KEY]"}', "API_KEY"),
        (r'{\"password\":\"hunter2\"}', r'{\"password\":\"[REDACTED:PASSWORD]\"}', "PASSWORD"),
        (f"Authorization: Bearer {BEARER}", "Authorization: [REDACTED:BEARER]", "BEARER"),
        (f"bearer {BEARER}=", "[REDACTED:BEARER]", "BEARER"),
    ],
)  # fmt: skip
def test_a_value_under_a_secrets_name_is_taken_out(text: str, clean: str, label: str) -> None:
    assert redact(text) == (clean, (label,))
    assert redact(clean) == (clean, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "token: budget",
        "The token: first-class citizen",
        "secret sauce",
        "The secret: keep it simple",
        "password reset flow: send the mail",
        "password: see the docs",
        "secretary=margaret",
        "tokenizer=cl100k_base, tokenizer: o200k_base",
        "max_tokens=200000 MAX_TOKENS: 128000 input_tokens: 12k",
        "token_type=bearer",
        "token_budget=unlimited",
        "api_key_env=MEM0_API_KEY",
        "Bearer authentication is required",
        "the bearer of bad-news-for-everyone",
        "https://example.com:8080/@user and http://host/path?x=y@z",
        "postgresql://app@db.example.com/main, postgres://localhost/x",
        "git@github.com:ana/repo.git",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b and 3f78685",
        "sk-short, sk-SK, sk-learn-compatible-estimators, task-management-2-overview-x",
        "ghp_short, AKIA, AKIAIOSFODNN7EXAMPLEwithmore",
        "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == (text, ())


def test_a_private_key_that_never_ends_goes_to_its_end() -> None:
    cut = "before\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\nmore"
    assert redact(cut) == ("before\n[REDACTED:PRIVATE_KEY]", ("PRIVATE_KEY",))


def test_two_keys_with_text_between_leave_the_text() -> None:
    clean, labels = redact(f"{PEM} and {PEM}")
    assert clean == "[REDACTED:PRIVATE_KEY] and [REDACTED:PRIVATE_KEY]"
    assert labels == ("PRIVATE_KEY",) * 2


def test_every_string_of_a_json_value_is_looked_at() -> None:
    value = {
        "plain": "text",
        "list": [GITHUB, {"deep": f"Bearer {BEARER}"}, 3, None, True],
        "password": "three plain words",
        "secret": 12345678,
        "tokens": ["abcdef123"],
        "client": {"secret": "opensesame"},
        AWS: 1,
        "max_tokens": 4096,
        "token_budget": "500",
        "token": True,
        "api_key": "",
    }
    clean, labels = redact_json(value)
    assert clean == {
        "plain": "text",
        "list": ["[REDACTED:GITHUB_TOKEN]", {"deep": "[REDACTED:BEARER]"}, 3, None, True],
        "password": "[REDACTED:PASSWORD]",
        "secret": "[REDACTED:SECRET]",
        "tokens": ["[REDACTED:TOKEN]"],
        "client": {"secret": "[REDACTED:SECRET]"},
        "[REDACTED:AWS_ACCESS_KEY]": 1,
        "max_tokens": 4096,
        "token_budget": "500",
        "token": True,
        "api_key": "",
    }
    assert len(labels) == 7
    assert redact_json(clean) == (clean, ())


def test_no_member_is_lost_where_secrets_are_names() -> None:
    names = [f"{GITHUB}{number}" for number in range(3)]
    held = {name: number for number, name in enumerate(names)} | {"[REDACTED:GITHUB_TOKEN] 2": 3}
    clean, labels = redact_json({**held, "token": held})
    cleaned = {
        "[REDACTED:GITHUB_TOKEN]": 0,
        "[REDACTED:GITHUB_TOKEN] 3": 1,
        "[REDACTED:GITHUB_TOKEN] 4": 2,
        "[REDACTED:GITHUB_TOKEN] 2": 3,
    }
    assert clean == {**cleaned, "token": cleaned}
    assert labels == ("GITHUB_TOKEN",) * 6
    assert redact_json(clean) == (clean, ())


def test_json_text_stays_json() -> None:
    text = json.dumps({"api_key": "abc123def", "url": DATABASE, "note": "stays"})
    assert json.loads(redact(text)[0]) == {
        "api_key": "[REDACTED:API_KEY]",
        "url": "[REDACTED:DATABASE_URL]",
        "note": "stays",
    }


words = st.sampled_from(
    ["token", "=", ":", " ", '"', "'", "\\", "password", "[", "a1b2c3d4", ",", "\n", "Bearer",
     "://", "@", "sk-", GITHUB, OPENAI, "[REDACTED:TOKEN]", "API_KEY", "_ENV", "S"]
)  # fmt: skip


@given(st.text() | st.lists(words, max_size=14).map("".join))
def test_it_is_idempotent_and_what_it_found_is_gone(text: str) -> None:
    clean, labels = redact(text)
    assert redact(clean)[0] == clean
    assert (clean == text) or labels
    assert GITHUB not in clean


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: (
    st.lists(inner) | st.dictionaries(st.text(), inner))))  # fmt: skip
def test_a_json_value_keeps_its_shape(value: object) -> None:
    clean, labels = redact_json(value)
    if not labels:
        assert clean == value


EVERYTHING = (
    *chain.from_iterable(map(redaction._patterns, range(len(redaction.SHAPES)))),
    redaction.SIGNLESS, redaction._NAMED, redaction._FLAG, redaction._ELEMENT, redaction._PAIR,
)  # fmt: skip

HUNGRY = [
    "-", "a-", "a.", "token ", "TOKEN", "TOKEN=", 'password="', "sk-", "a://", "redis://a:",
    "bearer ", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "\\", '"', "token=,",
    "TOKEN=" + " " * 19, 'TOKEN=\\"', "ghp_", "AKIA", "API KEY", "x:y@",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", HUNGRY)
def test_a_large_hostile_text_is_read_in_steps_that_grow_with_its_size(unit: str) -> None:
    """No pattern repeats without a bound inside of another, so the work is linear."""
    text = unit * (100_000 // len(unit))
    clean, _ = redact(text)
    assert redact(clean)[0] == clean


def test_no_pattern_has_an_unbounded_gap_before_what_it_needs() -> None:
    for pattern in EVERYTHING:
        repeats = re.findall(r"\\s[*+]|\.\*(?!\?)|\.\+(?!\?)|\)[*+](?:\)[*+])", pattern.pattern)
        assert repeats == []


SIGNS = [
    *HUNGRY, "AP\u0131_Key=", "to\u212aen: ", "\u017fecret=", "a1B2c3D4e5F6g7H8i9J0", "@h/x",
    "sk-ant-", "xoxb-", "postgres://u:p@h ", "\u0130", " ",
]  # fmt: skip


@given(st.lists(st.sampled_from(SIGNS), max_size=12).map("".join))
def test_a_text_without_a_sign_of_a_secret_has_none(text: str) -> None:
    if any(pattern.search(text) for pattern in EVERYTHING):
        assert suspicious(text)
        assert suspicious(repr({"a": [text]}))
        assert suspicious(json.dumps([text], ensure_ascii=False))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_secret_is_taken_out(form: str) -> None:
    text, secret = FORMS[form]
    clean, labels = redact(f"On Monday:\n{text}\nand no more.")
    assert labels
    assert secret not in clean
    assert clean.startswith("On Monday:\n")
    assert clean.endswith("\nand no more.") or form in ("pem", "private key json")
    assert redact(clean)[0] == clean
    assert suspicious(json.dumps({"content": text}))


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_to_the_letter(text: str) -> None:
    assert redact(text) == (text, ())


def test_a_value_that_does_not_fit_is_not_in_the_error() -> None:
    scope = Scope(company_id="acme")
    source = SourceRef(kind=SourceKind.RUN, company_id="acme")
    with pytest.raises(ValidationError) as raised:
        WriteRequest(scope=scope, source=source, content=f"\ud83d {OPENAI}")
    assert OPENAI[-6:] not in str(raised.value)
